"""gym: environments, played by Python, trained on as native ones are."""

import os
import pathlib
import signal

import pytest

from harness import SOURCE

GYM_ENVS = {"PYTHONPATH": str(SOURCE / "tests" / "envserver")}
QUIET = "--set=evaluation.every_updates=0"


@pytest.mark.parametrize("config, env_id", [("cartpole_ppo", "CartPole-v1"), ("pendulum_ppo", "Pendulum-v1")])
def test_it_trains(sandbox, config, env_id):
    job = sandbox.train(config, f"--set=env.id=gym:{env_id}", "--set=total_env_steps=8192", QUIET)
    result = job.succeeds()
    assert (result["status"], result["env_id"], result["global_steps"]) == ("completed", f"gym:{env_id}", 8192)
    assert result["restarts"] == {"learner": 0, "env_worker": 0}
    if env_id == "Pendulum-v1":
        assert result["episodes"] == 8192 // 200 // 4 * 4
        assert -2000 < result["mean_return"] < -500  # what an untrained policy gets


def test_a_worker_that_is_killed_is_replaced(sandbox):
    job = sandbox.train("cartpole_ppo", "--set=env.id=gym:CartPole-v1", "--set=total_env_steps=1e9", QUIET)

    def player(status):
        workers = status.learner[0].env_worker if status.learner else ()
        return workers and workers[0].state == "playing" and workers[0].pid in job.sandbox.processes() and workers[0].pid

    job.await_update(2)
    pid = player(job.await_status(player, "a worker that plays"))
    assert "flotilla_gym" in sandbox.processes()[pid]
    os.kill(pid, signal.SIGKILL)
    job.await_status(lambda s: s.env_worker_restarts == 1 and player(s) not in (None, pid), "another in its place")
    job.await_more_updates(2)
    assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    assert job.succeeds()["restarts"]["env_worker"] == 1


def test_other_hosts_serve_it_too(sandbox):
    job = sandbox.train(
        "cartpole_ppo", "--set=env.id=gym:CartPole-v1", "--set=total_env_steps=2048", QUIET,
        "--set=env.remote_workers=1",
    )  # fmt: skip
    server = sandbox.serve("flotilla", "serve-envs", f"--coordinator={job.address()}", f"--token-file={job.run_dir}/token")
    assert job.succeeds()["status"] == "completed"
    assert server.wait(20) == 0


def test_what_cannot_be_played_is_told_before_anything_starts(sandbox):
    for env_id, words in (
        ("gym:Acrobot-v7", ("gym:Acrobot-v7", "v1")),
        ("gym:gym_envs:Unusual-v0", ("observation space", "Text")),
    ):
        result = sandbox.run("train", "cartpole_ppo", f"--set=env.id={env_id}", "--run-dir=run", env=GYM_ENVS)
        assert result.returncode == 2, result.stderr
        for word in words:
            assert word in result.stderr
    assert not list(sandbox.folder.iterdir())


def test_doctor_tells_the_truth(sandbox):
    assert "gym: environments work" in sandbox.run("doctor").stdout
    without = pathlib.Path(sandbox.tmp) / "python"
    without.write_text(f'#!/bin/sh\nexec {os.environ["FLOTILLA_PYTHON"]} -S -E "$@"\n')
    without.chmod(0o755)
    report = sandbox.run("doctor", env={"FLOTILLA_PYTHON": str(without)})
    assert report.returncode == 0  # a note: native environments work
    assert "gym: environments need gymnasium grpcio protobuf numpy" in report.stdout
    assert "-m pip install gymnasium grpcio protobuf numpy" in report.stdout
