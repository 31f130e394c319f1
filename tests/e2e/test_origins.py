"""Environments from anywhere (env.server): programs that workers start, and servers that run already."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent import futures

import grpc
import pytest

from harness import BIN, SOURCE, TIMEOUT, env_pb2, env_pb2_grpc, guide, poll, summary

EXAMPLES = SOURCE / "envserver" / "examples"
QUIET = "--set=evaluation.every_updates=0"
LONG = ("cartpole_ppo", "--set=total_env_steps=1000000000", QUIET)
sys.path.insert(0, str(EXAMPLES))
import corridor_server  # noqa: E402


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """The protocol's, for Python."""
    folder = tmp_path_factory.mktemp("modules")
    files = [f"proto/flotilla/v1/{name}.proto" for name in ("config", "coordinator", "env", "range")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    subprocess.run([*command, *files], cwd=SOURCE, check=True, timeout=TIMEOUT)
    return folder


@pytest.fixture
def python(sandbox, modules):
    """Has `python3` be the tests' own, and the protocol's modules where it finds them."""
    sandbox.env["PATH"] = f"{pathlib.Path(sys.executable).parent}:{sandbox.env['PATH']}"
    sandbox.env["PYTHONPATH"] = str(modules)
    return f"python3 {EXAMPLES / 'corridor_server.py'}"


def script(sandbox, text, name="server.sh"):
    path = sandbox.folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def blocks(section, wanted):
    return [text for language, text in re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", section) if language == wanted]


def run_as_told(sandbox, section):
    """Runs its commands where a checkout and a build are."""
    for name in ("proto", "envserver"):
        (sandbox.folder / name).symlink_to(SOURCE / name)
    (sandbox.folder / "build").mkdir()
    (sandbox.folder / "build" / "bin").symlink_to(BIN)
    said = ""
    for commands in blocks(section, ""):
        for command in commands.replace("\\\n", "").splitlines():
            done = subprocess.run(
                ["bash", "-c", command], cwd=sandbox.folder, env=sandbox.env, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            assert done.returncode == 0, f"{command}\n{done.stdout}"
            said += done.stdout
    sandbox.await_no_process()
    return said


def has_learned(run_dir):
    result = summary(run_dir)
    assert result["status"] == "completed" and result["env_id"] == "Corridor-v0"
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    assert result["mean_return"] > 0.8, result  # wandering takes so long that it is below 0.5


def test_an_environment_of_ones_own_in_cpp_as_the_readme_says(sandbox):
    section = guide("envserver", "Add an environment")
    source = re.sub(r"\s+", "", (SOURCE / "launcher" / "templates" / "environment" / "environment.cc").read_text())
    for code in blocks(section, "cpp"):
        assert re.sub(r"\s+", "", code) in source, code
    run_as_told(sandbox, section)
    has_learned(sandbox.folder / "runs" / "corridor")


def test_an_environment_in_python_as_the_readme_says(sandbox, python):
    del sandbox.env["PYTHONPATH"]
    assert len((EXAMPLES / "corridor_server.py").read_text().splitlines()) < 150
    said = run_as_told(sandbox, guide("envserver", "Environments in other languages"))
    assert "Corridor-v0" in said
    has_learned(sandbox.folder / "runs" / "corridor_py")
    played = re.search(r"Corridor-v0 +mean return (\S+) over 20 episodes", said)
    assert float(played[1]) > 0.8


def test_our_own_program_by_its_name_trains_bit_for_bit_alike(sandbox):
    words = ("cartpole_ppo", "--nproc-per-node=2", "--set=total_env_steps=8192")
    plain = sandbox.train(*words, run_dir="plain").succeeds()
    named = sandbox.train(*words, f"--set=env.server=exec:{BIN / 'flotilla-envserver'}", run_dir="named").succeeds()
    assert named["parameters_sha256"] == plain["parameters_sha256"]
    assert named["mean_return"] == plain["mean_return"]


def player(status, rank=0):
    workers = status.learner[rank].env_worker if len(status.learner) > rank else ()
    return workers[0] if workers and workers[0].state == "playing" else None


def test_a_program_that_is_killed_is_started_again_and_outlives_nobody(sandbox, python):
    job = sandbox.train(*LONG, "--nproc-per-node=2", f"--set=env.server=exec:{python}", "--set=env.id=Corridor-v0")
    job.await_update(2)
    before = player(job.await_status(lambda s: player(s, 1), "a worker that plays"), 1)
    assert "corridor_server" in sandbox.processes()[before.pid]
    os.kill(before.pid, signal.SIGKILL)
    job.await_status(
        lambda s: s.env_worker_restarts == 1 and player(s, 1) and player(s, 1).pid != before.pid, "another in its place"
    )
    job.await_more_updates(2)
    # The server has never heard of lifelines: with its learner killed it is gone all the same.
    status = job.status()
    job.process.kill()
    for learner in status.learner:
        with contextlib.suppress(ProcessLookupError):  # its lifeline has ended it
            os.kill(learner.pid, signal.SIGKILL)
    job.process.wait()
    sandbox.await_no_process()


# ---- Options


def test_options_reach_it_and_a_typo_is_refused_with_the_nearest(sandbox, python):
    for server in (f"exec:{BIN / 'flotilla-example-envs'}", f"exec:{python}"):
        words = ("train", "cartpole_ppo", f"--set=env.server={server}", "--set=env.id=Corridor-v0", "--dry-run")
        result = sandbox.run(*words, "--set=env.options.kwargs.size=9")
        assert result.returncode == 0, result.stderr
        result = sandbox.run(*words, "--set=env.options.kwargs.siz=9")
        assert result.returncode == 2, result.stdout
        for word in ("--set env.options.kwargs.siz=9: ", 'did you mean "size"?'):
            assert word in result.stderr
        result = sandbox.run(*words, "--set=env.id=Coridor-v0")
        assert result.returncode == 2 and 'did you mean "Corridor-v0"?' in result.stderr
        assert len(result.stderr.splitlines()) == 1
    result = sandbox.run("train", "cartpole_ppo", "--set=env.options.kwargs.length=2", "--dry-run")
    assert result.returncode == 2 and "CartPole-v1 takes no such options; remove it" in result.stderr


def test_gym_environments_take_them_by_either_name(sandbox):
    words = ("train", "cartpole_ppo", "--set=env.id=gym:FrozenLake-v1", "--dry-run")
    for name in ("kwargs", "gym_kwargs"):
        result = sandbox.run(*words, f"--set=env.options.{name}.map_name=8x8")
        assert result.returncode == 0, result.stderr
        result = sandbox.run(*words, f"--set=env.options.{name}.map_nam=8x8")
        assert result.returncode == 2 and "map_nam" in result.stderr, result.stderr
    result = sandbox.run(*words, "--set=env.options.kwargs.map_name=8x8", "--set=env.options.gym_kwargs.map_name=4x4")
    assert result.returncode == 2
    assert "env.options.kwargs.map_name is set, and env.options.gym_kwargs.map_name too" in result.stderr


# ---- Programs that do not serve


@pytest.mark.parametrize(
    "text, words",
    [
        ("echo cannot import mine; exit 3", ("could not start (exit 3)", "its last words: cannot import mine")),
        ("sleep 1000", ("has not started after 2s", "--address-file")),
        ("echo hello > ${2#--address-file=}; sleep 1000", ('wrote "hello" as its address', "want unix:/")),
        ("yes", ("printed more than 16 MiB before it served",)),
        ("echo ${1#--listen=} > ${2#--address-file=}; exit 4", ("(exit 4)",)),
        ("echo ${1#--listen=} > ${2#--address-file=}; sleep 1000", ("Deadline Exceeded",)),
    ],
)
def test_a_program_that_does_not_serve_is_told_in_time(sandbox, text, words):
    path = script(sandbox, "shift\n" + text)
    began = time.monotonic()
    result = sandbox.run(
        "train", "cartpole_ppo", f"--set=env.server=exec:{path} --mine", "--set=env.reset_timeout_seconds=2", "--run-dir=run"
    )
    assert time.monotonic() - began < 20
    assert result.returncode == 1, result.stderr
    assert len(result.stderr.splitlines()) == 1
    for word in (f'env.server "exec:{path} --mine"', *words):
        assert word in result.stderr
    sandbox.await_no_process()
    assert not (sandbox.folder / "run").exists()


def test_a_missing_program_is_named(sandbox):
    result = sandbox.run("train", "cartpole_ppo", "--set=env.server=exec:./missing --mine")
    assert result.returncode == 1, result.stdout
    assert "there is no program ./missing" in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_program_that_serves_nobody_but_the_launcher_fails_the_run_by_name(sandbox, python):
    # Only the first of them serves.
    path = script(sandbox, f"mkdir first 2>/dev/null && exec {python} \"$@\"; echo one is enough; exit 5")
    job = sandbox.train(*LONG, f"--set=env.server=exec:{path}", "--set=env.id=Corridor-v0", "--max-restarts=0")
    assert job.wait() == 1
    output = job.output()
    for word in (f'env.server "exec:{path}"', "could not start (exit 5)", "one is enough", "env_rank_0_0.log"):
        assert word in output, output


@pytest.mark.parametrize(
    "never, word",
    [
        ("def step_group(envs, actions): time.sleep(1000)", "did not answer in time"),
        ("def step_group(envs, actions): return env_pb2.StepBatch(reward=b'abc')", "step.payload is not inline"),
        ("def step_group(envs, actions): os._exit(6)", "(exit 6)"),
    ],
)
def test_a_program_that_never_plays_fails_the_run_by_name(sandbox, python, never, word):
    (sandbox.folder / "server.py").write_text(
        f"import os, sys, time\nsys.path.insert(0, {str(EXAMPLES)!r})\n"
        f"import corridor_server\nfrom corridor_server import *\n{never}\n"
        "corridor_server.step_group = step_group\nmain()\n"
    )
    began = time.monotonic()
    job = sandbox.train(
        *LONG, "--set=env.server=exec:python3 server.py", "--set=env.id=Corridor-v0", "--set=env.reset_timeout_seconds=20"
    )
    assert job.wait() == 1
    assert time.monotonic() - began < 52  # unless that was ignored
    output = job.output()
    for expected in ('of env.server "exec:python3 server.py" has never played: ', word, "env_rank_0_0.log"):
        assert expected in output, output
    assert summary(job.run_dir)["status"] == "failed"


# ---- Servers that run already


@pytest.fixture
def corridor(sandbox, python):
    """Starts corridor_server.py at an address, and waits until it listens."""

    def start(address):
        file = sandbox.folder / "address"
        file.unlink(missing_ok=True)
        process = subprocess.Popen(
            [*shlex.split(python), f"--listen={address}", f"--address-file={file}"], cwd=sandbox.folder, env=sandbox.env
        )
        poll(file.exists, "the server to listen")
        return process

    return start


def test_one_server_takes_all_workers_and_is_awaited_when_it_is_lost(sandbox, corridor):
    address = f"unix:{sandbox.tmp}/corridor"
    server = corridor(address)
    job = sandbox.train(
        "cartpole_ppo", "--nproc-per-node=2", f"--set=env.server={address}", "--set=env.id=Corridor-v0",
        "--set=env.num_workers=2", "--set=total_env_steps=1000000000", "--set=evaluation.min_training_return=-2",
    )  # fmt: skip
    job.await_update(2)
    server.kill()
    server.wait()
    job.await_status(
        lambda s: any(w.state == "restarting" for learner in s.learner for w in learner.env_worker), "workers that are lost"
    )
    server = corridor(address)
    job.await_status(
        lambda s: len(s.learner) == 2 and all(w.state == "playing" for learner in s.learner for w in learner.env_worker),
        "all workers to play again",
    )
    job.await_more_updates(3)
    # Its evaluations play there too.
    job.poll(lambda: "eval/mean_return" in (job.run_dir / "metrics.jsonl").read_text(), "an evaluation")
    assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    assert job.process.wait(TIMEOUT) == 0
    assert summary(job.run_dir)["restarts"]["env_worker"] == 4
    played = sandbox.run("evaluate", "run", "--episodes=2", "--json")
    assert played.returncode == 0 and len(json.loads(played.stdout)["episodes"]) == 2
    server.kill()
    server.wait()
    sandbox.await_no_process()


def test_where_nobody_serves_is_told_at_once(sandbox):
    began = time.monotonic()
    result = sandbox.run("train", "cartpole_ppo", f"--set=env.server=unix:{sandbox.tmp}/nobody")
    assert time.monotonic() - began < 20
    assert result.returncode == 1
    assert f"env.server=unix:{sandbox.tmp}/nobody" in result.stderr and "nobody serves there" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_server_for_one_player_refuses_the_second_by_name(sandbox):
    address = f"unix:{sandbox.tmp}/envs"
    server = sandbox.serve("flotilla", "serve-envs", f"--listen={address}")
    poll(lambda: sandbox.run("envs", f"--server={address}").returncode == 0, "the server to listen")
    assert "CartPole-v1" in sandbox.run("envs", f"--server={address}").stdout
    words = ("cartpole_ppo", f"--set=env.server={address}", QUIET)
    job = sandbox.train(*words, "--set=total_env_steps=8192", run_dir="one")
    assert job.process.wait(TIMEOUT) == 0, job.diagnosis()
    assert summary(job.run_dir)["restarts"]["env_worker"] == 0
    # It was left alone afterwards, for this one to play on.
    assert sandbox.run("evaluate", "one", "--episodes=2").returncode == 0
    for more, run_dir in (("--nproc-per-node=2", "learners"), ("--set=env.num_workers=2", "workers")):
        began = time.monotonic()
        job = sandbox.train(*words, more, "--set=total_env_steps=1000000000", run_dir=run_dir)
        assert job.process.wait(TIMEOUT) == 1
        assert time.monotonic() - began < 60
        output = job.output()
        for word in ("is playing", "has to wait", "env.num_workers=1", "env.server=exec:COMMAND"):
            assert word in output, output
    server.terminate()
    server.wait()
    sandbox.await_no_process()


class Listening(corridor_server.EnvService):
    """Notes what calls carry."""

    def __init__(self):
        self.tokens = set()

    def GetSpec(self, request, context):
        self.note(context)
        return super().GetSpec(request, context)

    def Play(self, requests, context):
        self.note(context)
        return super().Play(requests, context)

    def note(self, context):
        self.tokens.add(dict(context.invocation_metadata()).get("authorization"))


def test_a_token_goes_to_it_only_if_it_was_named(sandbox):
    service = Listening()
    server = grpc.server(futures.ThreadPoolExecutor(16))
    env_pb2_grpc.add_EnvServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    words = ("cartpole_ppo", f"--set=env.server=127.0.0.1:{port}", "--set=env.id=Corridor-v0", "--set=total_env_steps=1024")
    job = sandbox.train(*words, run_dir="drawn")
    job.succeeds()
    assert (job.run_dir / "token").exists()
    assert service.tokens == {None}
    service.tokens.clear()
    (sandbox.folder / "token").write_text("shared-by-hand\n")
    sandbox.train(*words, "--token-file=token", run_dir="named").succeeds()
    assert service.tokens == {"Bearer shared-by-hand"}
    server.stop(None)
