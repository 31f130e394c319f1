"""What a run wrote of itself. Needs no torch."""

import json
import math
import os
import pathlib

import numpy as np

from flotilla.errors import Error

LONGEST_LINE = 1 << 20


def messages():
    """The generated (config_pb2, env_pb2)."""
    try:
        from flotilla.v1 import config_pb2, env_pb2
    except ImportError as error:
        raise Error(
            f"the messages of Flotilla's protocol cannot be imported ({error}): put share/flotilla/python of a build or an "
            "installation on PYTHONPATH, which has them beside this package, and install protobuf"
        ) from None
    return config_pb2, env_pb2


def parse_text(message, path):
    """Reads text format into `message`."""
    from google.protobuf import text_format

    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message)
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}") from None
    except (text_format.ParseError, UnicodeDecodeError) as error:
        gist = " ".join(str(error).split())
        raise Error(f"{path} is no {type(message).__name__} in text format ({gist}); use the file that the run wrote") from None


def read_json(path):
    """The object in a file."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise Error(f"{path} is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise Error(f"{path} is no JSON object")
    return value


class Run:
    """A run's folder. Reads files when asked, so that a run that trains can be looked at."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not any((self.path / name).exists() for name in ("config.textproto", "metrics.jsonl", "checkpoints")):
            known = "has no config.textproto, metrics.jsonl or checkpoints/" if self.path.is_dir() else "does not exist"
            raise Error(f'"{path}" is no run\'s folder: it {known}; name what `flotilla train` printed as its run folder')

    @property
    def config(self):
        """The resolved configuration, flotilla.v1.RunConfig."""
        return parse_text(messages()[0].RunConfig(), self.path / "config.textproto")

    @property
    def summary(self):
        """summary.json; None while the run has none."""
        path = self.path / "summary.json"
        return read_json(path) if path.exists() else None

    def rows(self):
        """The lines of metrics.jsonl, each {name: number}, in their order. A line that is cut off, as the last one of a
        run that trains may be, is left out."""
        return [{name: value for name, value in row.items() if _is_number(value)} for row in read_rows(self.path / "metrics.jsonl")]

    def metrics(self):
        """{name: [lines] float64}, NaN where a line does not have it: evaluations have lines of their own."""
        rows = self.rows()
        columns = {}
        for i, row in enumerate(rows):
            for name, value in row.items():
                if name not in columns:
                    columns[name] = np.full(len(rows), math.nan)
                columns[name][i] = value
        return columns

    def evaluations(self):
        """Those of the run itself and those of `flotilla evaluate --follow`, each {name: number} by the names of
        metrics.jsonl and a "source", "run" or "follow"; of the latter, "checkpoint" is its name. By global_step."""
        own = [row | {"source": "run"} for row in self.rows() if "eval/mean_return" in row]
        followed = []
        for row in read_rows(self.path / "evaluations.jsonl"):
            if isinstance(row.get("checkpoint"), str):
                numbers = {name: value for name, value in row.items() if _is_number(value)}
                followed.append(numbers | {"checkpoint": row["checkpoint"], "source": "follow"})
        return sorted(own + followed, key=lambda row: row["global_step"])

    def checkpoints(self):
        """Folders of the checkpoints that there are, the oldest first."""
        return sorted((self.path / "checkpoints").glob("step_*"))

    def load(self, checkpoint="latest", **how):
        """Its policy; see flotilla.load."""
        from flotilla.policy import Policy

        return Policy.load(self.path, checkpoint, **how)

    def __repr__(self):
        return f"flotilla.Run({os.fspath(self.path)!r})"


def read_rows(path):
    """The whole lines of a file, objects with a global_step; none if there is no file."""
    rows = []
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    row = json.loads(line) if len(line) <= LONGEST_LINE else None
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, dict) and _is_number(row.get("global_step")):
                    rows.append(row)
    except FileNotFoundError:
        return rows
    except OSError as error:
        raise Error(f"cannot read {error.filename}: {error.strerror}") from None
    return rows


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
