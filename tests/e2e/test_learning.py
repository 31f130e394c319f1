"""More learners learn as much from a step as one does (CleanRL: "no loss of sample efficiency")."""

import statistics

import pytest

from harness import training_lines


def learned(sandbox, learners, environments, seed, steps):
    """Training returns, update by update."""
    job = sandbox.train(
        "cartpole_ppo", "--nproc-per-node", learners, "--set", f"env.num_envs={environments}", "--set", f"seed={seed}",
        "--set", f"total_env_steps={steps}", "--set", "evaluation.every_updates=0", "--set", "checkpoint.every_updates=0",
        run_dir=f"{learners}x{environments}_{seed}",
    )  # fmt: skip
    result = job.succeeds(timeout=600)
    lines = training_lines(job.run_dir)
    assert result["global_steps"] >= steps and result["updates"] == lines[-1]["update"]
    return [line["charts/episodic_return"] for line in lines if "charts/episodic_return" in line]


def test_two_learners_of_four_environments_learn_in_a_moment(sandbox):
    """The short form of the test below: the same batch, of the same size, with the same number of updates."""
    one = learned(sandbox, 1, 8, seed=1, steps=60_000)
    two = learned(sandbox, 2, 4, seed=1, steps=60_000)
    assert abs(len(one) - len(two)) <= 2
    assert one[-1] > 2 * one[0] and two[-1] > 2 * two[0]


@pytest.mark.long
def test_two_learners_of_four_environments_learn_as_one_of_eight(sandbox):
    seeds = (1, 2, 3, 4, 5)
    one = [statistics.mean(learned(sandbox, 1, 8, seed, 500_000)) for seed in seeds]
    two = [statistics.mean(learned(sandbox, 2, 4, seed, 500_000)) for seed in seeds]
    noise = ((statistics.variance(one) + statistics.variance(two)) / len(seeds)) ** 0.5
    print(f"1 x 8: {one}; 2 x 4: {two}; standard error of the difference: {noise:.1f}")
    assert min(*one, *two) > 150, "somebody does not learn"
    assert abs(statistics.mean(one) - statistics.mean(two)) <= 3 * noise
