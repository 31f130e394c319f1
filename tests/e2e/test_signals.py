"""Ctrl-C, SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP: all ranks agree, save and end in order."""

import os
import signal

import pytest

from harness import summary, training_lines

LONG = ("cartpole_ppo", "--set", "total_env_steps=1000000000")


def assert_saved(job, status, least_update):
    result = summary(job.run_dir)
    assert result["status"] == status and result["updates"] >= least_update
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    latest = job.run_dir / "checkpoints" / "latest"
    assert latest.resolve().name == f"step_{result['global_steps']:012d}"
    assert training_lines(job.run_dir)[-1]["update"] == result["updates"]
    assert f"flotilla train --resume --run-dir {job.run_dir}" in job.output()
    for rank in (0, 1):
        log = (job.run_dir / "logs" / f"rank_{rank}.log").read_text()
        assert f"{status} at update {result['updates']}" in log


@pytest.mark.parametrize(
    "number, code, status",
    [
        (signal.SIGINT, 130, "stopped"), (signal.SIGTERM, 75, "preempted"), (signal.SIGUSR1, 75, "preempted"),
        (signal.SIGUSR2, 75, "preempted"), (signal.SIGHUP, 75, "preempted"),
    ],  # fmt: skip
)
def test_a_signal_to_the_launcher_saves_and_stops(sandbox, number, code, status):
    job = sandbox.train(*LONG, "--nproc-per-node", 2)
    update = job.await_update(5).update
    job.process.send_signal(number)
    assert job.wait() == code, job.diagnosis()
    assert_saved(job, status, update)
    assert not list(sandbox.tmp.iterdir()), "sockets are left"


def test_a_signal_to_one_learner_stops_them_all(sandbox):
    """As Slurm does: every process of the job may get it, or only some."""
    job = sandbox.train(*LONG, "--nproc-per-node", 2)
    seen = job.await_update(5)
    os.kill(seen.learner[1].pid, signal.SIGTERM)
    assert job.wait() == 75, job.diagnosis()
    assert_saved(job, "preempted", seen.update)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_signal_to_every_process_stops_them_in_order(sandbox, number):
    """As batch systems do: coordinator and env workers stay until the learners have saved."""
    job = sandbox.train(*LONG, "--nproc-per-node", 2)
    update = job.await_update(5).update
    sandbox.signal_all(number)
    assert job.wait() == 75, job.diagnosis()
    assert_saved(job, "preempted", update)
    assert summary(job.run_dir)["restarts"] == {"learner": 0, "env_worker": 0}
    assert "the coordinator died" not in job.output()


def test_a_second_interrupt_ends_at_once(sandbox):
    """Even where saving would take long: the learners' env workers stand still."""
    job = sandbox.train(*LONG, "--nproc-per-node", 2)
    for learner in job.await_update(3).learner:
        for worker in learner.env_worker:
            os.kill(worker.pid, signal.SIGSTOP)
    job.process.send_signal(signal.SIGINT)
    job.poll(lambda: "Ctrl-C again" in job.output(), "the launcher to say that it stops")
    job.process.send_signal(signal.SIGINT)
    assert job.wait(timeout=20) == 130


def test_what_does_not_stop_in_time_is_killed(sandbox):
    job = sandbox.train(*LONG, "--nproc-per-node", 2, "--set", "runtime.save_and_stop_seconds=2")
    for learner in job.await_update(3).learner:
        os.kill(learner.pid, signal.SIGSTOP)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 1
    assert "did not save and stop" in job.output() and "runtime.save_and_stop_seconds" in job.output()


def test_an_interrupt_before_the_first_update_ends_too(sandbox):
    job = sandbox.train(*LONG, "--nproc-per-node", 2)
    job.poll(lambda: "run folder" in job.output(), "the launcher's first words")
    job.process.send_signal(signal.SIGINT)
    assert job.wait(timeout=60) in (1, 130), job.diagnosis()
