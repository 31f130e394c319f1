"""Environments with several agents: together, in turn, and against earlier selves."""

import os
import re
import signal

import pytest

from harness import BIN, guide, read_jsonl, training_lines

SELFPLAY = ("--set=env.id=Selfplay", "--set=selfplay.pool_size=8")


def evaluations(run_dir):
    return [line for line in read_jsonl(run_dir / "metrics.jsonl") if "eval/score" in line]


def test_the_readme_is_true(sandbox):
    section = guide("envserver", "Several agents")
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", section)
    (sandbox.folder / "build").mkdir()
    (sandbox.folder / "build" / "bin").symlink_to(BIN)
    for command in block.replace("\\\n", "").splitlines():
        done = sandbox.run(*command.split()[1:])
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    runs = sandbox.folder / "runs"
    assert evaluations(runs / "both")[-1]["eval/score"] == pytest.approx(1)
    last = training_lines(runs / "both")[-1]
    assert last["agents/return_0"] > 0.9 and last["agents/return_1"] > 0.9
    assert last["agents/return_sum"] == pytest.approx(last["agents/return_0"] + last["agents/return_1"])
    # Whoever begins can always win, and the other one never errs.
    assert evaluations(runs / "nim")[-1]["eval/score"] >= 0.95
    assert float(re.search(r"mean return (\S+) over 100 episodes", done.stdout)[1]) >= 0.9
    nim = training_lines(runs / "nim")
    assert nim[-1]["charts/elo"] > 1000 and nim[-1]["selfplay/snapshots"] == 8


def test_a_player_that_never_learns_loses(sandbox):
    words = ("--set=evaluation.kwargs.opponent=best", "--set=optimizer.learning_rate=1e-9", "--set=evaluation.greedy=false")
    job = sandbox.train("diagnostics", *SELFPLAY, *words, "--steps=20k")
    job.succeeds()
    assert evaluations(job.run_dir)[-1]["eval/score"] < 0.5


@pytest.mark.parametrize(
    "config, words", [("cartpole_impala", ("--steps=20k",)), ("cartpole_dqn", ("--steps=5k", "--set=dqn.learning_starts=1000"))]
)
def test_other_algorithms_play_too(sandbox, config, words):
    quiet = ("--set=evaluation.every_updates=0", "--set=env.num_envs=8", "--set=env.num_workers=1", "--set=env.groups=2")
    job = sandbox.train(sandbox.config(config), *SELFPLAY, *quiet, *words)
    result = job.succeeds()
    assert result["status"] == "completed" and result["failed_rows"] == 0
    assert training_lines(job.run_dir)[-1]["selfplay/games"] > 100


def test_no_snapshot_is_lost_with_a_learner(sandbox):
    words = ("--set=selfplay.pool_size=1000", "--set=selfplay.snapshot_every_updates=1", "--set=evaluation.every_updates=0")
    job = sandbox.train("diagnostics", "--nproc-per-node=2", "--set=env.id=Selfplay", *words, "--set=total_env_steps=1e9")
    before = job.await_update(20)
    for rank in (1, 0):
        pid = next(learner.pid for learner in before.learner if learner.rank == rank)
        os.kill(pid, signal.SIGKILL)
        # By what each says: what the other did before the loss may be told after it.
        job.await_status(
            lambda s, was=before: s.generation > was.generation
            and len(s.learner) == 2
            and all(learner.update > was.update for learner in s.learner),
            "a generation that trains",
        )
        before = job.await_more_updates(2)
    job.completes_after(50, before.global_step // before.update)
    result = job.succeeds()
    assert result["restarts"]["learner"] == 2 and "started_over" not in result
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    lines = training_lines(job.run_dir)
    # One of what it began with, and one of each update, for as long as there is room.
    assert [line["selfplay/snapshots"] for line in lines] == [min(line["update"] + 1, 1000) for line in lines]
    games = [line["selfplay/games"] for line in lines]
    assert games == sorted(games) and games[-1] > 1000


def test_the_pool_is_in_the_checkpoint(sandbox):
    words = ("--set=selfplay.snapshot_every_updates=5", "--set=evaluation.every_updates=0")
    first = sandbox.train("diagnostics", *SELFPLAY, *words, "--set=total_updates=30", run_dir="run")
    first.succeeds()
    was = training_lines(first.run_dir)[-1]
    second = sandbox.train("--resume", "--set=total_updates=32")
    second.succeeds()
    now = training_lines(first.run_dir)[-1]
    assert now["update"] == 32 and now["selfplay/snapshots"] == was["selfplay/snapshots"] == 7
    assert now["selfplay/games"] > was["selfplay/games"] > 0
    assert now["charts/elo"] == pytest.approx(was["charts/elo"], abs=100)
    against_them = sandbox.run("evaluate", "run", "--episodes=20")
    assert against_them.returncode == 0, against_them.stderr


# One whose agents act at once, one in which they take turns, with masks.
@pytest.mark.parametrize(
    "env_id, words",
    [("pettingzoo:classic/rps_v2", ()), ("pettingzoo:classic/tictactoe_v3", ("--set=selfplay.snapshot_every_updates=5",))],
)
def test_pettingzoos_games_train(sandbox, env_id, words):
    sizes = ("--set=env.num_envs=16", "--set=rollout.length=32", "--set=evaluation.every_updates=0")
    job = sandbox.train("diagnostics", "--nproc-per-node=2", f"--set=env.id={env_id}", *sizes, *words, "--steps=16k")
    result = job.succeeds(timeout=240)
    assert result["status"] == "completed" and result["failed_rows"] == 0 and result["episodes"] > 50
    assert len(set(result["parameters_sha256"])) == 1
    assert ("selfplay/games" in training_lines(job.run_dir)[-1]) == bool(words)


@pytest.mark.parametrize(
    "words, expected",
    [
        (("--set=env.id=CartPole-v1", "--set=selfplay.pool_size=3"), ("selfplay is set", "one agent", "leave selfplay out")),
        (("--set=env.id=Selfplay", "--set=selfplay.opponent_slots=2"), ("selfplay.opponent_slots is 2", "use at most 1")),
        (("--set=env.id=Selfplay", "--set=env.num_envs=9"), ("env.num_envs is 9", "2 agents", "use 8 or 10")),
        (("--set=env.id=Connect4", "--set=env.options.kwargs.opponent=god"), ('opponent is "god"', "two_ply")),
    ],
)
def test_what_does_not_fit_agents_is_refused(sandbox, words, expected):
    result = sandbox.run("train", "diagnostics", *words, "--dry-run")
    assert result.returncode == 2
    for text in expected:
        assert text in result.stderr, result.stderr
