"""Evaluation goes on beside training, in no collective's time."""

import json
import re
import statistics

import pytest

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


def test_the_untrained_policy_may_be_evaluated_and_cannot_end_the_run(sandbox):
    job = sandbox.train(
        "cartpole_fast", "--set=evaluation.at_start=true", "--set=evaluation.every_updates=1000",
        "--set=evaluation.stop_return=1", "--set=evaluation.episodes=4", "--set=evaluation.num_envs=4",
        f"--set=total_env_steps={100 * 64 * 32}",
    )  # fmt: skip
    assert job.wait() == 2 and "evaluation.min_training_return" in job.output()

    evaluation = "evaluation { at_start: true every_updates: 1000 stop_return: 1 episodes: 4 num_envs: 4 }"
    job = sandbox.train(
        sandbox.config("cartpole_fast", evaluation), "--nproc-per-node=2", f"--set=total_env_steps={100 * 4096}",
        run_dir="start",
    )  # fmt: skip
    assert job.succeeds()["updates"] == 100
    evaluations = [line for line in read_jsonl(job.run_dir / "metrics.jsonl") if "eval/mean_return" in line]
    assert [line["eval/update"] for line in evaluations] == [0, 100]
    assert evaluations[0]["eval/mean_return"] >= 1  # it would have, later


@pytest.fixture(scope="module")
def maze(shared_sandbox):
    """A run whose episodes have metrics of their own."""
    job = shared_sandbox.train(
        "maze_ppo", "--set=model.recurrent=NONE", "--set=env.options.maze.size=5", "--set=evaluation.every_updates=0",
        f"--set=total_env_steps={10 * 64 * 128}",
    )  # fmt: skip
    job.succeeds()
    return job


def test_evaluate_prints_every_episode_as_json(maze):
    before = (maze.run_dir / "metrics.jsonl").read_bytes()
    result = maze.sandbox.run("evaluate", maze.run_dir, "--episodes", 7, "--json")
    assert result.returncode == 0, result.stderr
    played = json.loads(result.stdout)
    assert played.keys() == {"env_id", "checkpoint", "mean_return", "min_return", "max_return", "episodes"}
    assert played["env_id"] == "Maze"
    assert (maze.run_dir / "checkpoints" / "latest").samefile(played["checkpoint"])
    assert len(played["episodes"]) == 7
    for episode in played["episodes"]:
        assert episode.keys() == {"return", "length", "spl", "success"}
        assert 1 <= episode["length"] <= 128
        assert episode["return"] == episode["success"] == (episode["spl"] > 0)
        assert episode["success"] or episode["length"] == 128
    returns = [episode["return"] for episode in played["episodes"]]
    assert played["mean_return"] == pytest.approx(statistics.mean(returns))
    assert played["min_return"] == min(returns) and played["max_return"] == max(returns)
    assert (maze.run_dir / "metrics.jsonl").read_bytes() == before  # it only looks


def test_evaluate_says_it_in_one_line(maze):
    result = maze.sandbox.run("evaluate", maze.run_dir / "checkpoints" / "latest", "--episodes", 3)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"Maze  mean return \d\.\d\d over 3 episodes \(\d\.0 to \d\.0\)\n", result.stdout)
