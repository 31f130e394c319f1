"""kill -9 of learners and of the launcher."""

import os
import pathlib
import shutil
import signal

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness import read_jsonl, summary, training_lines

UPDATE = 2 * 64 * 32


@pytest.mark.parametrize("rank", [1, 0])
def test_the_run_goes_on_with_a_replacement(sandbox, rank):
    job = sandbox.train(sandbox.config("cartpole_fast"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000")
    before = job.await_update(20)
    killed = before.learner[rank].pid
    os.kill(killed, signal.SIGKILL)
    after = job.await_status(
        lambda s: s.generation == 2 and s.world_size == 2 and s.update > before.update and len(s.learner) == 2,
        "a second generation that trains",
    )
    assert killed not in [learner.pid for learner in after.learner]
    assert after.learner_restarts == 1
    updates = job.completes_after(600, UPDATE)
    result = job.succeeds()
    assert result["status"] == "completed" and result["world_size"] == 2
    assert result["restarts"]["learner"] == 1
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    # No update is counted twice and none is lost: the survivor's state went on.
    assert result["updates"] == updates and result["global_steps"] == updates * UPDATE
    recorded = [line["update"] for line in training_lines(job.run_dir)]
    assert recorded == list(range(1, updates + 1))
    assert f"learner {rank} died (signal 9" in job.output()


def test_restarts_are_counted_over_resumes(sandbox):
    for leg in (1, 2):
        job = sandbox.train(
            sandbox.config("cartpole_fast"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
            *["--resume"] * (leg - 1),
        )  # fmt: skip
        # Before the ranks have shared what there is.
        status = job.await_status(lambda s: len(s.learner) == 2, "both to register")
        os.kill(next(learner.pid for learner in status.learner if learner.local_rank == 1), signal.SIGKILL)
        # This coordinator's.
        job.await_status(lambda s: s.learner_restarts == 1 and s.world_size == 2, "the other to be there again")
        job.await_more_updates()
        stopped = sandbox.run("stop", "--run-dir", job.run_dir)
        assert stopped.returncode == 0, stopped.stderr
        assert job.succeeds()["restarts"]["learner"] == leg
        (job.run_dir / "coordinator.address").unlink()  # for what waits for the next one's


def test_a_lost_learner_does_not_keep_the_run_from_being_solved(sandbox):
    # The first evaluation comes seconds after the kill: the run cannot end before it.
    job = sandbox.train(
        "cartpole_fast", "--nproc-per-node", 2, "--set", "evaluation.every_updates=1000",
        "--set", "total_env_steps=10000000",
    )  # fmt: skip
    status = job.await_update(3)
    os.kill(status.learner[1].pid, signal.SIGKILL)
    result = job.succeeds()
    assert result["status"] == "solved" and result["eval_mean_return"] >= 475
    assert result["restarts"]["learner"] == 1
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1


def test_a_learner_that_keeps_dying_fails_the_run_by_name(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--set", "total_env_steps=1000000000", "--max-restarts", 0,
    )  # fmt: skip
    status = job.await_update(3)
    os.kill(status.learner[0].pid, signal.SIGKILL)
    assert job.wait() == 1
    assert "learner 0 died" in job.output() and "--max-restarts is 0" in job.output()
    result = summary(job.run_dir)
    assert result["status"] == "failed" and "learner 0 died" in result["error"]
    assert result["updates"] >= 3 and result["global_steps"] == result["updates"] * 64 * 32
    assert result["env_id"] == "CartPole-v1" and result["world_size"] == 1


def test_a_learner_that_hangs_ends_itself_and_says_where(sandbox):
    """Its heartbeats go on all the while."""
    job = sandbox.train(
        "sleep_scaling", "--set=env.options.sleep.step_ms=600000", "--set=env.step_timeout_seconds=3600",
        "--set=runtime.progress_timeout_seconds=2", "--max-restarts", 0,
    )  # fmt: skip
    assert job.wait() == 1
    assert "the rollout of update 0 has not ended after 2 s" in job.output(), job.diagnosis()
    assert "runtime.progress_timeout_seconds" in job.output()


@pytest.mark.parametrize("cadence", ["every_updates=10", "every_seconds=0.1"])
def test_the_only_learner_goes_back_to_its_last_checkpoint(sandbox, cadence):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--set", "total_env_steps=1000000000", "--set", f"checkpoint.{cadence}",
    )  # fmt: skip
    latest = job.run_dir / "checkpoints" / "latest"
    job.poll(latest.exists, "a checkpoint")
    status = job.await_more_updates()
    os.kill(status.learner[0].pid, signal.SIGKILL)
    job.await_status(lambda s: s.learner_restarts == 1 and s.update > status.update, "it to go on")
    updates = job.completes_after(600, steps=2048)
    result = job.succeeds()
    assert result["status"] == "completed" and result["updates"] == updates
    assert result["restarts"]["learner"] == 1
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, updates + 1))
    assert "started_over" not in result and "started over" not in job.output()


def test_when_the_last_that_knows_anything_is_lost_the_run_goes_back_to_its_last_checkpoint(sandbox):
    """The first replacement waits for a peer's state, and the second one finds a peer: neither has any."""
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
        "--set", "checkpoint.every_updates=10",
    )  # fmt: skip
    status = job.await_update(25)
    first, last = (status.learner[rank].pid for rank in (1, 0))
    os.kill(last, signal.SIGSTOP)  # nobody can meet before it is lost too
    os.kill(first, signal.SIGKILL)
    job.poll(lambda: "starting it again" in job.output(), "a replacement")
    os.kill(last, signal.SIGKILL)
    again = job.await_status(lambda s: s.generation >= 2 and s.world_size == 2 and s.update > status.update, "training again")
    assert not again.started_over, again.started_over
    recorded = [line["update"] for line in training_lines(job.run_dir)]
    assert recorded[:25] == list(range(1, 26)) and recorded == sorted(recorded)
    assert not (job.run_dir / "metrics.jsonl.before_starting_over").exists()


@pytest.mark.parametrize("run_dir", ["run", "other"])
def test_a_run_that_went_back_to_a_checkpoint_does_so_again_when_all_are_lost(sandbox, run_dir):
    """Not to a later checkpoint of its former self, and in a folder of its own not to nothing."""
    first = sandbox.train(
        sandbox.config("cartpole_fast"), "--nproc-per-node", 2, "--set", f"total_env_steps={40 * UPDATE}",
        "--set", "checkpoint.every_updates=10",
    )  # fmt: skip
    first.succeeds()
    (first.run_dir / "coordinator.address").unlink()  # for what waits for the next one's
    (checkpoint,) = (first.run_dir / "checkpoints").glob(f"step_{20 * UPDATE:012}")
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
        "--set", "checkpoint.every_seconds=0", "--resume", checkpoint, run_dir=run_dir,
    )  # fmt: skip
    status = job.await_update(60)
    for learner in status.learner:
        os.kill(learner.pid, signal.SIGKILL)
    again = job.await_status(lambda s: s.generation >= 2 and s.world_size == 2 and s.update > 20, "training again")
    assert not again.started_over, again.started_over
    # Once more than where its former self went further.
    assert len(list(job.run_dir.glob("metrics.jsonl.after_update_20*"))) == (2 if run_dir == "run" else 1)
    # So does the next one who goes on with it, as long as nothing was saved.
    job.process.kill()
    job.process.wait()
    sandbox.await_no_process()
    assert (job.run_dir / "checkpoints" / "latest").readlink() == pathlib.Path(checkpoint.name)
    if run_dir == "other":  # whatever becomes of the other run
        shutil.rmtree(first.run_dir)
    result = sandbox.train("--resume", "--set", f"total_env_steps={21 * UPDATE}", run_dir=run_dir).succeeds()
    assert result["updates"] == 21


def test_with_nothing_to_go_back_to_the_run_starts_over_visibly(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--set", "total_env_steps=1000000000", "--set", "checkpoint.every_seconds=0",
    )  # fmt: skip
    status = job.await_update(100)
    assert status.started_over == "" and not (job.run_dir / "checkpoints").exists()
    os.kill(status.learner[0].pid, signal.SIGKILL)
    again = job.await_status(lambda s: s.started_over, "that it started over")
    aside = job.run_dir / "metrics.jsonl.before_starting_over"
    lost = read_jsonl(aside)[-1]["update"]
    updates = job.completes_after(600, steps=2048)
    assert lost >= 100
    for told in (again.started_over, job.succeeds()["started_over"], job.output()):
        assert "started over at step 0" in told and "update" in told and aside.name in told
    # Each curve is one curve.
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, updates + 1))
    assert [line["update"] for line in read_jsonl(aside)] == list(range(1, lost + 1))
    events = EventAccumulator(str(job.run_dir / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    assert [s.step for s in events.Scalars("charts/SPS")] == [2048 * u for u in range(1, updates + 1)]


def test_a_folder_that_is_removed_ends_the_run_and_offers_no_way_back(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--set", "total_env_steps=1000000000", "--set", "checkpoint.every_updates=20",
    )  # fmt: skip
    job.await_update(30)
    gone = sandbox.folder / "gone"
    job.run_dir.rename(gone)  # at once, so that nothing is made in it meanwhile
    shutil.rmtree(gone)
    assert job.wait() == 1
    assert f"the run's folder {job.run_dir} was removed or renamed" in job.output()
    assert "go on with:" not in job.output()
    assert not job.run_dir.exists()


def test_nothing_outlives_a_killed_launcher(sandbox):
    job = sandbox.train("cartpole_ppo", "--nproc-per-node", 2, "--set", "total_env_steps=1000000000")
    job.await_update(3)
    commands = " ".join(sandbox.processes().values())
    for program in ("flotilla-coordinator", "flotilla-learner", "flotilla-envserver"):
        assert program in commands
    job.process.send_signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    assert not (job.run_dir / "summary.json").exists()
    # The folder is free again, and says how to go on.
    again = sandbox.run("train", "cartpole_ppo", "--run-dir", job.run_dir)
    assert again.returncode == 2 and "--resume" in again.stderr
    again = sandbox.run("train", "cartpole_fast", "--resume", "--run-dir", job.run_dir)
    assert again.returncode == 0, again.stderr
    assert summary(job.run_dir)["status"] == "solved"


def test_a_run_that_fails_says_how_far_it_came(sandbox):
    job = sandbox.train("cartpole_ppo", "--max-restarts", 0, "--set", "total_env_steps=100000000")
    before = job.await_update(50)
    os.kill(before.learner[0].pid, signal.SIGKILL)
    assert job.wait() == 1
    result = summary(job.run_dir)
    newest = training_lines(job.run_dir)[-1]
    assert result["status"] == "failed" and result["updates"] >= newest["update"] >= 50
    assert result["stop_update"] == result["updates"] and result["world_size"] == 1
    assert result["episodes"] == newest["charts/episodes"] > 0
    assert result["mean_return"] == newest["charts/episodic_return"]
    assert result["wall_seconds"] == newest["wall_seconds"] > 0
    assert result["steps_per_second"] == pytest.approx(newest["global_step"] / newest["wall_seconds"])
    assert "learner 0 died (signal 9" in result["error"] and ".cc:" not in result["error"]
