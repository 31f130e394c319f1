"""deploy/slurm on a real Slurm: two nodes train, or search, are warned, save, requeue and go on."""

import json
import os
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, SOURCE, Sandbox, poll, read_jsonl, summary, told_status, training_lines  # noqa: E402
from slurm_cluster import Cluster  # noqa: E402

UPDATE = 2 * 4 * 128  # environment steps of an update: two learners, cartpole_ppo


@pytest.fixture
def cluster(tmp_path):
    sandbox = Sandbox(tmp_path)
    try:
        cluster = Cluster(sandbox)
        cluster.env |= {"FLOTILLA": str(BIN / "flotilla"), "LEARNERS_PER_NODE": "1"}
        yield cluster
    finally:
        sandbox.close()


def await_lines(cluster, run, count):
    path = run / "metrics.jsonl"

    def enough():
        return path.exists() and len(training_lines(run)) >= count

    poll(enough, f"{count} updates\n{cluster.logs()}")


def await_state(cluster, number, *states, **more):
    def reached():
        job = cluster.job(number)
        if job["JobState"] in states and all(job[k] == v for k, v in more.items()):
            return job
        assert job["JobState"] not in ("FAILED", "NODE_FAIL"), f"{job}\n{cluster.logs()}"
        return None

    return poll(reached, f"{states} {more}", 240, interval=0.1)


def started_in(folder, fits, variable=b""):
    """Processes that were started in `folder` with such words, and with that variable."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            there = (process / "cwd").resolve() == folder and variable in (process / "environ").read_bytes().split(b"\0") + [b""]
        except OSError:
            continue  # it has ended
        if there and fits(words):
            found.append(int(process.name))
    return found


def told(cluster, run):
    """What grpcurl says of the job; nothing while no coordinator of it listens."""
    try:
        address, token = ((run / name).read_text().strip() for name in ("coordinator.address", "token"))
        return told_status(address, token=token, timeout=10)
    except (AssertionError, FileNotFoundError):
        return {}


def test_a_warned_job_saves_requeues_once_and_goes_on(cluster, tmp_path):
    number = cluster.submit(
        SOURCE / "deploy" / "slurm" / "train.sbatch", "cartpole_ppo", "--set", "total_env_steps=1000000000",
        "--set", "evaluation.every_updates=0",
    )  # fmt: skip
    run = tmp_path / "runs" / f"flotilla-{number}"
    await_lines(cluster, run, 5)
    first = poll(lambda: told(cluster, run), f"its status\n{cluster.logs()}")
    assert first["state"] == "ACTIVE" and first["world_size"] == 2, first
    assert {learner["node_rank"] for learner in first["learner"]} == {0, 1}, first
    # As --signal=USR1@90 does: to every process of the job's steps.
    cluster.ask("scancel", "--signal=USR1", str(number))
    await_state(cluster, number, "PENDING", Restarts="1")

    saved = summary(run)
    assert saved["status"] == "preempted" and saved["world_size"] == 2, saved
    assert len(saved["parameters_sha256"]) == 2 and len(set(saved["parameters_sha256"])) == 1
    assert saved["restarts"]["learner"] == 0 and saved["restarts"].get("env_worker", 0) == 0, saved
    before = training_lines(run)
    assert before[-1]["update"] == saved["updates"]
    checkpoint = run / "checkpoints" / "latest"
    assert checkpoint.resolve().name == f"step_{saved['global_steps']:012d}"
    assert json.loads((checkpoint / "progress.json").read_text())["update"] in (saved["updates"], str(saved["updates"]))
    assert "the coordinator died" not in cluster.output(), cluster.output()

    def goes_on():
        status = told(cluster, run)
        return status if int(status.get("update", 0)) > saved["updates"] else None

    second = poll(goes_on, f"the job to go on\n{cluster.logs()}")
    assert second["epoch"] != first["epoch"] and second["run_id"] == first["run_id"], second
    updates = cluster.sandbox.completes_at(run, int(second["update"]) + 1000, UPDATE)
    await_state(cluster, number, "COMPLETED", Restarts="1", ExitCode="0:0")
    result = summary(run)
    assert result["status"] == "completed" and result["global_steps"] == updates * UPDATE, result
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    lines = training_lines(run)
    assert lines[: len(before)] == before, "what was reported before was changed"
    assert [line["update"] for line in lines] == list(range(1, updates + 1))
    assert [line["global_step"] for line in lines] == [UPDATE * u for u in range(1, updates + 1)]
    assert result["episodes"] > saved["episodes"]
    assert cluster.output().count(f"requeued Slurm job {number}") == 1, cluster.output()


def test_the_first_launcher_waits_for_its_own_warning(cluster, tmp_path):
    number = cluster.submit(
        SOURCE / "deploy" / "slurm" / "train.sbatch", "cartpole_ppo", "--set", "total_env_steps=1000000000",
    )  # fmt: skip
    run = tmp_path / "runs" / f"flotilla-{number}"
    await_lines(cluster, run, 5)

    def second():
        # What it has forked, and has yet to be another program, looks like it.
        found = started_in(tmp_path, lambda words: words[0].endswith(b"/flotilla") and words[1] == b"train", b"SLURM_NODEID=1")
        return found if len(found) == 1 else None

    os.kill(poll(second, "the second node's launcher")[0], signal.SIGUSR1)
    poll(lambda: (run / "summary.json").exists(), f"the run to be saved\n{cluster.logs()}")
    assert summary(run)["status"] == "preempted"
    cluster.ask("scancel", "--signal=USR1", str(number))
    await_state(cluster, number, "PENDING", Restarts="1")
    cluster.ask("scancel", str(number))


def test_scancel_saves_and_ends_the_job(cluster, tmp_path):
    number = cluster.submit(
        SOURCE / "deploy" / "slurm" / "train.sbatch", "cartpole_ppo", "--set", "total_env_steps=1000000000",
    )  # fmt: skip
    run = tmp_path / "runs" / f"flotilla-{number}"
    await_lines(cluster, run, 5)
    cluster.ask("scancel", str(number))
    await_state(cluster, number, "CANCELLED", Restarts="0")
    saved = summary(run)
    assert saved["status"] == "preempted", saved
    assert "the coordinator died" not in cluster.output(), cluster.output()
    assert (run / "checkpoints" / "latest").resolve().name == f"step_{saved['global_steps']:012d}"
    assert "requeued" not in cluster.output()


def test_env_hosts_join_the_learners_of_a_heterogeneous_job(cluster, tmp_path):
    number = cluster.submit(
        SOURCE / "deploy" / "slurm" / "train_with_env_hosts.sbatch", "cartpole_ppo", "--set",
        "total_env_steps=1000000000", options=[":", "--nodes=1", "--gres=none"], ENV_SERVERS="2",
    )  # fmt: skip
    run = tmp_path / "runs" / f"flotilla-{number}"
    await_lines(cluster, run, 1)

    def both():
        status = told(cluster, run)
        return status if len(status.get("env_server", [])) == 2 else None

    status = poll(both, f"two env servers\n{cluster.logs()}", interval=0.1)
    assert {learner["state"] for learner in status["learner"]} == {"alive"}
    stopped = cluster.sandbox.run("stop", "--run-dir", run)
    assert stopped.returncode == 0, stopped.stderr
    await_state(cluster, number, "COMPLETED", ExitCode="0:0")
    assert summary(run)["status"] == "stopped"


SWEEP = """
base: "cartpole_fast"
set: "evaluation.every_updates=1000000"
set: "evaluation.stop_return=1e9"
metric { name: "charts/episodic_return" }
parameter { field: "optimizer.learning_rate" log_uniform { low: 3e-4 high: 1e-2 } }
budget { steps: 400000 }
trials: 4
"""


def test_a_sweep_goes_back_into_the_queue_though_a_launcher_died_before(cluster, tmp_path):
    (tmp_path / "lr.textproto").write_text(SWEEP.replace("400000", "1000000000"))
    number = cluster.submit(SOURCE / "deploy" / "slurm" / "sweep.sbatch", "lr.textproto")
    journal = tmp_path / "sweeps" / "lr" / "journal.jsonl"

    def begun():
        events = read_jsonl(journal) if journal.exists() else []
        return len({event["by"] for event in events if event["event"] == "begin"}) == 2

    poll(begun, f"a trial on each node\n{cluster.logs()}")

    def launchers():
        # What one has forked, and has yet to be another program, looks like it.
        found = started_in(tmp_path, lambda words: any(b"flotilla_sweep" in word for word in words[:3]))
        return found if len(found) == 2 else None

    first, _ = poll(launchers, f"two launchers\n{cluster.logs()}")
    os.kill(first, signal.SIGKILL)
    poll(lambda: "Killed" in cluster.output(), f"srun to say that {first} was killed\n{cluster.logs()}")
    cluster.ask("scancel", "--signal=USR1", str(number))
    await_state(cluster, number, "PENDING", Restarts="1")
    cluster.ask("scancel", str(number))
    assert not list(tmp_path.glob("*.saved"))


def test_a_warned_sweep_saves_requeues_once_and_goes_on_on_both_nodes(cluster, tmp_path):
    # No trial of it is over before Slurm's signal comes.
    (tmp_path / "lr.textproto").write_text(SWEEP.replace("400000", "2000000"))
    folder = tmp_path / "sweeps" / "lr"
    number = cluster.submit(SOURCE / "deploy" / "slurm" / "sweep.sbatch", "lr.textproto")

    def events(kind):
        journal = folder / "journal.jsonl"
        return [event for event in read_jsonl(journal) if event["event"] == kind] if journal.exists() else []

    def under_way():
        """Trials of both launchers, each with lines of its own."""
        begun = {event["by"]: event["trial"] for event in events("begin")}
        left = set(begun.values()) - {event["trial"] for event in events("end")}
        runs = [folder / "trials" / f"{trial:04d}" / "metrics.jsonl" for trial in left]
        return left if len(left) == 2 and all(run.exists() and run.stat().st_size for run in runs) else None

    left = poll(under_way, f"a trial on each node\n{cluster.logs()}")
    cluster.ask("scancel", "--signal=USR1", str(number))
    await_state(cluster, number, "PENDING", Restarts="1")
    before = {}
    for trial in left - {event["trial"] for event in events("end")}:
        run = folder / "trials" / f"{trial:04d}"
        before[run] = training_lines(run)
        saved = summary(run)
        assert saved["status"] == "preempted" and len(before[run]) == saved["updates"], f"{saved}\n{cluster.logs()}"
    assert before, f"{left} ended before they were warned: {events('end')}"
    await_state(cluster, number, "COMPLETED", Restarts="1", ExitCode="0:0")
    assert len({event["by"] for event in events("begin")}) == 4, events("begin")  # two launchers, twice
    assert sorted(event["trial"] for event in events("end")) == [0, 1, 2, 3]
    for run in sorted((folder / "trials").iterdir()):
        lines = training_lines(run)
        assert lines[: len(before.get(run, []))] == before.get(run, [])
        assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))
        assert summary(run)["status"] == "completed" and summary(run)["world_size"] == 1
    # A trial is no job of Slurm's: none puts it back into the queue itself.
    assert not [log for log in (folder / "logs").iterdir() if "requeue" in log.read_text()]
    assert (folder / "best.textproto").exists()
