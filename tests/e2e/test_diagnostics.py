"""The diagnostic environments: a learner without bugs scores, and one that lacks what they test does not."""

import pytest

from harness import read_jsonl

# PufferLib's published scores of its sanity environments; Mask is ours.
PPO = {
    "Bandit": (0.904, 50, []),
    "Continuous": (0.907, 200, []),
    "Mask": (0.95, 60, []),
    "Memory": (0.979, 100, ["--set=model.recurrent=LSTM"]),
    "Password": (1.0, 200, []),
    "Spaces": (0.972, 100, []),
    "Squared": (0.971, 400, []),
    "Stochastic": (0.998, 200, []),
}


def score(sandbox, env_id, thousands, *words, config="diagnostics"):
    """Of the final evaluation."""
    job = sandbox.train(config, f"--set=env.id={env_id}", "--steps", f"{thousands}k", *words)
    result = job.succeeds(timeout=240)
    assert result["status"] == "completed" and result["failed_rows"] == 0
    last = [line for line in read_jsonl(job.run_dir / "metrics.jsonl") if "eval/score" in line][-1]
    assert last["eval/update"] == result["updates"]
    return last["eval/score"]


@pytest.mark.parametrize("env_id", PPO)
def test_ppo_scores(sandbox, env_id):
    least, thousands, words = PPO[env_id]
    assert score(sandbox, env_id, thousands, *words) >= least - 1e-9


EVALUATION = "evaluation { every_updates: 20000 episodes: 100 num_envs: 20 }"


@pytest.mark.parametrize(
    "config, env_id, thousands", [("cartpole_dqn", "Password", 16), ("cartpole_impala", "Password", 200)]
)
def test_other_algorithms_score(sandbox, config, env_id, thousands):
    """At the settings of what they ship with."""
    assert score(sandbox, env_id, thousands, config=sandbox.config(config, EVALUATION)) >= 0.97


# What is switched off, and what is left of the score at best.
WITHOUT = {
    "memory": ("Memory", 60, 0.4, []),
    "mask": ("Mask", 40, 0.4, ["--set=env.options.kwargs.hide_mask=true"]),
    "chance": ("Stochastic", 100, 0.1, ["--set=evaluation.greedy=true"]),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_without_it_the_score_fails(sandbox, what):
    env_id, thousands, most, words = WITHOUT[what]
    assert score(sandbox, env_id, thousands, *words) <= most
