"""What is wrong is refused at once, by name, with the remedy, and nothing starts."""

import concurrent.futures
import os
import shutil
import socket
import time

import pytest

LONG = ("cartpole_ppo", "--set", "total_env_steps=1000000000")


def refused(sandbox, *words, code=2, contains=(), timeout=60, env=None):
    before = {path.name for path in sandbox.folder.iterdir()}
    result = sandbox.run(*words, timeout=timeout, env=env)
    output = result.stdout + result.stderr
    assert result.returncode == code, output
    for word in contains:
        assert word in result.stderr, output
    # One message: perhaps with a pointer to the help after it.
    assert 1 <= len(result.stderr.strip().splitlines()) <= 2, result.stderr
    assert "Check failed" not in output and "terminate called" not in output
    sandbox.await_no_process()
    assert {path.name for path in sandbox.folder.iterdir()} == before, "something was started"
    return result.stderr


def test_an_unknown_field_in_a_file_is_named_with_its_line(sandbox):
    (sandbox.folder / "my.textproto").write_text('env { id: "CartPole-v1" }\n\nppo {\n  epochss: 3\n}\n')
    refused(sandbox, "train", "my.textproto", contains=("my.textproto:4", "epochss", "did you mean", "epochs"))


def test_a_wrong_type_in_a_file_is_named_with_its_line(sandbox):
    (sandbox.folder / "my.textproto").write_text('env {\n  num_envs: "four"\n}\nppo {}\n')
    refused(sandbox, "train", "my.textproto", contains=("my.textproto:2", "env.num_envs", "integer", "four"))


CASES = {
    "unknown field": (("ppo.epochss=3",), ("ppo.epochss", "did you mean", "ppo.epochs")),
    "unknown message": (("pppo.epochs=3",), ("pppo", "did you mean", "ppo")),
    "wrong type": (("ppo.epochs=many",), ("ppo.epochs=many", "integer", "many")),
    "no value": (("ppo.epochs",), ("ppo.epochs", "=")),
    "out of range": (("ppo.discount=1.5",), ("ppo.discount", "1.5")),
    "negative": (("rollout.length=-5",), ("rollout.length", "-5")),
    "unknown environment": (("env.id=CartPole-v7",), ("CartPole-v7", "did you mean", "CartPole-v1", "flotilla envs")),
    "indivisible batch": (("ppo.minibatches=7",), ("ppo.minibatches is 7", "rollout.length * env.num_envs", "use ")),
    "indivisible environments": (("env.num_workers=3",), ("env.num_envs is 4", "env.num_workers", "use ")),
    "unknown device": (("runtime.device=tpu",), ("runtime.device", "tpu", "cpu")),
    "options of another environment": (("env.options.sleep.step_ms=2",), ("env.options.sleep", "CartPole-v1")),
}


@pytest.mark.parametrize("overrides, words", CASES.values(), ids=CASES.keys())
def test_an_override_is_refused_by_name(sandbox, overrides, words):
    flags = [flag for override in overrides for flag in ("--set", override)]
    refused(sandbox, "train", "cartpole_ppo", *flags, contains=words)


def test_a_missing_rom_is_named(sandbox):
    known = sandbox.run("envs").stdout
    if "ALE/" not in known:
        pytest.skip("built without Atari")
    refused(
        sandbox, "train", "breakout_ppo", "--set", "env.id=ALE/NoSuchGame-v5",
        contains=("ALE/NoSuchGame-v5", "flotilla envs"),
    )  # fmt: skip
    refused(
        sandbox, "train", "breakout_ppo", "--set", "env.id=ALE/Brekout-v5",
        contains=("did you mean", "ALE/Breakout-v5"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "words, contains",
    [
        (("trian",), ('"trian"', "did you mean", '"train"')),
        (("train", "cartpole_fst"), ("cartpole_fst", "did you mean", "cartpole_fast", "flotilla configs")),
        (("train", "./missing.textproto"), ("./missing.textproto", "no configuration file")),
        (("train",), ("name a configuration", "flotilla configs")),
        (("train", "cartpole_fast", "--nproc_per_nod", 2), ("--nproc_per_nod", "did you mean", "--nproc-per-node")),
        (("train", "cartpole_fast", "--nproc-per-node", "two"), ("--nproc-per-node", "two")),
        (("train", "cartpole_fast", "--nproc-per-node", 0), ("--nproc-per-node", "0")),
        (("train", "cartpole_fast", "more"), ("unexpected argument", "more")),
        (("train", "cartpole_fast", "--resume", "--run-dir", "nothing", "--dry-run", "--sett", "a=1"), ("--sett", "--set")),
        (("train", "--resume", "--run-dir", "nothing"), ("--resume", "no run in nothing")),
        (("train", "cartpole_fast", "--resume", "./nothing"), ("./nothing", "neither a run's folder nor a checkpoint")),
        (("evaluate", "nothing"), ("nothing", "neither a run's folder nor a checkpoint")),
        (("evaluate",), ("name a run's folder",)),
        (("status", "--run-dir", "nothing"), ("nothing", "holds no run")),
        (("train", "cartpole_fast", "--backend", "ncc"), ("--backend", "ncc", "nccl")),
        (("train", "cartpole_fast", "--coordinator", "0.0.0.0:0"), ("0.0.0.0", "--token-file", "--insecure")),
    ],
)
def test_a_command_line_is_refused_by_name(sandbox, words, contains):
    refused(sandbox, *words, contains=contains)


def test_a_partial_set_of_variables_names_what_is_missing(sandbox):
    refused(sandbox, "train", "cartpole_fast", env={"RANK": "0"}, contains=("RANK", "WORLD_SIZE"))


@pytest.mark.parametrize("command", ["status", "stop"])
def test_an_unreachable_coordinator_is_told_soon(sandbox, command):
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        began = time.monotonic()
        refused(sandbox, command, "--coordinator", address, code=1, contains=(address, "no coordinator answers"))
        assert time.monotonic() - began < 30


def test_a_coordinator_that_never_answers_is_told_soon(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as silent, concurrent.futures.ThreadPoolExecutor() as pool:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        both = [pool.submit(refused, sandbox, command, "--coordinator", address, code=1, contains=(address,)) for command in ("status", "stop")]
        for one in both:
            one.result()
        assert time.monotonic() - began < 30


def test_another_nodes_coordinator_that_is_not_there_is_told_in_time(sandbox):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        result = sandbox.run(
            "train", "cartpole_fast", "--nnodes", 2, "--node-rank", 1, "--coordinator", address, "--run-dir", "run",
            "--set", "distributed.join_timeout_seconds=2", timeout=60,
        )  # fmt: skip
    assert result.returncode == 1
    assert address in result.stderr and "no coordinator answers" in result.stderr
    sandbox.await_no_process()


def test_a_named_port_that_something_else_holds_is_told(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        result = sandbox.run("train", "cartpole_fast", "--coordinator", address, "--run-dir", "run", timeout=60)
    assert result.returncode in (1, 2)
    assert address in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    sandbox.await_no_process()


def test_a_run_of_its_own_takes_another_port_when_the_usual_is_taken(sandbox):
    first = sandbox.train(*LONG, "--standalone", run_dir="first")
    second = sandbox.train(*LONG, "--standalone", run_dir="second")
    assert first.await_update(1).run_id == "first" and second.await_update(1).run_id == "second"
    assert first.address() != second.address()
    for job in (first, second):
        sandbox.run("stop", "--run-dir", job.run_dir)
        assert job.process.wait(60) == 0
    sandbox.await_no_process()


@pytest.fixture(scope="module")
def trained(shared_sandbox):
    job = shared_sandbox.train(shared_sandbox.config("cartpole_fast"), "--set", "total_env_steps=2048")
    job.succeeds()
    return job.run_dir


@pytest.fixture
def run(sandbox, trained):
    shutil.copytree(trained, sandbox.folder / "run", symlinks=True)
    return sandbox.folder / "run"


def test_a_folder_with_a_run_needs_resume(sandbox, run):
    refused(sandbox, "train", "cartpole_fast", "--run-dir", run, contains=(str(run), "--resume", "--run-dir"))


@pytest.mark.parametrize(
    "words",
    [
        ("pendulum_ppo", "--resume", "--run-dir", "run"),
        ("--resume", "--run-dir", "run", "--set", "env.id=Pendulum-v1"),
        ("pendulum_ppo", "--resume", "run/checkpoints/latest"),
        ("pendulum_ppo", "--resume", "run/checkpoints/latest", "--run-dir", "other"),
    ],
)
def test_a_checkpoint_of_another_environment_is_refused(sandbox, run, words):
    refused(sandbox, "train", *words, contains=("env.id", "CartPole-v1", "Pendulum-v1", "another run"))


def test_a_checkpoint_of_another_network_is_refused(sandbox, run):
    words = ("train", "--resume", "--run-dir", "run", "--set", "model.hidden=[8]")
    refused(sandbox, *words, contains=("model", "64", "8", "another run"))


def test_a_folder_in_use_is_named_with_its_user(sandbox):
    job = sandbox.train(*LONG)
    job.await_update(1)
    # It has a run by now, so only --resume gets as far as the lock.
    result = sandbox.run("train", "--resume", "--run-dir", job.run_dir)
    assert result.returncode in (1, 2)
    for word in (str(job.run_dir), "in use", f"pid {job.process.pid}", "flotilla stop", "--run-dir"):
        assert word in result.stderr
    job.await_more_updates(2)
    sandbox.run("stop", "--run-dir", job.run_dir)
    assert job.wait() == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(sandbox):
    sealed = sandbox.folder / "sealed"
    sealed.mkdir(mode=0o555)
    for more in ((), ("--dry-run",)):
        refused(sandbox, "train", "cartpole_fast", "--run-dir", sealed / "run", *more, contains=(str(sealed), "--run-dir"))


def test_a_run_dir_that_is_a_file_is_named(sandbox):
    (sandbox.folder / "file").write_text("")
    for more in ((), ("--dry-run",)):
        refused(sandbox, "train", "cartpole_fast", "--run-dir", "file/run", *more, contains=("file/run", "another --run-dir"))


@pytest.mark.parametrize(
    "words, contains",
    [
        (("--metrics-listen", "0.0.0.0:0"), ("--metrics-listen 0.0.0.0:0", "--metrics-token-file")),
        (("--metrics-listen", "127.0.0.1:0", "--metrics-token-file", "nothing"), ("token file", "nothing")),
        (("--token-file", "nothing"), ("token file", "nothing")),
        (("--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c"), ('"a"',)),
    ],
)
def test_what_a_coordinator_would_refuse_leaves_no_folder(sandbox, words, contains):
    for more in ((), ("--dry-run",)):
        refused(sandbox, "train", "cartpole_fast", "--run-dir", "run", *words, *more, contains=contains)
        assert not (sandbox.folder / "run").exists()
