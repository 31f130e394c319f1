"""A checkpoint's files, each against its sum: learner/checkpoint/checkpoint.h says what they are."""

import hashlib
import json
import math
import pathlib
import struct

import numpy as np

from flotilla.errors import Error
from flotilla.run import Run, messages, parse_text, read_json

WEIGHTS, STATE, CONFIG, PROGRESS, SUMS = "weights.safetensors", "state.safetensors", "config.textproto", "progress.json", "SHA256SUMS"
ENVIRONMENT = "environment.textproto"
DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?", "F16": "<f2"}
MOST_HEADER = 100_000_000  # the format's own limit
# Of a leaf, more than any network of a checkpoint takes: numbers, those that are counted or done, and frames.
MOST_ELEMENTS, MOST_CHOICES, MOST_STACK = 1 << 28, 1 << 16, 256


def find(path, checkpoint="latest"):
    """The folder of the checkpoint that a run's folder, or a checkpoint's own, means."""
    path = pathlib.Path(path)
    if (path / WEIGHTS).is_file():
        return path.resolve()  # a run moves checkpoints/latest while its files are read
    Run(path)  # says what it is, if it is no run
    folder = path / "checkpoints" / checkpoint
    if (folder / WEIGHTS).is_file():
        return folder.resolve()
    there = ", ".join(sorted(p.name for p in (path / "checkpoints").glob("*") if (p / WEIGHTS).is_file()))
    raise Error(f'the run in {path} has no checkpoint "{checkpoint}"' + (f"; it has {there}" if there else " yet"))


def parse_safetensors(data, path):
    """{name: array} of a whole file's bytes."""

    def damaged(how):
        return Error(f"{path} is not in safetensors format: {how}; use another checkpoint of the run")

    if len(data) < 8:
        raise damaged("no header")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(MOST_HEADER, len(data) - 8):
        raise damaged(f"a header of {length} bytes in a file of {len(data)}")
    try:
        header = json.loads(data[8 : 8 + length])
        tensors = {}
        for name, about in header.items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            shape, dtype = [int(d) for d in about["shape"]], np.dtype(DTYPES[about["dtype"]])
            if not 0 <= begin <= end <= len(data) - 8 - length or end - begin != dtype.itemsize * math.prod(shape):
                raise damaged(f'tensor "{name}" lies in bytes [{begin}, {end}) of {len(data) - 8 - length}')
            tensors[name] = np.frombuffer(data, dtype, math.prod(shape), 8 + length + begin).reshape(shape)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise error if isinstance(error, Error) else damaged(f"its header is not understood ({error!r})") from None
    return tensors


def format_safetensors(tensors):
    """The same back as bytes."""
    words = {np.dtype(dtype): word for word, dtype in DTYPES.items()}
    header, offset, parts = {}, 0, []
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        header[name] = {"dtype": words[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
        parts.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def check_spec(spec, folder):
    """That a network can be made for it: whoever wrote it. The learner has checked its own."""
    seen = {leaf.path: leaf for leaf in spec.observation}
    for what, leaves in (("observation", spec.observation), ("action", spec.action)):
        if not leaves or len({leaf.path for leaf in leaves}) < len(leaves):
            raise Error(f"the {ENVIRONMENT} of {folder} has {len(leaves)} leaves of an {what}, want one or more with distinct paths")
        for leaf in leaves:
            n = math.prod(leaf.shape)
            fits = min(leaf.shape, default=1) >= 1 and n <= MOST_ELEMENTS and leaf.dtype in (1, 2, 3) and leaf.frame_stack <= MOST_STACK
            counts = list(leaf.num_values_each) or [leaf.num_values]
            fits &= len(leaf.num_values_each) in (0, n) and min(counts) >= 0 and max(counts) * n <= MOST_ELEMENTS
            fits &= n <= MOST_CHOICES or (what == "observation" and max(counts) == 0)
            fits &= all(len(bounds) in (0, 1, n) for bounds in (leaf.low, leaf.high))
            fits &= what == "observation" or leaf.dtype == 3 or min(counts) >= 1
            mask = leaf.mask_path or (spec.action_mask_path if len(leaves) == 1 else "")
            if what == "action" and mask:
                values = sum(leaf.num_values_each) or leaf.num_values * n
                fits &= values > 0 and mask in seen and math.prod(seen[mask].shape) == values and seen[mask].dtype == 1
            if not fits:
                gist = " ".join(str(leaf).split())[:120]
                raise Error(f'the {ENVIRONMENT} of {folder} has an {what} "{leaf.path}" that no environment of a learner has ({gist})')


class Checkpoint:
    """weights and state: {name: array}; config: RunConfig; spec: the environment's EnvSpec; progress: {name: value}.
    Raises Error, naming the file, for what is not what was written."""

    def __init__(self, path, checkpoint="latest", spec=None):
        """`spec`: where it is known from elsewhere."""
        self.folder = find(path, checkpoint)
        self._sums = self._read_sums()
        self.weights = self._tensors(WEIGHTS)
        self.state = self._tensors(STATE)
        self._bytes(CONFIG)
        self.config = parse_text(messages()[0].RunConfig(), self.folder / CONFIG)
        self._bytes(PROGRESS)
        self.progress = read_json(self.folder / PROGRESS)
        self.spec = spec or self._spec()
        check_spec(self.spec, self.folder)

    @property
    def step(self):
        return int(self.progress.get("global_step", 0))

    @property
    def weights_sha256(self):
        return self._sums[WEIGHTS]

    @property
    def run_folder(self):
        """Of the run that it lies in; None: in none, and what is above is somebody else's."""
        return self.folder.parent.parent if self.folder.parent.name == "checkpoints" else None

    def kept_file(self, name):
        """A file that the run keeps: beside the checkpoint, or in the run's folder. None if there is none."""
        for folder in (self.folder, self.run_folder):
            if folder and (folder / name).is_file():
                return folder / name
        return None

    def _read_sums(self):
        try:
            lines = (self.folder / SUMS).read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            raise Error(f"{self.folder} has no {SUMS}, so it is no whole checkpoint; use another one of the run") from None
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}

    def _bytes(self, name):
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise Error(f"cannot read {path}: {error.strerror}; use another checkpoint of the run") from None
        if hashlib.sha256(data).hexdigest() != self._sums.get(name):
            raise Error(f"{path} is not what was written: its sha256 is not that in {SUMS}; use another checkpoint of the run")
        return data

    def _tensors(self, name):
        return parse_safetensors(self._bytes(name), self.folder / name)

    def _spec(self):
        path = self.kept_file(ENVIRONMENT)
        if path is None:
            raise Error(
                f"there is no {ENVIRONMENT} with {self.folder}, which says what the policy sees and does: runs before this version "
                "have none, and a checkpoint that was moved needs it beside it; resume the run for one update, which writes it"
            )
        return parse_text(messages()[1].EnvSpec(), path)
