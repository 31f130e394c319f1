"""kill -9 of env workers in mid-run: training goes on to its end."""

import os
import signal

import pytest

from harness import training_lines

UPDATE = 2 * 64 * 32


def kill_worker(job, rank, index):
    def playing(status):
        workers = status.learner[rank].env_worker if len(status.learner) > rank else ()
        return len(workers) > index and workers[index].state == "playing" and workers[index].pid in job.sandbox.processes()

    pid = job.await_status(playing, "a worker that plays").learner[rank].env_worker[index].pid
    os.kill(pid, signal.SIGKILL)
    return pid


# With one worker a learner waits for its replacement; with two it goes on with the other.
@pytest.mark.parametrize("workers", [1, 2])
def test_training_goes_on_to_the_end(sandbox, workers):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--nproc-per-node", 2, "--set", f"env.num_workers={workers}",
        "--set", "total_env_steps=1000000000",
    )  # fmt: skip
    job.await_update(5)
    killed = kill_worker(job, rank=1, index=workers - 1)
    status = job.await_status(lambda s: s.env_worker_restarts == 1, "the restart in the status")
    assert [learner.env_worker[workers - 1].restarts for learner in status.learner] == [0, 1]
    revived = job.await_status(
        lambda s: s.learner[1].env_worker[workers - 1].state == "playing", "the new worker to play"
    ).learner[1].env_worker[workers - 1]  # fmt: skip
    assert revived.pid != killed
    updates = job.completes_after(60, UPDATE)
    result = job.succeeds()
    assert result["status"] == "completed" and result["global_steps"] >= updates * UPDATE
    assert result["restarts"] == {"learner": 0, "env_worker": 1}
    assert len(set(result["parameters_sha256"])) == 1
    restarts = [line["env/restarts"] for line in training_lines(job.run_dir)]
    assert restarts[0] == 0 and restarts[-1] == 1 and restarts == sorted(restarts)


def test_a_worker_that_hangs_is_replaced(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--set", "total_env_steps=1000000000", "--set", "env.step_timeout_seconds=2",
    )  # fmt: skip
    status = job.await_status(lambda s: s.update >= 5 and s.learner[0].env_worker, "update 5, its worker told")
    os.kill(status.learner[0].env_worker[0].pid, signal.SIGSTOP)
    job.await_status(lambda s: s.env_worker_restarts == 1, "the restart in the status")
    job.completes_after(60, UPDATE // 2)
    result = job.succeeds()
    assert result["status"] == "completed" and result["restarts"]["env_worker"] == 1


def test_a_worker_that_keeps_dying_fails_the_run_by_name(sandbox):
    job = sandbox.train(
        "cartpole_ppo", "--set", "total_env_steps=1000000000", "--set", "evaluation.every_updates=0",
        "--set", "env.max_worker_restarts=1",
    )  # fmt: skip
    job.await_update(5)
    kill_worker(job, 0, 0)
    job.await_status(lambda s: s.env_worker_restarts == 1, "the first restart")
    job.await_more_updates(3)
    kill_worker(job, 0, 0)
    assert job.wait() == 1
    output = job.output()
    for word in ("env worker 0", "env.max_worker_restarts is 1", "rank_0.log"):
        assert word in output
