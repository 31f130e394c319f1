"""Straggler preemption: one of four ranks steps slower than the rest.

What it can give follows from preemption_min_rollout m, before which nobody is cut: a rank that is k times as slow
takes k * m of a whole rollout's time to get there. At DD-PPO's 0.25 an update lasts at most 1.5 times as long as
among equals for k up to 6; a rank ten times as slow makes it 2.5, and needs m = 0.1 for no loss at all.
"""

import itertools
import statistics

from harness import training_lines

LENGTH, UPDATES, ROWS = 64, 8, 4
SETTINGS = [
    "--nproc-per-node=4", "--set=env.num_workers=1", "--set=env.groups=1", f"--set=env.num_envs={ROWS}",
    "--set=env.options.sleep.step_ms=2", f"--set=rollout.length={LENGTH}", "--set=model.hidden=[8]",
    "--set=ppo.minibatches=2", "--set=env.options.sleep.slow_workers=1",
]  # fmt: skip
FULL = 4 * LENGTH * ROWS  # environment steps of an update that nobody cut short


def train(sandbox, *words, run_dir="run"):
    job = sandbox.train("sleep_scaling", *SETTINGS, *words, run_dir=run_dir)
    result = job.succeeds()
    assert len(set(result["parameters_sha256"])) == 1
    return training_lines(job.run_dir)


def update_seconds(lines):
    wall = [line["wall_seconds"] for line in lines]
    return statistics.median(b - a for a, b in itertools.pairwise(wall))


def test_a_slow_rank_is_cut_short_and_nobody_waits_for_it(sandbox):
    lines = train(
        sandbox, "--set=distributed.preemption_fraction=0.6", "--set=distributed.preemption_min_rollout=0.1",
        "--set=runtime.deterministic=false", f"--set=total_env_steps={UPDATES * FULL}",
    )  # fmt: skip
    steps = [0] + [line["global_step"] for line in lines]
    for line, (before, after) in zip(lines, itertools.pairwise(steps)):
        assert line["sync/preempted_ranks"] == 1, line
        # Three whole rollouts, and of the fourth at least a tenth.
        assert FULL * 3 // 4 + 7 * ROWS <= after - before < FULL
    # The slow rank alone takes 20 ms a step: 1.28 s for a whole rollout.
    assert update_seconds(lines) < 1.28 / 2


def test_dd_ppos_own_settings_pay_for_a_rank_four_times_as_slow(sandbox):
    """Cut from 0.25 of a rollout on, once 0.6 of the ranks are done: a quarter of four times as long costs nothing."""
    slow, equal = "--set=env.options.sleep.slow_factor=4", "--set=env.options.sleep.slow_workers=0"
    settings = ["--set=runtime.deterministic=false", "--set=env.options.sleep.step_ms=5"]
    published = ["--set=distributed.preemption_fraction=0.6", "--set=distributed.preemption_min_rollout=0.25"]
    enough = f"--set=total_env_steps={UPDATES * FULL}"
    among_equals = update_seconds(train(sandbox, *settings, equal, enough, run_dir="equal"))
    waiting = update_seconds(train(sandbox, *settings, slow, f"--set=total_env_steps={3 * FULL}", run_dir="waiting"))
    lines = train(sandbox, *settings, slow, *published, enough)
    steps = [0] + [line["global_step"] for line in lines]
    for line, (before, after) in zip(lines, itertools.pairwise(steps)):
        assert line["sync/preempted_ranks"] == 1, line
        assert FULL * 3 // 4 + LENGTH // 4 * ROWS <= after - before < FULL
    print(f"{update_seconds(lines):.3f} s an update, {among_equals:.3f} among equals, {waiting:.3f} without preemption")
    assert update_seconds(lines) <= 1.5 * among_equals
    assert waiting > 2 * among_equals


def test_without_preemption_everyone_waits_for_the_slow_rank(sandbox):
    lines = train(sandbox, f"--set=total_env_steps={3 * FULL}")
    assert [line["global_step"] for line in lines] == [FULL * (i + 1) for i in range(3)]
    assert all(line["sync/preempted_ranks"] == 0 for line in lines)
    assert update_seconds(lines) >= 1.28


def test_it_is_refused_where_runs_have_to_be_reproducible(sandbox):
    refused = sandbox.run("train", "sleep_scaling", "--set=distributed.preemption_fraction=0.6")
    assert refused.returncode == 2
    assert "runtime.deterministic=false" in refused.stderr
