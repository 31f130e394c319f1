"""Evaluation goes on beside training, in no collective's time."""

from harness import read_jsonl, training_lines

ROWS, LENGTH, UPDATES = 4, 8, 50


def test_an_evaluation_may_take_longer_than_a_collective(sandbox):
    # An episode sleeps for 3 s, three times what a collective may take.
    job = sandbox.train(
        "sleep_scaling", "--nproc-per-node=2", "--set=env.num_workers=1", "--set=env.groups=1",
        f"--set=env.num_envs={ROWS}", f"--set=rollout.length={LENGTH}", "--set=env.options.sleep.step_ms=10",
        "--set=env.options.sleep.episode_steps=300", f"--set=total_env_steps={2 * UPDATES * ROWS * LENGTH}",
        "--set=distributed.timeout_seconds=1", "--set=evaluation.every_updates=2", "--set=evaluation.episodes=2",
        "--set=evaluation.num_envs=2",
    )  # fmt: skip
    result = job.succeeds()
    assert result["status"] == "completed" and result["restarts"] == {"learner": 0, "env_worker": 0}
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, UPDATES + 1))
    evaluations = [line for line in read_jsonl(job.run_dir / "metrics.jsonl") if "eval/mean_return" in line]
    first = next(line for line in evaluations if line["eval/update"] == 2)
    assert first["update"] > 10  # training went on meanwhile
    assert evaluations[-1]["eval/update"] == UPDATES  # and waited for the last one
