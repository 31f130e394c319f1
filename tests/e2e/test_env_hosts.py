"""Env servers of other hosts: leased through the coordinator, they come and go."""

import signal

from harness import summary



def test_servers_join_a_run_leave_it_and_are_replaced(sandbox):
    config = sandbox.config("cartpole_fast")
    job = sandbox.train(
        config, "--set=env.num_workers=2", "--set=env.remote_workers=1", "--set=total_env_steps=1e9",
        "--set=evaluation.every_updates=0",
    )  # fmt: skip
    job.await_update(3)  # the local worker alone
    half = job.status()

    def playing(status):
        rows = [worker for learner in status.learner for worker in learner.env_worker if worker.state == "playing"]
        return len(rows) == 2

    first = sandbox.serve("flotilla-envserver", f"--coordinator={job.address()}", f"--token-file={job.run_dir}/token")
    joined = job.await_status(playing, "the first server plays")
    assert joined.generation == half.generation
    first.send_signal(signal.SIGKILL)
    first.wait()
    job.await_status(lambda s: not playing(s), "its loss is seen")
    job.await_more_updates(3)
    second = sandbox.serve("flotilla-envserver", f"--coordinator={job.address()}", f"--token-file={job.run_dir}/token")
    job.await_status(playing, "the second server plays")
    job.await_more_updates(3)
    assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    result = job.succeeds()
    assert result["restarts"]["env_worker"] == 1
    assert summary(job.run_dir)["status"] == "stopped"
    assert second.wait(20) == 0  # the run is over
