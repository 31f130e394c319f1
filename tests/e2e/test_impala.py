"""IMPALA and APPO: actors that run ahead of the learner."""

import os
import signal

import pytest

from harness import summary, training_lines

UPDATE = 2 * 32 * 20  # environment steps of two learners


def total(updates):
    return f"total_env_steps={updates * UPDATE}"


@pytest.mark.parametrize("config", ["cartpole_impala", "cartpole_appo"])
def test_two_learners_solve_cartpole(sandbox, config):
    job = sandbox.train(config, "--nproc-per-node", 2)
    result = job.succeeds()
    assert result["status"] == "solved" and result["algorithm"] == "impala"
    assert result["eval_mean_return"] >= 475
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    lines = training_lines(job.run_dir)
    assert [line["update"] for line in lines] == list(range(1, result["updates"] + 1))
    lags = [line["policy/lag_mean"] for line in lines]
    assert max(lags) > 0 and min(lags) >= 0
    assert all(line["policy/lag_mean"] <= line["policy/lag_max"] <= 8 for line in lines)
    dropped = [line["rollout/dropped"] for line in lines]
    assert dropped == sorted(dropped)


@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize(
    "config, more",
    [("cartpole_impala", "impala.deterministic_lag=true"), ("cartpole_fast", "rollout.overlap_one_update=true")],
    ids=["impala", "ppo"],
)
def test_one_rollout_ahead_is_reproducible(sandbox, learners, config, more):
    def parameters(run_dir, *words):
        job = sandbox.train(
            sandbox.config(config), "--nproc-per-node", learners, "--set", more, "--set", "total_env_steps=200000",
            *words, run_dir=run_dir,
        )  # fmt: skip
        result = job.succeeds()
        assert result["status"] == "completed"
        lags = [line["policy/lag_max"] for line in training_lines(job.run_dir)]
        assert lags[0] == 0 and set(lags[1:]) == {1}
        (digest,) = set(result["parameters_sha256"])
        return digest

    first = parameters("first")
    assert parameters("second") == first
    assert parameters("other", "--set", "seed=2") != first


@pytest.mark.parametrize("rank", [1, 0])
def test_a_killed_learner_is_replaced(sandbox, rank):
    job = sandbox.train(
        sandbox.config("cartpole_impala"), "--nproc-per-node", 2, "--set", total(1000000),
    )  # fmt: skip
    before = job.await_update(20)
    os.kill(before.learner[rank].pid, signal.SIGKILL)
    job.await_status(
        lambda s: s.generation == 2 and s.world_size == 2 and s.update > before.update and len(s.learner) == 2,
        "a second generation that trains",
    )
    job.completes_after(200, UPDATE)
    result = job.succeeds()
    assert result["status"] == "completed" and result["restarts"]["learner"] == 1
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    # No update is counted twice; dropped rollouts count as steps that were taken.
    recorded = [line["update"] for line in training_lines(job.run_dir)]
    assert recorded == sorted(set(recorded))
    assert result["global_steps"] >= result["updates"] * UPDATE


def test_a_killed_env_worker_is_replaced(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_impala"), "--nproc-per-node", 2, "--set", "env.num_workers=2", "--set", total(1000000),
    )  # fmt: skip
    status = job.await_status(
        lambda s: s.update >= 20 and all(learner.env_worker for learner in s.learner), "update 20, workers told"
    )
    os.kill(status.learner[1].env_worker[0].pid, signal.SIGKILL)
    job.await_status(lambda s: s.env_worker_restarts == 1, "the restart in the status")
    job.completes_after(200, UPDATE)
    result = job.succeeds()
    assert result["status"] == "completed"
    assert result["restarts"] == {"learner": 0, "env_worker": 1}


def test_sigterm_saves_and_the_run_goes_on(sandbox):
    config = sandbox.config("cartpole_impala")
    job = sandbox.train(config, "--nproc-per-node", 2, "--set", total(1000000))
    job.await_update(20)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 75
    saved = summary(job.run_dir)
    assert saved["status"] == "preempted" and saved["updates"] >= 20
    steps = saved["global_steps"] + 200 * UPDATE
    again = sandbox.run("train", "--resume", "--run-dir", job.run_dir, "--set", f"total_env_steps={steps}")
    assert again.returncode == 0, again.stderr
    assert summary(job.run_dir)["status"] == "completed"
    assert summary(job.run_dir)["updates"] > saved["updates"]


def test_the_plan_says_when_rollouts_are_collected(sandbox):
    plan = sandbox.run("train", "cartpole_impala", "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "free running" in plan.stdout and "dropped beyond a lag of 8 updates" in plan.stdout
    plan = sandbox.run("train", "cartpole_fast", "--dry-run", "--set", "rollout.overlap_one_update=true")
    assert "one ahead" in plan.stdout
