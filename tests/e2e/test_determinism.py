"""The same seed gives the same parameters, bit for bit, and stops at the same update."""

import os
import signal
import time

import pytest

from harness import BIN, coordinator_pb2, read_jsonl, training_lines

UPDATES = 30
STANDS_STILL = 2  # seconds, of each evaluation
DELAY = 4  # evaluation.deterministic_delay_updates


def parameters(sandbox, name, *words):
    job = sandbox.train(sandbox.config("cartpole_fast"), *words, run_dir=name)
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


def slow_evaluations(sandbox):
    """Each evaluation's environments stand still for a while. Who serves so, and the file that then is there."""
    server, stood = sandbox.folder / "slow_server", sandbox.folder / "stood"
    server.write_text(f"""#!/bin/sh
case "$*" in */evaluation_*) echo >> "{stood}"; sleep {STANDS_STILL};; esac
exec "{BIN}/flotilla-envserver" "$@"
""")
    server.chmod(0o755)
    return f"--set=env.server=exec:{server}", stood


def solved(sandbox, name, *words, seed=5):
    """As a user runs it, but that its verdicts do not act at once."""
    job = sandbox.train(
        "cartpole_fast", "--nproc-per-node=2", "--set=evaluation.stop_at_once=false", f"--set=seed={seed}",
        "--set=evaluation.every_updates=8", *words, run_dir=name,
    )  # fmt: skip
    result = job.succeeds()
    assert result["status"] == "solved", job.diagnosis()
    assert result["stop_update"] == result["eval_update"] + DELAY
    (digest,) = set(result["parameters_sha256"])
    return result["stop_update"], digest, result["eval_mean_return"]


def test_the_same_seed_stops_at_the_same_update(sandbox):
    first = solved(sandbox, "first")
    assert solved(sandbox, "second") == first
    slow_server, stood = slow_evaluations(sandbox)
    assert solved(sandbox, "slow", slow_server) == first
    assert stood.exists()
    assert solved(sandbox, "other", seed=6) != first


# Evaluations of 6 s, of which the first ends the run; a collective may take 4 s.
def sleep(sandbox, name):
    evaluation = "--set=evaluation."
    return sandbox.train(
        "sleep_scaling", "--nproc-per-node=2", "--set=env.num_workers=1", "--set=env.groups=1", "--set=env.num_envs=4",
        "--set=rollout.length=8", "--set=env.options.sleep.step_ms=10", "--set=env.options.sleep.episode_steps=600",
        "--set=distributed.timeout_seconds=4", "--set=distributed.heartbeat_seconds=0.2", "--set=total_env_steps=1e9",
        evaluation + "every_updates=2", evaluation + "episodes=2", evaluation + "num_envs=2",
        evaluation + "stop_return=600", run_dir=name,
    )  # fmt: skip


def await_everybody_waiting(job):
    return job.await_status(
        lambda s: [(learner.phase, learner.waits_for) for learner in s.learner]
        == 2 * [(coordinator_pb2.EVALUATING, "the evaluation of update 2")],
        "all ranks to wait for the verdict",
    )


def test_everybody_waits_for_a_verdict_and_says_so(sandbox):
    job = sleep(sandbox, "run")
    status = await_everybody_waiting(job)
    assert status.update == 2 + DELAY - 1 and status.generation == 1
    result = job.succeeds()
    assert result["status"] == "solved" and result["stop_update"] == 2 + DELAY
    assert result["restarts"]["learner"] == 0
    evaluations = [line["eval/update"] for line in read_jsonl(job.run_dir / "metrics.jsonl") if "eval/update" in line]
    assert evaluations == [2]


def test_an_evaluation_that_is_lost_with_rank_0_is_played_again(sandbox):
    ends = []
    for name in ("first", "second"):
        job = sleep(sandbox, name)
        status = await_everybody_waiting(job)
        os.kill(status.learner[0].pid, signal.SIGKILL)
        killed_at = time.monotonic()
        result = job.succeeds()
        assert time.monotonic() - killed_at > 6  # the whole of it
        assert result["status"] == "solved" and result["stop_update"] == 2 + DELAY, job.diagnosis()
        assert result["restarts"]["learner"] == 1
        assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, 2 + DELAY + 1))
        ends.append(result["parameters_sha256"])
    assert ends[0] == ends[1] and len(set(ends[0])) == 1
