"""model.init_from: a new run begins with what another one learned."""

import os
import shutil
import signal

import numpy as np
import pytest
from safetensors.numpy import load_file

QUIET = "--set=evaluation.every_updates=0"
UPDATE = 4 * 128  # environment steps of cartpole_ppo
STILL = ("--set=optimizer.learning_rate=1e-12", f"--set=total_env_steps={UPDATE}", QUIET)


def weights(job):
    return load_file(job.run_dir / "checkpoints" / "latest" / "weights.safetensors")


def test_a_new_run_begins_with_anothers_weights(sandbox):
    first = sandbox.train("cartpole_ppo", f"--set=total_env_steps={8 * UPDATE}", QUIET, run_dir="first")
    first.succeeds()
    for source in ("first", "first/checkpoints/latest"):
        job = sandbox.train(
            "cartpole_ppo", "--nproc-per-node=2", f"--set=model.init_from={sandbox.folder / source}", "--set=seed=7", *STILL,
            run_dir=source.replace("/", "_") + "_again",
        )  # fmt: skip
        result = job.succeeds()
        assert len(set(result["parameters_sha256"])) == 1
        for name, tensor in weights(first).items():
            np.testing.assert_allclose(weights(job)[name], tensor, atol=1e-6)
        # Nothing but weights: the run is its own from its first step on.
        assert result["updates"] == 1


def test_a_learner_that_is_replaced_has_it_from_its_peers(sandbox):
    first = sandbox.train("cartpole_ppo", f"--set=total_env_steps={UPDATE}", QUIET, run_dir="first")
    first.succeeds()
    job = sandbox.train(
        "cartpole_ppo", "--nproc-per-node=2", f"--set=model.init_from={first.run_dir}", QUIET, "--set=total_env_steps=1000000000000",
    )  # fmt: skip
    before = job.await_update(3)
    shutil.rmtree(first.run_dir)
    os.kill(before.learner[1].pid, signal.SIGKILL)
    job.await_status(lambda s: s.generation > before.generation and s.world_size == 2 and s.state == before.state, "both again")
    assert sandbox.run("stop", job.run_dir).returncode == 0
    result = job.succeeds()
    assert result["restarts"]["learner"] == 1
    assert len(set(result["parameters_sha256"])) == 1 and len(result["parameters_sha256"]) == 2


SCALED = "--set=model.normalize_observations=true"
SUMS = "normalizer.observation_sums"  # of them the first is how many


def begun(sandbox, first, *words):
    """A run of two learners that begins with what `first` learned, and ends with its first update."""
    job = sandbox.train(
        "cartpole_ppo", "--nproc-per-node=2", f"--set=model.init_from={first.run_dir}", "--set=seed=7", *STILL, *words,
        run_dir=f"after_{first.run_dir.name}_{len(words)}",
    )  # fmt: skip
    assert len(set(job.succeeds()["parameters_sha256"])) == 1
    return load_file(job.run_dir / "checkpoints" / "latest" / "state.safetensors"), (job.run_dir / "logs" / "rank_0.log").read_text()


@pytest.fixture
def trained(sandbox):
    """Makes a run of eight updates."""

    def train(name, *words):
        job = sandbox.train("cartpole_ppo", f"--set=total_env_steps={8 * UPDATE}", QUIET, *words, run_dir=name)
        job.succeeds()
        return job

    return train


def test_observations_are_scaled_as_they_were(sandbox, trained):
    first = trained("first", SCALED, "--set=model.normalize_rewards=true")
    was = load_file(first.run_dir / "checkpoints" / "latest" / "state.safetensors")
    now, log = begun(sandbox, first, SCALED, "--set=model.normalize_rewards=true")
    # All of them once, whatever the number of learners, and what both have seen since.
    assert was[SUMS][0] >= 8 * UPDATE
    assert was[SUMS][0] + 2 * UPDATE <= now[SUMS][0] < 1.5 * was[SUMS][0]
    assert now["normalizer.reward_sums"][0] == 2 * UPDATE
    assert f"running mean and variance, of {was[SUMS][0]:.0f} observations" in log
    assert "does not match" not in log


def test_a_run_that_scales_alone_is_warned(sandbox, trained):
    now, log = begun(sandbox, trained("scaled", SCALED))
    assert SUMS not in now
    assert f"does not match: {SUMS}: none here, [9] there; " in log and "set model.normalize_observations=true" in log
    now, log = begun(sandbox, trained("raw"), SCALED)
    assert now[SUMS][0] < 3 * UPDATE
    assert f"does not match: {SUMS}: [9] here, none there; model.normalize_observations scales" in log


def test_what_does_not_match_is_listed(sandbox):
    first = sandbox.train("cartpole_ppo", f"--set=total_env_steps={UPDATE}", QUIET, run_dir="first")
    first.succeeds()
    job = sandbox.train(
        "cartpole_ppo", f"--set=model.init_from={first.run_dir}", "--set=model.hidden=[64,32]", *STILL, run_dir="narrow"
    )
    job.succeeds()
    log = (job.run_dir / "logs" / "rank_0.log").read_text()
    assert "actor.2.weight: [32, 64] here, [64, 64] there" in log
    np.testing.assert_allclose(weights(job)["actor.0.weight"], weights(first)["actor.0.weight"], atol=1e-6)


def test_a_path_that_is_no_checkpoint_is_refused(sandbox):
    result = sandbox.run("train", "cartpole_ppo", "--set=model.init_from=nowhere", "--run-dir=run")
    assert result.returncode == 2
    assert 'model.init_from is "nowhere", which is neither a checkpoint' in result.stderr
    assert not (sandbox.folder / "run").exists()
