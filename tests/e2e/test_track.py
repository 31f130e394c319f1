"""flotilla train --track: what trackers have afterwards is what metrics.jsonl says,
and nothing of theirs can hold a run up."""

import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time

import pytest

from harness import SOURCE, read_jsonl, summary

sys.path.insert(0, str(SOURCE / "launcher" / "python"))
from flotilla_watch import track  # noqa: E402
from flotilla_watch.config_text import flatten  # noqa: E402
from flotilla_watch.metrics_tail import MetricsTail  # noqa: E402
from flotilla_watch.trackers import TRACKERS, mlflow_name  # noqa: E402

SHORT = ["cartpole_fast", "--steps=40000", "--set=evaluation.every_updates=1000000"]
# Leaves the cores to the trackers: an update in 20 ms, most of which is slept.
LONG = [
    "sleep_scaling", "--set=env.options.sleep.step_ms=0.2", "--set=env.num_envs=2", "--set=env.num_workers=1",
    "--set=metrics.every_updates=20", "--steps=1000000000", "--set=evaluation.every_updates=0",
]  # fmt: skip
METRIC = "losses/entropy"


def environment(folder, **more):
    """Everything stays in the test's folder."""
    return {
        "WANDB_MODE": "offline", "TRACKIO_DIR": str(folder / "trackio"), "TENSORBOARD_LOGDIR": str(folder / "boards"),
        "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true", "HOME": str(folder),
        "MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false",
    } | more  # fmt: skip


@pytest.fixture
def tracked(sandbox):
    sandbox.env |= environment(sandbox.folder)
    return sandbox


def written(job):
    return [(row["global_step"], row[METRIC]) for row in read_jsonl(job.run_dir / "metrics.jsonl") if row.get(METRIC) is not None]


# ---- What each tracker has: (tags and configuration, points of METRIC)


def wandb_records(path):
    """W&B keeps LevelDB's log format: blocks of 32 KiB, records in pieces."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0:
            at += 32768 - at % 32768
            continue
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # all of it, or its last piece
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def of_wandb(folder, run_dir):
    points, about = [], None
    for path in sorted(run_dir.glob("wandb/offline-run-*/*.wandb")):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "run" and about is None:
                config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
                about = (record.run.project, record.run.run_group, list(record.run.tags), config)
            if record.WhichOneof("record_type") == "history":
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                if METRIC in row:
                    points.append((row["global_step"], row[METRIC]))
    return about, points


def of_trackio(folder, run_dir):
    (path,) = (folder / "trackio").glob("study*.db")
    with sqlite3.connect(path) as database:
        rows = [(step, json.loads(text)) for step, text in database.execute("SELECT step, metrics FROM metrics ORDER BY id")]
        (config,) = [json.loads(row[0]) for row in database.execute("SELECT config FROM configs")]
    about = ("study", config.get("_Group"), config["tags"].split(","), config)
    return about, [(step, row[METRIC]) for step, row in rows if METRIC in row]


def of_mlflow(folder, run_dir):
    from mlflow import MlflowClient

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("study")
    (run,) = client.search_runs([experiment.experiment_id])
    points = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, METRIC)]
    assert run.info.status == "FINISHED"
    tags = [tag for tag in run.data.tags if run.data.tags[tag] == "true"]
    return ("study", run.data.tags["group"], tags, flat_numbers(run.data.params)), points


def flat_numbers(params):
    return {name: json.loads(value) if value.isdigit() else value for name, value in params.items()}


def of_tensorboard(folder, run_dir):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "boards" / "study" / "ppo" / run_dir.name), size_guidance={"scalars": 0})
    events.Reload()
    text = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    lines = dict(line.strip().split(": ", 1) for line in text.splitlines())
    about = ("study", "ppo", lines.pop("tags").split(", "), flat_numbers(lines))
    return about, [(event.step, event.value) for event in events.Scalars(METRIC)]


def of_neptune(folder, run_dir):
    """All parts of it: what one side-car wrote, and what those after it did."""
    fields, tags, ids, points = {}, set(), set(), []
    parts = sorted(run_dir.glob(".neptune/offline/run__*"), key=lambda part: json.loads((part / "metadata.json").read_text())["createdAt"])
    for part in parts:
        for file in sorted(part.glob("data-*.log"), key=lambda file: int(file.stem.split("-")[1])):
            for operation in (line["obj"] for line in read_jsonl(file)):
                path = "/".join(operation["path"])
                if operation["type"].startswith("Assign"):
                    fields[path] = operation["value"]
                    ids |= {operation["value"]} if path == "run_id" else set()
                elif path == "sys/tags":
                    tags |= set(operation["values"])
                elif path == METRIC:
                    points += [(point["step"], point["value"]) for point in operation["values"]]
    assert ids == {json.loads((run_dir / "trackers" / "neptune.json").read_text())["id"]}
    assert fields["sys/failed"] is False and fields["status"] == summary(run_dir)["status"]
    config = {name.removeprefix("config/"): value for name, value in fields.items() if name.startswith("config/")}
    return (fields["project"], fields["group"], list(tags), config), points


READERS = {"wandb": of_wandb, "trackio": of_trackio, "mlflow": of_mlflow, "neptune": of_neptune, "tensorboard": of_tensorboard}


def close(points, wanted):
    assert [step for step, _ in points] == [step for step, _ in wanted]
    assert [value for _, value in points] == pytest.approx([value for _, value in wanted], rel=1e-5, abs=1e-9)


def sent(job, name):
    """How far the tracker came in metrics.jsonl."""
    kept = job.run_dir / "trackers" / f"{name}.json"
    return json.loads(kept.read_text())["offset"] if kept.exists() else 0


def test_every_tracker_has_all_of_a_run(tracked):
    # So few rows a second that none is left out, however long the trackers take to load.
    few = "--set=metrics.every_updates=50"
    job = tracked.train(*LONG, few, f"--track={','.join(READERS)}", "--project=study", "--group=ppo", "--tags=a,b")
    # A minute after the run's end may be too short for a busy machine to load them all.
    job.poll(
        lambda: all(sent(job, name) > 0 for name in READERS) and len(written(job)) >= 5,
        "five rows, the first sent everywhere",
        timeout=300,
    )
    assert tracked.run("stop", "--run-dir", job.run_dir).returncode == 0
    assert job.succeeds()["status"] == "stopped"
    wanted = written(job)
    assert len(wanted) >= 5
    for name, read in READERS.items():
        (project, group, tags, config), points = read(tracked.folder, job.run_dir)
        assert (project, group, sorted(tags)) == ("study", "ppo", ["a", "b"]), name
        assert config["env.id"] == "Sleep" and config["rollout.length"] == 64, name
        close(points, wanted)
    assert "has not sent" not in job.output() and " ended (" not in job.output()


@pytest.mark.parametrize("name", ["mlflow", "neptune"])
def test_a_side_car_that_dies_is_started_again_and_catches_up(tracked, name):
    job = tracked.train(*LONG, f"--track={name}", "--project=study", "--group=ppo", "--tags=a")
    job.poll(lambda: sent(job, name) > 0, "the tracker's first rows")
    for pid in side_cars(tracked):
        os.kill(pid, signal.SIGKILL)
    job.poll(lambda: f"tracker {name} ended (signal 9" in job.output(), "the launcher says so")
    at = sent(job, name)
    job.poll(lambda: sent(job, name) > at, "more rows")
    tracked.run("stop", "--run-dir", job.run_dir)
    assert job.succeeds()["status"] == "stopped"
    _, points = READERS[name](tracked.folder, job.run_dir)
    assert sorted(set(points)) == sorted(written(job))


def side_cars(sandbox, name=""):
    return [pid for pid, line in sandbox.processes().items() if f"flotilla_watch track --tracker={name}" in line and "--run-dir" in line]


def test_side_cars_that_hang_or_are_refused_hold_nothing_up(tracked):
    tracked.env |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}
    job = tracked.train(*LONG, "--track=tensorboard,mlflow")
    (pid,) = job.poll(lambda: side_cars(tracked, "tensorboard"), "the side-car")
    os.kill(pid, signal.SIGSTOP)
    job.poll(lambda: "tracker tensorboard has sent nothing for 30s; training goes on" in job.output(), "the launcher says so")
    left_alone = "it is left alone now, but for a try every 10m and at the run's end; log: "
    job.poll(lambda: left_alone in job.output(), "the launcher gives up on the other")
    assert "tracker mlflow ended (exit 1): MlflowException: " in job.output() and "127.0.0.1" in job.output()
    job.await_more_updates(20)
    began = time.monotonic()
    assert tracked.run("stop", "--run-dir", job.run_dir).returncode == 0
    # The other is tried once more. A wait for the one that hangs would be a minute by itself.
    assert job.succeeds()["status"] == "stopped" and time.monotonic() - began < 60


def test_a_side_car_that_was_left_alone_sends_everything_at_the_runs_end(tracked):
    refuses = tracked.folder / "boards"
    refuses.write_text("")  # where its folder is to be
    job = tracked.train(*LONG, "--track=tensorboard", "--project=study", "--group=ppo", "--tags=a")
    job.poll(lambda: "left alone now" in job.output(), "the launcher gives up")
    refuses.unlink()
    job.await_update(120)  # six rows
    assert tracked.run("stop", "--run-dir", job.run_dir).returncode == 0
    assert job.succeeds()["status"] == "stopped"
    _, points = of_tensorboard(tracked.folder, job.run_dir)
    assert len(points) >= 5
    close(points, written(job))
    assert job.output().count("left alone now") == 1 and job.output().count("tracker tensorboard ended (exit 1)") == 4
    assert "has not sent" not in job.output()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_the_wait_for_a_side_car(tracked, number):
    job = tracked.train(*LONG, "--track=tensorboard")
    job.poll(lambda: sent(job, "tensorboard") > 0, "the tracker's first rows")
    (pid,) = side_cars(tracked, "tensorboard")
    os.kill(pid, signal.SIGSTOP)
    assert tracked.run("stop", "--run-dir", job.run_dir).returncode == 0
    job.poll(lambda: "tracker tensorboard still sends; Ctrl-C ends it" in job.output(), "the launcher waits for it")
    job.process.send_signal(number)
    # A signal that it does not hear leaves 57 s to wait; one that it hears, a kill and 3 s at most for the coordinator.
    assert job.succeeds(timeout=25)["status"] == "stopped"
    assert "tracker tensorboard has not sent everything (it was ended)" in job.output()


def test_a_resumed_run_goes_on_in_the_same_place(tracked):
    words = ["--track=mlflow", "--project=study", "--group=ppo", "--tags=a"]
    job = tracked.train(*LONG, *words, "--set=checkpoint.every_updates=200")
    job.await_update(300)
    job.poll(lambda: (job.run_dir / "checkpoints" / "latest").exists(), "a checkpoint")
    kept = job.run_dir / "trackers" / "mlflow.json"
    job.poll(lambda: kept.exists() and json.loads(kept.read_text())["update"] > 200, "rows after the checkpoint")
    job.process.kill()
    job.process.wait()
    tracked.await_no_process()
    before = json.loads(kept.read_text())
    saved = json.loads((job.run_dir / "checkpoints" / "latest" / "progress.json").read_text())["update"]
    goes_back = read_jsonl(job.run_dir / "metrics.jsonl")[-1]["update"] > saved  # but for a kill right after a checkpoint
    job = tracked.train("--resume", *words, f"--steps={read_jsonl(job.run_dir / 'metrics.jsonl')[-1]['global_step'] + 20_000}")
    job.succeeds()
    assert any(job.run_dir.glob("metrics.jsonl.after_update_*")) == goes_back
    after = json.loads(kept.read_text())
    assert after["id"] == before["id"] and after["update"] == read_jsonl(job.run_dir / "metrics.jsonl")[-1]["update"]
    _, points = of_mlflow(tracked.folder, job.run_dir)
    missing = set(written(job)) - set(points)
    assert not missing
    # What was there before the checkpoint was not sent again.
    first = written(job)[0]
    assert points.count(first) == 1


def test_a_package_that_is_missing_is_named_before_anything_starts(sandbox):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", sandbox.folder / "bare"], check=True)
    python = sandbox.folder / "bare" / "bin" / "python"
    for name, package in [("wandb", "wandb"), ("trackio", "trackio"), ("mlflow", "mlflow"), ("neptune", "neptune"), ("tensorboard", "tensorboard")]:
        refused = sandbox.run("train", *SHORT, f"--track={name}", "--run-dir=run", env={"FLOTILLA_PYTHON": str(python)})
        assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
        assert f"--track {name}: " in refused.stderr and f"-m pip install {package}" in refused.stderr
    assert not (sandbox.folder / "run").exists()


@pytest.mark.parametrize(
    "words, says",
    [
        (["--track=wandbb"], '--track is "wandbb"; expected one of wandb, trackio, mlflow, neptune, tensorboard; did you mean "wandb"?'),
        (["--track=Neptune"], 'expected one of wandb, trackio, mlflow, neptune, tensorboard; did you mean "neptune"?'),
        (["--project=p"], "name it with --track"),
        (["--track=tensorboard", "--group=../up"], '--group is "../up"; expected a name without /'),
    ],
)
def test_bad_input_is_one_line(sandbox, words, says):
    refused = sandbox.run("train", *SHORT, *words, "--run-dir=run")
    assert refused.returncode == 2 and says in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert not (sandbox.folder / "run").exists()


# ---- The side-car by itself


class Fake(track.TRACKERS["tensorboard"]):
    settles = 0.0

    def __init__(self):
        self.rows, self.refuses = [], False

    def send(self, rows):
        if self.refuses:
            raise ConnectionError("no")
        self.rows += [row["update"] for row in rows]


class Stage:
    """A run's folder and side-cars that are started on it again and again."""

    def __init__(self, folder):
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.tracker = Fake()
        self.start()

    def start(self):
        run = track.Run(track.parse(["--tracker=tensorboard", f"--run-dir={self.folder}"]))
        self.car = track.SideCar(run, self.tracker, track.Position(self.folder / "trackers" / "fake.json"))

    def write(self, *updates):
        with open(self.metrics, "a") as file:
            file.write("".join(json.dumps({"global_step": 10 * u, "update": u, "x": None}) + "\n" for u in updates))

    def set_aside(self, update):
        lines = self.metrics.read_text().splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["update"] <= update]
        (self.folder / f"metrics.jsonl.after_update_{update}").write_text("".join(lines[len(kept) :]))
        (self.folder / "new").write_text("".join(kept))
        (self.folder / "new").rename(self.metrics)


def test_of_hundreds_of_updates_a_second_two_are_shown_and_every_evaluation(sandbox):
    job = sandbox.train(
        "cartpole_fast", "--steps=400000", "--set=env.num_envs=8", "--set=evaluation.every_updates=300", "--set=evaluation.episodes=5",
        "--set=evaluation.num_envs=5", "--set=evaluation.min_training_return=0", "--set=evaluation.stop_return=1e9",
    )  # fmt: skip
    job.succeeds()
    written = read_jsonl(job.run_dir / "metrics.jsonl")
    shown, _ = MetricsTail(job.run_dir / "metrics.jsonl").poll()

    def updates(rows, named):
        return [int(row["update"]) for row in rows if named in row]

    assert len(updates(written, "eval/mean_return")) >= 3
    assert updates(shown, "eval/mean_return") == updates(written, "eval/mean_return")
    some, all_of_them = updates(shown, "charts/SPS"), updates(written, "charts/SPS")
    seconds = max(row["wall_seconds"] for row in written)
    assert len(all_of_them) > 1000 and some[:300] == all_of_them[:300]
    assert 300 <= len(some) <= 300 + 2 * seconds + 1 and some == sorted(set(some))
    # The newest is told once nothing more comes, evaluations after it or not.
    tail = MetricsTail(job.run_dir / "metrics.jsonl")
    told = updates(tail.poll()[0], "charts/SPS") + updates(tail.poll()[0], "charts/SPS")
    assert told[-1] == all_of_them[-1] and tail.poll() == ([], False)
    # What is slow enough is shown whole.
    slow = job.run_dir / "slow.jsonl"
    slow.write_text("".join(json.dumps(row | {"wall_seconds": row["update"] / 1.9}) + "\n" for row in written))
    assert updates(MetricsTail(slow).poll()[0], "charts/SPS") == all_of_them


def test_rows_are_sent_once_over_restarts(tmp_path):
    stage = Stage(tmp_path)
    stage.car.step()  # there is nothing yet
    stage.write(1, 2)
    stage.car.step()
    stage.start()
    stage.write(3)
    with open(stage.metrics, "a") as file:
        file.write('{"global_step": 40, "upd')
    stage.car.step()
    stage.start()
    with open(stage.metrics, "a") as file:
        file.write('ate": 4}\n')
    stage.car.step()
    assert stage.tracker.rows == [1, 2, 3, 4]


def test_rows_that_were_not_taken_are_sent_again(tmp_path):
    stage = Stage(tmp_path)
    stage.write(1, 2)
    stage.car.step()
    stage.write(3)
    stage.tracker.refuses = True
    with pytest.raises(ConnectionError):
        stage.car.step()
    stage.tracker.refuses = False
    stage.start()
    stage.car.step()
    assert stage.tracker.rows == [1, 2, 3]


@pytest.mark.parametrize("restarted", [False, True])
def test_after_a_resume_only_what_is_new_is_sent(tmp_path, restarted):
    stage = Stage(tmp_path)
    stage.write(1, 2, 3, 4, 5)
    stage.car.step()
    stage.set_aside(3)
    stage.write(4, 5, 6)
    if restarted:  # and it says that it lives before it has looked
        stage.start()
        stage.car.position.sign()
        stage.start()
    stage.car.step()
    stage.write(7)
    stage.car.step()
    assert stage.tracker.rows == [1, 2, 3, 4, 5, 4, 5, 6, 7]


def test_what_a_tracker_only_queued_is_not_counted_as_sent(tmp_path):
    stage = Stage(tmp_path)
    stage.tracker.settles = 1000.0
    stage.write(1)
    stage.car.step()
    stage.start()
    stage.car.step()
    assert stage.tracker.rows == [1, 1]
    stage.tracker.close = lambda status: None
    stage.car.finish()
    stage.start()
    stage.car.step()
    assert stage.tracker.rows == [1, 1]


def test_runs_whose_folders_have_one_name_share_no_events(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGDIR", str(tmp_path / "boards"))

    def opened(run_dir, known_id=""):
        tracker = TRACKERS["tensorboard"]()
        place = tracker.open(track.Run(track.parse(["--tracker=tensorboard", f"--run-dir={run_dir}"])), known_id)
        tracker.close("")
        return place

    first, second = opened(tmp_path / "a" / "seed1"), opened(tmp_path / "b" / "seed1")
    assert first == str(tmp_path / "boards" / "flotilla" / "seed1") and second == f"{first}-2"
    assert opened(tmp_path / "b" / "seed1", second) == second
    assert opened(tmp_path / "c" / "seed1") == f"{first}-3"


def test_mlflow_is_sent_names_that_it_takes():
    from mlflow.utils.validation import _validate_metric_name

    names = ["charts/episodic_return", "env/a=b, (c)/d", "policy/é:-. x", "env/100%"]
    for name in names:
        _validate_metric_name(mlflow_name(name))
    assert [mlflow_name(name) for name in names] == ["charts/episodic_return", "env/a_b_ _c_.d", "policy/é:-. x", "env/100_"]


def test_a_configuration_is_flattened():
    text = 'seed: 5 # why\nenv { id: "a \\"b\\" {" num_envs: 8 }\nmodel { hidden: [64, 32] share: true }\nleaf { x: A } leaf { x: B }'
    assert flatten(text) == {
        "seed": 5, "env.id": 'a "b" {', "env.num_envs": 8, "model.hidden": [64, 32], "model.share": True, "leaf.x": ["A", "B"],
    }  # fmt: skip
    # As protobuf writes what is not ASCII.
    assert flatten(r'a: "\303\251t\303\251\n1\t\"\\\0019\'" b: "\377" c: "é"') == {"a": "été\n1\t\"\\\x019'", "b": "\ufffd", "c": "é"}
    assert flatten("") == {} and flatten("a: ") == {} and flatten("}}} \x00") == {}
