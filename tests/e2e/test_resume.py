"""Going on with a run: nothing is lost, repeated or changed."""

import json
import signal

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness import checkpoint_files, read_jsonl, summary, training_lines

UPDATE = 2 * 4 * 128
LONG = ("cartpole_ppo", "--nproc-per-node", 2, "--set", "total_env_steps=1000000000")


@pytest.fixture(scope="module")
def preempted(shared_sandbox):
    """A run that SIGTERM ended, and its summary."""
    job = shared_sandbox.train(*LONG, run_dir="preempted")
    job.await_update(25)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 75, job.diagnosis()
    return job, summary(job.run_dir)


def progress(checkpoint):
    return {k: float(v) for k, v in json.loads((checkpoint / "progress.json").read_text()).items()}


# First: test_counters_go_on_where_they_were goes on with this very run.
def test_what_is_loaded_is_what_was_saved_bit_for_bit(preempted):
    """Resumed with no update left, a run saves what it loaded."""
    job, before = preempted
    sandbox = job.sandbox
    checkpoint = job.run_dir / "checkpoints" / "latest"
    again = sandbox.train(
        "cartpole_ppo", "--nproc-per-node", 2, "--resume", checkpoint,
        "--set", f"total_env_steps={before['global_steps']}", "--set", "evaluation.every_updates=0", run_dir="copy",
    )  # fmt: skip
    result = again.succeeds()
    assert result["status"] == "completed"
    assert result["updates"] == before["updates"] and result["global_steps"] == before["global_steps"]
    copy = again.run_dir / "checkpoints" / "latest"
    assert copy.resolve().name == checkpoint.resolve().name
    assert checkpoint_files(copy) == checkpoint_files(checkpoint)
    assert result["parameters_sha256"] == before["parameters_sha256"]
    assert {k: v for k, v in progress(copy).items() if k in ("update", "global_step", "episodes", "best_return")} == {
        k: v for k, v in progress(checkpoint).items() if k in ("update", "global_step", "episodes", "best_return")
    }


def test_other_state_is_noticed(preempted):
    """The comparison above can fail: one more update changes both files."""
    job, before = preempted
    checkpoint = job.run_dir / "checkpoints" / "latest"
    more = job.sandbox.train(
        "cartpole_ppo", "--nproc-per-node", 2, "--resume", checkpoint,
        "--set", f"total_env_steps={before['global_steps'] + 1}", "--set", "evaluation.every_updates=0", run_dir="more",
    )  # fmt: skip
    result = more.succeeds()
    assert result["updates"] == before["updates"] + 1
    ours, theirs = checkpoint_files(more.run_dir / "checkpoints" / "latest"), checkpoint_files(checkpoint)
    assert all(ours[name] != theirs[name] for name in theirs)


def test_counters_go_on_where_they_were(preempted):
    job, before = preempted
    updates = before["updates"] + 30
    result = job.sandbox.train(
        "--resume", "--nproc-per-node", 2, "--set", f"total_env_steps={updates * UPDATE}", run_dir="preempted",
    ).succeeds()  # fmt: skip
    assert result["status"] in ("completed", "solved") and result["updates"] == updates
    assert result["episodes"] > before["episodes"] and result["wall_seconds"] > before["wall_seconds"]
    lines = training_lines(job.run_dir)
    assert [line["update"] for line in lines] == list(range(1, updates + 1))
    assert [line["global_step"] for line in lines] == [UPDATE * u for u in range(1, updates + 1)]
    for name in ("wall_seconds", "charts/episodes"):
        values = [line[name] for line in lines]
        assert values == sorted(values)
    events = EventAccumulator(str(job.run_dir / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    steps = [s.step for s in events.Scalars("losses/policy_loss")]
    assert steps == [line["global_step"] for line in lines]


def test_lines_after_the_checkpoint_are_not_written_twice(sandbox):
    """A killed run had gone beyond its last checkpoint: those updates are made anew."""
    job = sandbox.train(*LONG, "--set", "checkpoint.every_updates=10")
    job.await_update(33)
    job.process.kill()
    job.wait()
    latest = progress(job.run_dir / "checkpoints" / "latest")["update"]
    assert latest >= 20 and latest % 10 == 0
    total = int(latest) + 40
    result = sandbox.train("--resume", "--nproc-per-node", 2, "--set", f"total_env_steps={total * UPDATE}").succeeds()
    assert result["updates"] == total
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, total + 1))
    lines = read_jsonl(job.run_dir / "metrics.jsonl")
    assert all(a["update"] <= b["update"] for a, b in zip(lines, lines[1:]))


def test_another_number_of_learners_goes_on_with_the_same_state(preempted):
    job, _ = preempted
    before = summary(job.run_dir)
    alone = job.sandbox.train(
        "cartpole_ppo", "--resume", job.run_dir / "checkpoints" / "latest",
        "--set", f"total_env_steps={before['global_steps'] + 1}", run_dir="alone",
    )  # fmt: skip
    result = alone.succeeds()
    assert result["world_size"] == 1 and result["global_steps"] == before["global_steps"] + UPDATE // 2
    assert result["updates"] == before["updates"] + 1


def test_a_finished_run_has_nothing_to_go_on_with(sandbox):
    words = (sandbox.config("cartpole_fast"), "--set", "total_env_steps=8192")
    first = sandbox.train(*words).succeeds()
    second = sandbox.train("--resume").succeeds()
    assert second["status"] == "completed"
    assert second["updates"] == first["updates"] == 4
    assert second["parameters_sha256"] == first["parameters_sha256"]


def test_a_damaged_checkpoint_is_refused_by_name(sandbox):
    job = sandbox.train(sandbox.config("cartpole_fast"), "--set", "total_env_steps=8192")
    job.succeeds()
    weights = job.run_dir / "checkpoints" / "latest" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    again = sandbox.train("--resume", "--set", "total_env_steps=100000")
    assert again.wait() in (1, 2)
    assert "weights.safetensors" in again.output() and "SHA-256" in again.output()
