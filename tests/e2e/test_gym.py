"""gym: environments, played by Python, trained on as native ones are."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness import BIN, SOURCE, TIMEOUT, summary, training_lines

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
    job.await_status(lambda s: s.env_worker_restarts == 1 and player(s) and player(s) != pid, "another in its place")
    job.await_more_updates(2)
    assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    assert job.succeeds()["restarts"]["env_worker"] == 1


def test_other_hosts_serve_it_too(sandbox):
    job = sandbox.train(
        "cartpole_ppo", "--set=env.id=gym:CartPole-v1", "--set=total_env_steps=2048", QUIET,
        "--set=env.remote_workers=1",
    )  # fmt: skip
    server = sandbox.serve("flotilla", "serve-envs", f"--coordinator={job.address()}", f"--token-file={job.run_dir}/token")
    assert job.process.wait(TIMEOUT) == 0, job.diagnosis()
    assert server.wait(8) == 0  # nobody is left to be told that it goes, which takes 10 s to find out
    assert job.succeeds()["status"] == "completed"


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_cannot_be_played_is_told_before_anything_starts(sandbox, more):
    for config, env_id, asks, words in (
        ("cartpole_ppo", "gym:Acrobot-v7", (), ("gym:Acrobot-v7", "v1")),
        ("cartpole_ppo", "gym:gym_envs:Unusual-v0", (), ("observation space", "Text")),
        ("cartpole_dqn", "gym:gym_envs:Spaces-v0", (), ("dqn needs discrete actions", "choose ppo")),
        (
            "cartpole_ppo", "gym:gym_envs:Spaces-v0", ('--set=model.leaf={path: "goals/0"}',),
            ('model.leaf names "goals/0"', 'did you mean "goal/0"?'),
        ),
        (
            "cartpole_ppo", "gym:gym_envs:Spaces-v0", ('--set=model.leaf={path: "long" encoder: NATURE_CNN}',),
            ('its observation "long" (INT64 []) is no image', "NATURE_CNN"),
        ),
    ):  # fmt: skip
        result = sandbox.run("train", config, f"--set=env.id={env_id}", *asks, "--run-dir=run", *more, env=GYM_ENVS)
        assert result.returncode == 2, result.stderr
        for word in words:
            assert word in result.stderr
    assert not list(sandbox.folder.iterdir())


def test_every_kind_of_space_is_played(sandbox):
    sandbox.env |= GYM_ENVS
    result = sandbox.train(
        "cartpole_ppo", "--set=env.id=gym:gym_envs:Spaces-v0", "--set=total_env_steps=1024", "--set=model.hidden=[32]",
        '--set=model.leaf={path: "counts" encoder: EMBEDDING hidden: [4]}', QUIET,
    ).succeeds()  # fmt: skip
    assert (result["status"], result["global_steps"]) == ("completed", 1024)


def test_a_run_that_never_trained_is_in_nobodys_way(sandbox):
    (sandbox.folder / "run" / "checkpoints").mkdir(parents=True)
    (sandbox.folder / "run" / "config.textproto").write_text("seed: 1\n")
    (sandbox.folder / "run" / "metrics.jsonl").write_text("")
    job = sandbox.train("cartpole_ppo", "--set=total_env_steps=512", QUIET)
    assert job.succeeds()["status"] == "completed"
    again = sandbox.run("train", "cartpole_ppo", "--set=total_env_steps=512", "--run-dir=run")
    assert again.returncode == 2 and "holds a run already" in again.stderr


def test_what_does_not_fit_into_memory_is_refused_by_name_and_is_in_nobodys_way(sandbox):
    result = sandbox.run(
        "train", "cartpole_ppo", "--set=rollout.length=100000000", "--set=runtime.memory_budget_bytes=1000000000", "--run-dir=run"
    )
    assert result.returncode == 2, result.stderr
    for word in ("rollout.length", "would take", "it may take 1.0 GB (runtime.memory_budget_bytes)"):
        assert word in result.stderr
    assert sandbox.train("cartpole_ppo", "--set=total_env_steps=512", QUIET).succeeds()["status"] == "completed"


def test_an_image_that_becomes_a_vector_is_warned_of(sandbox):
    words = ("train", "cartpole_ppo", "--set=env.id=gym:gym_envs:Pixels-v0", "--dry-run")
    result = sandbox.run(*words, "--set=env.options.gym_kwargs.shape=[16, 16, 3]", env=GYM_ENVS)
    assert result.returncode == 0, result.stderr
    assert "warning" in result.stderr and "UINT8 [16, 16, 3]" in result.stderr and "encoder: RESNET" in result.stderr
    result = sandbox.run(*words, env=GYM_ENVS)  # gray, but the configuration's network is for vectors
    assert result.returncode == 0 and "UINT8 [36, 36]" in result.stderr, result.stderr
    assert sandbox.run(*words, "--set=model.encoder=NATURE_CNN", "--set=model.hidden=[64]", env=GYM_ENVS).stderr == ""


def test_frames_are_evaluated_as_they_were_trained(sandbox):
    sandbox.env |= GYM_ENVS
    sandbox.train(
        "cartpole_ppo", "--set=env.id=gym:gym_envs:Pixels-v0", "--set=model.encoder=NATURE_CNN", "--set=model.hidden=[64]", "--set=total_env_steps=64", "--set=env.num_envs=2",
        "--set=rollout.length=32", "--set=model.normalize_observations=true", "--set=model.normalize_rewards=true", QUIET,
    ).succeeds()  # fmt: skip
    result = sandbox.run("evaluate", "run/checkpoints/latest", "--episodes=3", "--json")
    assert result.returncode == 0, result.stderr
    played = json.loads(result.stdout)
    assert [episode["length"] for episode in played["episodes"]] == [10, 10, 10]


def failing(sandbox, how, *words):
    sandbox.env |= GYM_ENVS
    return sandbox.train(
        "cartpole_ppo", "--set=env.id=gym:gym_envs:Failing-v0", f"--set=env.options.gym_kwargs.how={how}",
        "--set=total_env_steps=1000000000", QUIET, *words,
    )  # fmt: skip


@pytest.mark.parametrize(
    "how, words, learners",
    [
        (0, ("ValueError: it does not step", "in step"), 2),
        (1, ("ValueError: the observation is float32[2], want float32[4]",), 1),
        (2, ("ValueError: the reward is nan",), 1),
        (3, ("RuntimeError: it cannot be reset", "in reset"), 1),
    ],
)
def test_an_environment_that_always_fails_ends_the_run_and_says_why(sandbox, how, words, learners):
    # The budget is of all ranks: with two, only that of both together is spent.
    job = failing(sandbox, how, "--set=env.failed_seconds=8", f"--nproc-per-node={learners}")
    status = job.await_status(
        lambda s: s.failed_rows > 0 and s.learner[0].trouble and s.learner[0].env_worker[0].failed_rows > 0, "failed rows"
    )
    assert "environment rows failed; the newest: env worker 0" in status.learner[0].trouble
    began = time.monotonic()
    assert job.wait() == 1
    assert time.monotonic() - began < 30
    output = job.output()
    for word in (*words, "failed in the last 8 s (env.max_failed_share is 0.5)", "Traceback (most recent call last)"):
        assert word in output, output
    assert "\x1b" not in output
    result = summary(job.run_dir)
    assert result["status"] == "failed" and result["failed_rows"] > 0 and words[0] in result["error"]
    # There was nothing to learn from, and little was said of it.
    assert not [line for line in training_lines(job.run_dir) if line["env/failed_rows"] == 0]
    for log in (job.run_dir / "logs").glob("rank_*.log"):
        assert log.stat().st_size < 20_000, log.read_text()
        assert "\x1b" not in log.read_text()


def test_an_evaluation_with_a_row_that_always_fails_ends_and_says_why(sandbox):
    job = failing(
        sandbox, 0, "--set=env.options.gym_kwargs.one_in=4", "--set=env.failed_seconds=2", "--set=total_env_steps=512"
    )  # fmt: skip
    assert job.succeeds()["status"] == "completed"
    result = sandbox.run("evaluate", "run/checkpoints/latest", "--episodes=8")
    assert result.returncode == 1, result.stdout
    for word in ("of the evaluation has made no step for 2 s (env.failed_seconds)", "ValueError: it does not step"):
        assert word in result.stderr, result.stderr


def test_a_signal_ends_a_run_in_which_all_fails(sandbox):
    job = failing(sandbox, 0, "--set=env.failed_seconds=600")
    job.await_status(lambda s: s.failed_rows > 0, "failed rows")
    began = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130, job.output()
    assert time.monotonic() - began < 20


def test_one_observation_that_is_no_number_costs_a_transition(sandbox):
    job = failing(
        sandbox, 4, "--set=env.options.gym_kwargs.after=100", "--set=model.normalize_observations=true",
        "--set=total_env_steps=4096",
    )  # fmt: skip
    result = job.succeeds()
    assert result["status"] == "completed" and result["failed_rows"] == 4  # one a row
    assert training_lines(job.run_dir)[-1]["env/failed_rows"] == 4
    for name, tensor in load_file(job.run_dir / "checkpoints" / "latest" / "state.safetensors").items():
        assert np.isfinite(tensor).all(), name


def test_doctor_tells_the_truth(sandbox):
    assert "gym: environments work" in sandbox.run("doctor").stdout
    without = pathlib.Path(sandbox.tmp) / "python"
    without.write_text(f'#!/bin/sh\nexec {os.environ["FLOTILLA_PYTHON"]} -S -E "$@"\n')
    without.chmod(0o755)
    report = sandbox.run("doctor", env={"FLOTILLA_PYTHON": str(without)})
    assert report.returncode == 0  # a note: native environments work
    assert "gym: environments need gymnasium grpcio protobuf numpy" in report.stdout
    assert "-m pip install gymnasium grpcio protobuf numpy" in report.stdout


def test_the_python_that_is_named_has_its_own_packages_and_ours_of_these_programs(sandbox):
    """Ours lie among another Python's, as in a wheel, and this one has others of ours."""
    site, others = sandbox.folder / "site-packages", sandbox.folder / "others"
    shutil.copytree(BIN.parent / "share" / "flotilla" / "python", site)
    programs = site / "flotilla_program" / "bin"
    programs.mkdir()
    for program in ("flotilla", "flotilla-envserver"):
        shutil.copy(BIN / program, programs)
    for package in ("numpy", "grpc", "gymnasium", "google/protobuf", "tensorboard"):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text("raise ImportError('of another Python')")
    for package in ("flotilla", "flotilla_gym", "flotilla_watch"):
        (others / package).mkdir(parents=True)
        (others / package / "__init__.py").write_text("raise ImportError('of another version')")
    python = os.environ["FLOTILLA_PYTHON"]
    for command, code, says in (
        ([programs / "flotilla", "check-env", "gym:CartPole-v1"], 0, " 0 failed"),
        ([python, site / "flotilla_watch", "track", "--tracker=tensorboard", "--check"], 0, ""),
        ([python, site / "flotilla", "push", "nowhere", "--dry-run"], 2, '"nowhere" is no run\'s folder'),
    ):  # fmt: skip
        done = subprocess.run(
            command, cwd=sandbox.folder, env=sandbox.env | {"PYTHONPATH": str(others)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert done.returncode == code and says in done.stdout, f"{command}\n{done.stdout}"
