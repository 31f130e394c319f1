"""Going on with a run: nothing is lost, repeated or changed."""

import json
import shutil
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
    """With as many learners as the run had, though nobody names them again."""
    job, before = preempted
    updates = before["updates"] + 30
    again = job.sandbox.train("--resume", "--set", f"total_env_steps={updates * UPDATE}", run_dir="preempted")
    result = again.succeeds()
    assert f"total_env_steps was 1000000000 and is {updates * UPDATE} (the flag wins)" in again.output()
    assert result["world_size"] == 2 and "the run had" not in again.output()
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
    result = sandbox.train("--resume", "--set", f"total_env_steps={total * UPDATE}").succeeds()
    assert result["updates"] == total
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, total + 1))
    lines = read_jsonl(job.run_dir / "metrics.jsonl")
    assert all(a["update"] <= b["update"] for a, b in zip(lines, lines[1:]))


def test_another_number_of_learners_goes_on_with_the_same_state(preempted):
    job, _ = preempted
    before = summary(job.run_dir)
    alone = job.sandbox.train(
        "cartpole_ppo", "--resume", job.run_dir / "checkpoints" / "latest", "--nproc-per-node", 1,
        "--set", f"total_env_steps={before['global_steps'] + 1}", run_dir="alone",
    )  # fmt: skip
    result = alone.succeeds()
    assert "the run had 2 learners and goes on with 1 learner: an update is of 512 steps, not 1,024" in alone.output()
    assert result["world_size"] == 1 and result["global_steps"] == before["global_steps"] + UPDATE // 2
    assert result["updates"] == before["updates"] + 1


def everything(folder):
    """Each file's time and content."""
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("solved", [False, True])
def test_a_finished_run_has_nothing_left_to_do_and_is_left_alone(sandbox, solved):
    if solved:
        job = sandbox.train("cartpole_fast", "--set", "evaluation.stop_return=9", "--set", "total_env_steps=4096000",
                            "--set", "evaluation.min_training_return=0")  # fmt: skip
    else:
        job = sandbox.train(sandbox.config("cartpole_fast"), "--set", "total_env_steps=8192")
    assert job.succeeds()["status"] == ("solved" if solved else "completed")
    before = everything(job.run_dir)
    again = sandbox.run("train", "--resume", "--run-dir", job.run_dir)
    assert again.returncode == 0, again.stderr
    assert "nothing is left to do" in again.stdout
    assert everything(job.run_dir) == before
    # Asked for more, it goes on.
    # Whatever that first evaluation returned, it was less.
    more = ("evaluation.stop_return=450",) if solved else ("total_env_steps=12288",)
    result = sandbox.train("--resume", "--set", *more).succeeds()
    assert result["updates"] > json.loads(before[job.run_dir / "summary.json"][1])["updates"]


def test_a_configuration_given_on_resume_names_what_differs_and_wins(sandbox):
    job = sandbox.train(sandbox.config("cartpole_fast"), "--set", "total_env_steps=8192")
    job.succeeds()
    other = sandbox.folder / "other.textproto"
    text = (job.run_dir / "config.textproto").read_text()
    assert "max_grad_norm: 0.5" in text and "total_env_steps: 8192" in text
    other.write_text(text.replace("max_grad_norm: 0.5", "max_grad_norm: 0.25").replace("steps: 8192", "steps: 12288"))
    words = ("train", other, "--resume", "--run-dir", job.run_dir, "--set", "checkpoint.keep=7", "--set", "runtime.precision=auto")
    plan = sandbox.run(*words, "--dry-run").stdout
    told = [line for line in plan.splitlines() if line.startswith("resume: ")]
    assert told == [
        f"resume: total_env_steps was 8192 and is 12288 ({other} wins)",
        f"resume: optimizer.max_grad_norm was 0.5 and is 0.25 ({other} wins)",
        "resume: checkpoint.keep was 3 and is 7 (the flag wins)",
    ]
    resumed = sandbox.run(*words)
    assert resumed.returncode == 0 and all(line in resumed.stdout for line in told), resumed.stderr
    assert "max_grad_norm: 0.25" in (job.run_dir / "config.textproto").read_text()
    assert summary(job.run_dir)["updates"] == 6
    # The model cannot change; each of its fields that would is named.
    refused = sandbox.run("train", "--resume", "--run-dir", job.run_dir, "--set", "model.hidden=[8]", "--set", "model.activation=relu")
    assert refused.returncode == 2
    assert "model.hidden was [" in refused.stderr and "model.activation was TANH and would be RELU" in refused.stderr


def test_updates_end_a_run_and_drive_its_schedule_and_its_checkpoints(sandbox):
    words = ("--set", "total_updates=8", "--set", "checkpoint.count=4", "--nproc-per-node", 2)
    job = sandbox.train(sandbox.config("cartpole_ppo"), *words)
    result = job.succeeds()
    assert result["status"] == "completed" and result["updates"] == 8
    rates = [line["charts/learning_rate"] for line in training_lines(job.run_dir)]
    assert rates == pytest.approx([2.5e-4 * (1 - u / 8) for u in range(8)])
    folders = sorted(p for p in (job.run_dir / "checkpoints").iterdir() if p.name.startswith("step_"))
    assert [progress(p)["update"] for p in folders] == [2, 4, 6, 8]
    # As many updates again.
    more = sandbox.train("--resume", "--set", "total_updates=12").succeeds()
    assert more["updates"] == 12 and more["world_size"] == 2
    # Either, not both.
    both = sandbox.run("train", "cartpole_ppo", "--set", "total_updates=8", "--set", "total_env_steps=9", "--dry-run")
    assert both.returncode == 2 and "total_updates is set, and so is total_env_steps" in both.stderr


def test_sizes_of_all_learners_stay_so_in_checkpoints(sandbox):
    words = ("--nproc-per-node", 2, "--set", "distributed.sizes=GLOBAL", "--set", "env.num_envs=8", "--set", "total_updates=2")
    job = sandbox.train(sandbox.config("cartpole_ppo"), *words)
    assert job.succeeds()["global_steps"] == 2 * 8 * 128
    checkpoint = (job.run_dir / "checkpoints" / "latest").resolve()
    assert (checkpoint / "config.textproto").read_text() == (job.run_dir / "config.textproto").read_text()
    run = job.run_dir / "config.textproto"
    plan = sandbox.run("train", run, "--resume", checkpoint, "--run-dir", "more", "--set", "total_updates=3", "--dry-run").stdout
    told = [line for line in plan.splitlines() if line.startswith("resume: ")]
    assert told == ["resume: total_updates was 2 and is 3 (the flag wins)"], plan
    assert sandbox.run("evaluate", checkpoint, "--episodes", 2).returncode == 0


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


def test_a_damaged_checkpoint_that_was_named_is_not_gone_on_from(sandbox):
    job = sandbox.train(sandbox.config("cartpole_fast"), "--set", "total_env_steps=8192", "--set", "checkpoint.every_updates=1")
    job.succeeds()
    checkpoints = job.run_dir / "checkpoints"
    latest = (checkpoints / "latest").readlink()
    named = min(checkpoints.glob("step_*"))
    (named / "weights.safetensors").write_bytes(b"damaged" + (named / "weights.safetensors").read_bytes()[7:])
    again = sandbox.train("--resume", named, "--set", "total_env_steps=100000")
    assert again.wait() in (1, 2) and "SHA-256" in again.output()
    assert (checkpoints / "latest").readlink() == latest
    config = sandbox.config("cartpole_fast")
    other = sandbox.train(config, "--resume", named, "--set", "total_env_steps=100000", run_dir="other")
    assert other.wait() in (1, 2) and "SHA-256" in other.output()
    assert "go on with" not in other.output() and not (other.run_dir / "checkpoints").exists()
    sandbox.train(config, "--set", "total_env_steps=8192", run_dir="other").succeeds()
    # A run without a checkpoint is none to go on from.
    shutil.rmtree(checkpoints)
    again = sandbox.train(config, "--resume", job.run_dir, "--set", "total_env_steps=100000", run_dir="third")
    assert again.wait() == 2 and f"--resume {job.run_dir}: that run has no checkpoint yet" in again.output(), again.output()
    assert not again.run_dir.exists()
