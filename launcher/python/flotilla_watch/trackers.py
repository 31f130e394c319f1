"""Where a run's metrics may go besides its folder. Each of these takes rows of
numbers by name, in their order, and knows a run again by the id that it gave."""

import importlib
import importlib.util
import itertools
import os
import pathlib
import re
import time
import uuid


class Tracker:
    """open() returns the id under which the run is known there; with an id, it goes
    on with that one. What send() took is there for good `settles` seconds later.

    Whatever goes wrong is raised."""

    modules = ()  # that it imports
    package = ""  # that pip installs
    settles = 0.0

    def open(self, run, known_id):
        raise NotImplementedError

    def send(self, rows):
        raise NotImplementedError

    def close(self, status):
        """`status`: of the run's summary, "" if it has none."""


def two_levels(name):
    """For those to whom a name is a path: one metric cannot be a folder of others."""
    area, *rest = name.split("/", 1)
    return "/".join([area] + [part.replace("/", ".") for part in rest])


def mlflow_name(name):
    """It refuses others, and with one of them all that was sent."""
    return re.sub(r"[^\w.\- :/]", "_", two_levels(name))


class Wandb(Tracker):
    """Weights & Biases, with its own settings: WANDB_MODE=offline, WANDB_API_KEY."""

    modules, package, settles = ("wandb",), "wandb", 5.0

    def open(self, run, known_id):
        import wandb

        settings = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False)
        self._run = wandb.init(
            project=run.project, group=run.group or None, tags=run.tags or None, name=run.name, config=run.config,
            id=known_id or uuid.uuid4().hex[:12], resume="allow", dir=run.folder, settings=settings,
        )  # fmt: skip
        # Rows of evaluations come later than those of updates after theirs.
        self._run.define_metric("global_step", hidden=True)
        self._run.define_metric("*", step_metric="global_step")
        return self._run.id

    def send(self, rows):
        for row in rows:
            self._run.log(row)

    def close(self, status):
        self._run.finish(exit_code=1 if status == "failed" else 0)


class Trackio(Tracker):
    """trackio, in its local database (TRACKIO_DIR) or TRACKIO_SPACE_ID's space."""

    modules, package, settles = ("trackio",), "trackio", 5.0

    def open(self, run, known_id):
        import trackio

        # It knows runs by their names.
        name = known_id or f"{run.name}-{uuid.uuid4().hex[:6]}"
        config = run.config | {"tags": ",".join(run.tags)} if run.tags else run.config
        self._run = trackio.init(
            project=run.project, name=name, group=run.group or None, config=config, resume="allow", embed=False,
            auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip
        return name

    def send(self, rows):
        for row in rows:
            self._run.log(row, step=int(row["global_step"]))

    def close(self, status):
        self._run.finish()


class Mlflow(Tracker):
    """MLflow, at MLFLOW_TRACKING_URI; without one in ./mlflow.db, or ./mlruns where
    only mlflow-skinny is installed, which has no databases."""

    modules, package = ("mlflow",), "mlflow"
    MOST = 1000  # metrics in a call, by MLflow's own limit
    MOST_PARAMS = 100

    def open(self, run, known_id):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        uri = os.environ.get("MLFLOW_TRACKING_URI") or (
            "sqlite:///mlflow.db" if importlib.util.find_spec("sqlalchemy") else pathlib.Path("mlruns").absolute().as_uri()
        )
        self._metric = Metric
        self._client = MlflowClient(tracking_uri=uri)
        if known_id:
            self._id = known_id
            self._client.update_run(known_id, status="RUNNING")
            return known_id
        experiment = self._client.get_experiment_by_name(run.project)
        number = experiment.experiment_id if experiment else self._client.create_experiment(run.project)
        tags = {tag: "true" for tag in run.tags} | ({"group": run.group} if run.group else {})
        self._id = self._client.create_run(number, run_name=run.name, tags=tags).info.run_id
        params = [Param(name, str(value)[:6000]) for name, value in run.config.items()]
        for i in range(0, len(params), self.MOST_PARAMS):
            self._client.log_batch(self._id, params=params[i : i + self.MOST_PARAMS])
        return self._id

    def send(self, rows):
        now = int(time.time() * 1000)
        metrics = [
            self._metric(mlflow_name(name), value, now, int(row["global_step"]))
            for row in rows
            for name, value in row.items()
            if name != "global_step"
        ]
        for i in range(0, len(metrics), self.MOST):
            self._client.log_batch(self._id, metrics=metrics[i : i + self.MOST])

    def close(self, status):
        ended = {"failed": "FAILED", "preempted": "KILLED", "": "KILLED"}.get(status, "FINISHED")
        self._client.set_terminated(self._id, status=ended)


class Neptune(Tracker):
    """Neptune's client in its offline mode, which writes NEPTUNE_DATA_DIRECTORY or
    RUN/.neptune: the hosted service closed on 2026-03-05. NEPTUNE_MODE,
    NEPTUNE_PROJECT and NEPTUNE_API_TOKEN name an installation that still runs.

    Offline it cannot go on with a run: each start of the side-car is a part of its
    own there, and `run_id` says which parts belong together."""

    modules, package = ("neptune",), "neptune"

    def open(self, run, known_id):
        import neptune

        os.environ.setdefault("NEPTUNE_DATA_DIRECTORY", str(pathlib.Path(run.folder) / ".neptune"))
        run_id = known_id or uuid.uuid4().hex
        self._run = neptune.init_run(
            mode=os.environ.get("NEPTUNE_MODE") or "offline", custom_run_id=run_id, name=run.name, tags=run.tags,
            capture_stdout=False, capture_stderr=False, capture_traceback=False, capture_hardware_metrics=False,
            git_ref=False, source_files=[],
        )  # fmt: skip
        about = {"run_id": run_id, "project": run.project, "group": run.group}
        for name, value in about.items():
            self._run[name] = value
        for name, value in run.config.items():
            self._run[f"config/{name}"] = str(value) if isinstance(value, list) else value
        self._run.wait(disk_only=True)
        return run_id

    def send(self, rows):
        series = {}  # name: (values, steps)
        for row in rows:
            for name, value in row.items():
                if name != "global_step":
                    values, steps = series.setdefault(two_levels(name), ([], []))
                    values.append(value)
                    steps.append(row["global_step"])
        for name, (values, steps) in series.items():
            self._run[name].extend(values, steps=steps)
        self._run.wait(disk_only=True)

    def close(self, status):
        self._run["status"] = status
        self._run["sys/failed"] = status == "failed"
        self._run.stop()


class Tensorboard(Tracker):
    """Event files of several projects in one place, TENSORBOARD_LOGDIR or
    ./tensorboard: PROJECT/GROUP/RUN. A run's own are in its folder in any case."""

    modules, package = ("tensorboard.summary.writer.event_file_writer", "tensorboard.compat.proto.event_pb2"), "tensorboard"

    def open(self, run, known_id):
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        root = pathlib.Path(os.environ.get("TENSORBOARD_LOGDIR") or "tensorboard")
        if known_id:
            folder = pathlib.Path(known_id)
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = self._new_folder(root.absolute() / run.project / run.group, run.name)
        self._writer = EventFileWriter(str(folder))
        if not known_id:
            text = "\n".join([f"    tags: {', '.join(run.tags)}"] * bool(run.tags) + [f"    {k}: {v}" for k, v in run.config.items()])
            tensor = tensor_pb2.TensorProto(dtype=7, string_val=[text.encode()])
            tensor.tensor_shape.dim.add(size=1)
            value = summary_pb2.Summary.Value(tag="config/text_summary", tensor=tensor)
            value.metadata.plugin_data.plugin_name = "text"
            self._writer.add_event(self._event(wall_time=time.time(), step=0, summary=self._summary(value=[value])))
        return str(folder)

    @staticmethod
    def _new_folder(place, name):
        """`name` is the last part of the run's folder alone, which runs elsewhere may have, too."""
        for number in itertools.count(1):
            folder = place / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir(parents=True)
                return folder
            except FileExistsError:
                pass

    def send(self, rows):
        for row in rows:
            values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "global_step"]
            event = self._event(wall_time=time.time(), step=int(row["global_step"]), summary=self._summary(value=values))
            self._writer.add_event(event)
        self._writer.flush()

    def close(self, status):
        self._writer.close()


TRACKERS = {"wandb": Wandb, "trackio": Trackio, "mlflow": Mlflow, "neptune": Neptune, "tensorboard": Tensorboard}


def missing(name, python):
    """What this Python lacks for a tracker, and the command that mends it; "" if it
    has it."""
    tracker = TRACKERS[name]
    for module in tracker.modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            lacks = error.name or module
            return f"--track {name}: {python} has no {lacks}; install it: {python} -m pip install {tracker.package} (or set FLOTILLA_PYTHON to a Python that has it)"
        except Exception as error:  # noqa: BLE001: whatever a package does when it is imported
            return f"--track {name}: {python} cannot import {module}: {' '.join(str(error).split())[:300]}"
    return ""
