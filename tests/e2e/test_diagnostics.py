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
    # 64 units end in a corner, or not, by the seed: 0.86 to 1.00 of six; these, 0.995 and more.
    "Squared": (0.971, 800, ["--set=model.hidden=[128,128]", "--set=optimizer.learning_rate=1e-3"]),
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


# At the settings of what they ship with, but for the words: configuration, environment -> the least score, steps.
# With 32 cells it is chance by the seed whether the steps suffice. With 64 it was by how rollouts two and three updates
# old took turns on a busy machine, 2 of 53 runs having less (0.734 and 0.968); at a fixed age eight seeds of eight had 0.994.
# So all of IMPALA's are of a fixed age.
LSTM = ["--set=model.recurrent=LSTM", "--set=model.recurrent_size=64", "--set=model.share_trunk=true"]
OTHERS = {
    ("cartpole_dqn", "Bandit"): (0.904, 8, []),
    ("cartpole_dqn", "Mask"): (0.95, 10, []),
    ("cartpole_dqn", "Password"): (1.0, 14, []),
    # How many steps are left is not seen: what is to come should count for little.
    ("cartpole_dqn", "Spaces"): (
        0.972,
        6,
        ["--set=env.num_envs=64", "--set=dqn.batch_size=128", "--set=dqn.discount=0.5", "--set=dqn.epsilon_decay_steps=2000"],
    ),
    ("cartpole_dqn", "Squared"): (
        0.971,
        80,
        [
            "--set=env.num_envs=64", "--set=dqn.batch_size=256", "--set=dqn.updates_per_rollout=4", "--set=dqn.discount=0.5",
            "--set=dqn.epsilon_decay_steps=30000",
        ],  # fmt: skip
    ),
    ("cartpole_impala", "Bandit"): (0.904, 200, []),
    ("cartpole_impala", "Continuous"): (0.907, 1000, []),
    ("cartpole_impala", "Mask"): (0.95, 200, []),
    ("cartpole_impala", "Memory"): (0.979, 1200, LSTM),
    ("cartpole_impala", "Password"): (0.97, 200, []),
    ("cartpole_impala", "Spaces"): (0.972, 250, ["--set=rollout.length=4"]),
    ("cartpole_impala", "Squared"): (0.971, 3000, []),
    ("cartpole_impala", "Stochastic"): (0.998, 200, []),
    # An episode is worth little: the bonus for entropy is to be less.
    ("pendulum_sac", "Continuous"): (
        0.907,
        14,
        ["--set=sac.learn_temperature=false", "--set=sac.initial_temperature=0.02", "--set=sac.discount=0.95"],
    ),
}
EVALUATION = "evaluation { every_updates: 100000 episodes: 500 num_envs: 50 greedy: %s }"


@pytest.mark.parametrize("config, env_id", OTHERS)
def test_other_algorithms_score(sandbox, config, env_id):
    least, thousands, words = OTHERS[config, env_id]
    if "impala" in config:
        words = [*words, "--set=impala.deterministic_lag=true"]
    evaluation = EVALUATION % ("true" if "dqn" in config else "false")
    assert score(sandbox, env_id, thousands, *words, config=sandbox.config(config, evaluation)) >= least - 1e-9


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
