"""Every metric that Flotilla promises, by the name it promises, for each algorithm."""

import math
import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness import SOURCE, read_jsonl, training_lines

ALWAYS = {
    "charts/episodic_return", "charts/episodic_length", "charts/learning_rate", "charts/SPS", "charts/episodes",
    "losses/grad_norm", "perf/env_wait_fraction", "perf/inference_fraction", "perf/update_fraction",
    "sync/all_reduce_ms", "sync/bytes", "sync/preempted_ranks", "env/restarts", "policy/lag_mean", "policy/lag_max",
    "rollout/dropped", "env/failed_rows",
} | {  # of two ranks
    f"system/{use}{rank}" for use in ("cpu_percent", "memory_bytes") for rank in ("", "/rank_0", "/rank_1")
}  # fmt: skip
POLICY_GRADIENT = {
    "losses/value_loss", "losses/policy_loss", "losses/entropy", "losses/old_approx_kl", "losses/approx_kl",
    "losses/clipfrac", "losses/explained_variance",
}  # fmt: skip
VALUE = {"losses/td_loss", "losses/q_values", "charts/epsilon", "replay/size"}
SOFT = {
    "losses/critic_loss", "losses/policy_loss", "losses/temperature", "losses/entropy", "losses/q_values", "replay/size",
}  # fmt: skip
EVALUATION = {"eval/mean_return", "eval/mean_length", "eval/update"}
WITH_A_GPU = {
    f"system/{use}{rank}" for use in ("gpu_percent", "gpu_memory_bytes") for rank in ("", "/rank_0", "/rank_1")
}
EVERY_LINE = {"global_step", "update", "wall_seconds"}

# The updates of each run's lines, and what only its algorithm has.
RUNS = {
    "cartpole_fast": (20, 4096, POLICY_GRADIENT),
    "cartpole_impala": (40, 1280, POLICY_GRADIENT),
    "cartpole_dqn": (60, 16, VALUE),
    "pendulum_sac": (120, 32, SOFT),
}


def test_the_guide_says_what_each_is():
    table = re.findall(r"^\| (`.*?) \| \S", (SOURCE / "launcher" / "README.md").read_text(), re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`([a-z]+/\w+)`", cell)}
    promised = ALWAYS | POLICY_GRADIENT | VALUE | SOFT | EVALUATION | WITH_A_GPU
    assert {name for name in promised if "/rank_" not in name} - named == set()


@pytest.mark.parametrize("config", RUNS)
def test_every_promised_metric_is_there_and_no_other(sandbox, config):
    updates, steps, own = RUNS[config]
    evaluation = "evaluation { every_updates: 5 episodes: 2 num_envs: 2 }"
    job = sandbox.train(
        sandbox.config(config, evaluation), "--nproc-per-node", 2, "--set", f"total_env_steps={updates * steps}",
        "--set", "metrics.every_updates=1",
    )  # fmt: skip
    job.succeeds()
    lines = read_jsonl(job.run_dir / "metrics.jsonl")
    assert all(EVERY_LINE <= line.keys() for line in lines)
    assert all(math.isfinite(value) for line in lines for value in line.values())
    names = {name for line in lines for name in line} - EVERY_LINE - WITH_A_GPU
    assert names == ALWAYS | own | EVALUATION
    # Everything but what needs an episode's end is in every update's line.
    for line in training_lines(job.run_dir):
        assert (ALWAYS | own) - line.keys() <= {"charts/episodic_return", "charts/episodic_length"}
        assert line["sync/bytes"] > 0 or line["losses/grad_norm"] == 0
    assert len(training_lines(job.run_dir)) == updates

    events = EventAccumulator(str(job.run_dir / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    assert set(events.Tags()["scalars"]) - WITH_A_GPU == names
    for name in names:
        logged = [(line["global_step"], line[name]) for line in lines if name in line]
        scalars = events.Scalars(name)
        assert [s.step for s in scalars] == [step for step, _ in logged]
        assert [s.value for s in scalars] == pytest.approx([value for _, value in logged], rel=1e-6)
