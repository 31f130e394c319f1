"""Training in an empty folder until it is solved, and what it leaves there."""

import pathlib
import re

import numpy as np
import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness import read_jsonl, summary, training_lines


@pytest.fixture(scope="module")
def run(shared_sandbox):
    job = shared_sandbox.train("cartpole_fast", "--nproc-per-node", 2)
    job.succeeds()
    return job


def test_two_learners_solve_cartpole(run):
    result = summary(run.run_dir)
    assert result["status"] == "solved"
    assert result["env_id"] == "CartPole-v1"
    assert result["algorithm"] == "ppo"
    assert result["world_size"] == 2
    assert result["eval_mean_return"] >= 475
    assert result["eval_episodes"] == 100
    assert result["restarts"] == {"learner": 0, "env_worker": 0}
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", result["version"])
    assert result["global_steps"] == result["updates"] * 2 * 64 * 32
    assert result["wall_seconds"] > 0 and result["steps_per_second"] > 0
    assert result["episodes"] > 100 and result["mean_return"] > 100


def test_both_ranks_stop_at_the_same_update_with_the_same_parameters(run):
    result = summary(run.run_dir)
    digests = result["parameters_sha256"]
    assert len(digests) == 2 and digests[0] == digests[1]
    assert re.fullmatch("[0-9a-f]{64}", digests[0])
    lines = training_lines(run.run_dir)
    assert result["stop_update"] == result["updates"] == lines[-1]["update"]
    for rank in (0, 1):
        log = (run.run_dir / "logs" / f"rank_{rank}.log").read_text()
        assert f"rank {rank} of 2" in log
        stopped = re.findall(r"solved at update (\d+)", log)
        assert stopped == [str(result["stop_update"])], log


def test_metrics_have_one_line_for_each_update(run):
    lines = training_lines(run.run_dir)
    assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["global_step"] for line in lines] == [4096 * u for u in range(1, len(lines) + 1)]
    wall = [line["wall_seconds"] for line in lines]
    assert all(a < b for a, b in zip(wall, wall[1:]))
    names = {
        "charts/episodic_return", "charts/episodic_length", "charts/learning_rate", "charts/SPS",
        "losses/value_loss", "losses/policy_loss", "losses/entropy", "losses/old_approx_kl", "losses/approx_kl",
        "losses/clipfrac", "losses/explained_variance",
        "perf/env_wait_fraction", "perf/inference_fraction", "perf/update_fraction", "env/restarts",
        "sync/all_reduce_ms", "sync/bytes", "sync/preempted_ranks", "policy/lag_mean", "system/cpu_percent",
    }  # fmt: skip
    for line in lines:
        assert names <= line.keys()
        assert all(np.isfinite(value) for value in line.values())
        assert 0 <= line["perf/update_fraction"] <= 1
    evaluations = [line for line in read_jsonl(run.run_dir / "metrics.jsonl") if "eval/mean_return" in line]
    assert evaluations[-1]["eval/mean_return"] == summary(run.run_dir)["eval_mean_return"]


def test_tensorboard_reads_the_same_numbers(run):
    events = EventAccumulator(str(run.run_dir / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    lines = training_lines(run.run_dir)
    for name in ("charts/episodic_return", "losses/policy_loss", "perf/update_fraction"):
        scalars = events.Scalars(name)
        assert [s.step for s in scalars] == [line["global_step"] for line in lines]
        np.testing.assert_allclose([s.value for s in scalars], [line[name] for line in lines], rtol=1e-6)
    assert events.Scalars("eval/mean_return")


def test_checkpoints_load_in_python(run):
    checkpoints = run.run_dir / "checkpoints"
    for name in ("latest", "best"):
        folder = checkpoints / name
        assert folder.is_symlink() and not pathlib.Path(folder.readlink()).is_absolute()
        weights = load_file(folder / "weights.safetensors")
        assert sum(w.size for w in weights.values()) == 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1
        assert all(w.dtype == np.float32 and np.isfinite(w).all() for w in weights.values())
        assert load_file(folder / "state.safetensors")
    steps = summary(run.run_dir)["global_steps"]
    assert (checkpoints / "latest").resolve().name == f"step_{steps:012d}"


def test_the_resolved_configuration_is_written(run):
    text = (run.run_dir / "config.textproto").read_text()
    assert 'id: "CartPole-v1"' in text and "num_envs: 64" in text and "gae_lambda: 0.9" in text
    assert "max_grad_norm" in text  # defaults are spelled out too


def test_the_last_lines_say_what_happened_and_where(run):
    output = run.output()
    assert "solved: ppo on CartPole-v1" in output
    assert "parameters equal on all 2 ranks" in output
    assert str(run.run_dir) in output


def test_sockets_and_scratch_folders_are_removed(run):
    assert not list(run.sandbox.tmp.iterdir())
