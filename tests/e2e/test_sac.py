"""SAC swings Pendulum up, and is a row of the table like the others."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness import checkpoint_files, summary, training_lines

ACTOR = 4 * 64 + 65 * 64 + 2 * 65
CRITICS = 2 * (5 * 64 + 65 * 64 + 65)


@pytest.fixture(scope="module")
def run(shared_sandbox):
    job = shared_sandbox.train(
        "pendulum_sac", "--nproc-per-node", 2, "--set", "evaluation.stop_return=-200",
        "--set", "metrics.every_updates=1",
    )  # fmt: skip
    job.succeeds(timeout=240)
    return job


def test_two_learners_swing_it_up(run):
    result = summary(run.run_dir)
    assert result["status"] == "solved" and result["algorithm"] == "sac"
    assert result["eval_mean_return"] >= -200 and result["eval_episodes"] == 100
    assert result["world_size"] == 2 and len(set(result["parameters_sha256"])) == 1
    assert result["global_steps"] == 32 * result["updates"] <= 20000


def test_metrics_follow_the_global_step(run):
    lines = training_lines(run.run_dir)
    names = {
        "losses/critic_loss", "losses/policy_loss", "losses/temperature", "losses/entropy", "losses/q_values",
        "charts/learning_rate", "charts/SPS", "replay/size", "sync/all_reduce_ms", "sync/bytes",
    }  # fmt: skip
    for line in lines:
        assert names <= line.keys()
        assert all(np.isfinite(value) for value in line.values())
        assert line["replay/size"] == line["global_step"] // 2
        learns = line["global_step"] - 32 >= 400  # learning_starts, before this rollout
        assert (line["losses/critic_loss"] > 0) == learns
        # 16 times three gradients: each with the loss, the samples, and whether there were any.
        assert line["sync/bytes"] == (16 * 4 * (ACTOR + 3 + CRITICS + 3 + 1 + 3) if learns else 0)
    # From 1 on the temperature falls: uniform actions are more random than asked for.
    assert lines[0]["losses/temperature"] == 1 and lines[-1]["losses/temperature"] < 0.5


def test_the_checkpoint_holds_policy_critics_targets_and_temperature(run):
    folder = run.run_dir / "checkpoints" / "best"
    weights = load_file(folder / "weights.safetensors")
    assert sum(w.size for w in weights.values()) == ACTOR
    assert weights["actor_mean.weight"].shape == weights["actor_logstd.weight"].shape == (1, 64)
    state = load_file(folder / "state.safetensors")
    critics = {name for name in state if name.startswith(("critic1", "critic2"))}
    assert sum(state[name].size for name in critics) == CRITICS
    assert {f"target.{name}" for name in critics} <= state.keys()
    assert state["log_alpha"].shape == (1,)
    assert state["actor.adam.step"] == state["critics.adam.step"] == state["temperature.adam.step"] > 0


def test_the_checkpoint_plays(run):
    result = run.sandbox.run("evaluate", run.run_dir / "checkpoints" / "best", "--episodes", 10, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["mean_return"] > -400


def short(sandbox, name, steps, *words, resume=False):
    job = sandbox.train(
        *([] if resume else [sandbox.config("pendulum_sac")]), *words, "--set", f"total_env_steps={steps}",
        "--set", "metrics.every_updates=1", run_dir=name,
    )  # fmt: skip
    result = job.succeeds()
    assert result["status"] == "completed"
    assert len(set(result["parameters_sha256"])) == 1
    return result


@pytest.mark.parametrize("learners", [1, 2])
def test_the_same_seed_gives_the_same_parameters(sandbox, learners):
    words = ["--nproc-per-node", learners]
    first = short(sandbox, "first", 1600, *words)["parameters_sha256"]
    assert short(sandbox, "second", 1600, *words)["parameters_sha256"] == first
    assert short(sandbox, "other", 1600, *words, "--set", "seed=2")["parameters_sha256"] != first


def test_resuming_goes_on_from_the_saved_state(sandbox):
    short(sandbox, "run", 1600)
    folder = sandbox.folder / "run" / "checkpoints"
    saved = checkpoint_files((folder / "latest").resolve())
    short(sandbox, "run", 1600, "--resume", resume=True)  # nothing is left to do
    assert checkpoint_files((folder / "latest").resolve()) == saved
    assert short(sandbox, "run", 3200, "--resume", resume=True)["global_steps"] == 3200
    lines = training_lines(sandbox.folder / "run")
    assert [line["global_step"] for line in lines] == list(range(16, 3201, 16))
    # The replay fills anew; nothing is learned from less than learning_starts.
    assert [line["replay/size"] for line in lines[99:102]] == [1600, 16, 32]
    learned = [line["losses/critic_loss"] > 0 for line in lines[99:]]
    assert learned == [True] + [False] * 24 + [True] * 76


def test_the_plan_is_shown(sandbox):
    """--dry-run knows the plan of every algorithm."""
    result = sandbox.run("train", "pendulum_sac", "--nproc-per-node", 2, "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "sac" in result.stdout and "128" in result.stdout and "16" in result.stdout


def test_what_does_not_fit_is_refused_by_name(sandbox):
    for override, words in {
        "env.id=CartPole-v1": ("sac needs continuous actions", "choose ppo"),
        "sac.replay_capacity=10": ("sac.batch_size = 128",),
        "model.recurrent=LSTM": ("sac has no recurrent form",),
        "model.normalize_rewards=true": ("model.normalize_rewards", "sac needs false"),
    }.items():
        result = sandbox.run("train", "pendulum_sac", "--set", override)
        assert result.returncode == 2, override
        assert all(word in result.stderr for word in words), result.stderr
