"""The same seed gives the same parameters, bit for bit."""

import pytest

UPDATES = 30


def parameters(sandbox, name, *words):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), *words, run_dir=name,
    )  # fmt: skip
    result = job.succeeds()
    assert result["status"] == "completed" and result["updates"] == UPDATES
    (digest,) = set(result["parameters_sha256"])
    return digest


@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize("more", [(), ("env.num_workers=2", "env.groups=2")], ids=["one_worker", "two_workers"])
def test_the_same_seed_gives_the_same_parameters(sandbox, learners, more):
    words = ["--nproc-per-node", learners, "--set", f"total_env_steps={UPDATES * learners * 64 * 32}"]
    for override in more:
        words += ["--set", override]
    first = parameters(sandbox, "first", *words)
    assert parameters(sandbox, "second", *words) == first
    assert parameters(sandbox, "other", *words, "--set", "seed=2") != first
