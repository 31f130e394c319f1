"""Breakout on the real emulator: short, and then played."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness import summary, training_lines


@pytest.fixture(scope="module")
def run(shared_sandbox):
    job = shared_sandbox.train(
        "breakout_ppo", "--nproc-per-node", 2, "--set", "total_env_steps=2048", "--set", "rollout.length=64",
        "--set", "ppo.epochs=1", "--set", "evaluation.every_updates=0", "--set", "runtime.torch_threads=1",
        "--set", "env.step_timeout_seconds=300", "--set", "env.reset_timeout_seconds=300",
    )  # fmt: skip
    job.succeeds(timeout=300)
    return job


def test_it_trains(run):
    result = summary(run.run_dir)
    assert result["status"] == "completed" and result["env_id"] == "ALE/Breakout-v5"
    assert result["global_steps"] == 2048 and result["updates"] == 2
    assert len(set(result["parameters_sha256"])) == 1 and result["world_size"] == 2
    lines = training_lines(run.run_dir)
    assert len(lines) == 2
    for line in lines:
        losses = {name: value for name, value in line.items() if name.startswith("losses/")}
        assert len(losses) >= 7 and all(np.isfinite(value) for value in losses.values())
        assert 0.5 < line["losses/entropy"] <= np.log(4) + 1e-6  # of Breakout's 4 actions
    # Statistics are of whole games: five lives, in raw points.
    assert result["episodes"] > 0
    assert lines[-1]["charts/episodic_length"] > 50 and lines[-1]["charts/episodic_return"] >= 0


def test_the_checkpoint_holds_a_nature_cnn(run):
    weights = load_file(run.run_dir / "checkpoints" / "latest" / "weights.safetensors")
    assert sorted(w.shape for w in weights.values() if w.ndim == 4) == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert any(w.shape == (4, 512) for w in weights.values())
    assert all(np.isfinite(w).all() for w in weights.values())


def test_the_checkpoint_plays(run):
    result = run.sandbox.run("evaluate", run.run_dir, "--episodes", 2, "--json", timeout=300)
    assert result.returncode == 0, result.stderr
    played = json.loads(result.stdout)
    assert played["env_id"] == "ALE/Breakout-v5" and len(played["episodes"]) == 2
    for episode in played["episodes"]:
        assert episode["return"] >= 0 and episode["length"] > 50
    assert played["mean_return"] == np.mean([e["return"] for e in played["episodes"]])
    run.sandbox.await_no_process()


def test_a_moment_of_pong_dqn(sandbox):
    """DI-engine's network of 14 million parameters, on the real emulator."""
    job = sandbox.train(
        sandbox.config("pong_dqn"), "--nproc-per-node", 2, "--set", "total_env_steps=384",
        "--set", "dqn.updates_per_rollout=2", "--set", "dqn.batch_size=8", "--set", "dqn.replay_capacity=1000",
        "--set", "runtime.torch_threads=1", "--set", "metrics.every_updates=1",
        "--set", "env.step_timeout_seconds=300", "--set", "env.reset_timeout_seconds=300",
    )  # fmt: skip
    job.succeeds(timeout=300)
    result = summary(job.run_dir)
    assert result["status"] == "completed" and result["algorithm"] == "dqn"
    assert result["global_steps"] == 384 and result["updates"] == 2
    assert len(set(result["parameters_sha256"])) == 1
    lines = training_lines(job.run_dir)
    assert [line["replay/size"] for line in lines] == [96, 192]
    assert all(line["losses/td_loss"] > 0 for line in lines)
    weights = load_file(job.run_dir / "checkpoints" / "latest" / "weights.safetensors")
    assert sum(w.size for w in weights.values()) == 14259975
    assert weights["encoder.4.weight"].shape == (512, 128, 3, 3)
    job.sandbox.await_no_process()
