"""model.init_from: a new run begins with what another one learned."""

import numpy as np
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
