"""Environments that nobody can reach dial in; what is cut off, half dead or silent costs nobody more than a deadline.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from cluster import Cluster
from harness import BIN, TIMEOUT, guide, poll, summary
from test_origins import EXAMPLES, blocks, modules, python  # noqa: F401

MODULES = BIN.parent / "share" / "flotilla" / "python"
PARTITION_SECONDS = float(os.environ.get("FLOTILLA_PARTITION_SECONDS", 30))
LISTENS = ("--set=env.dial_listen=127.0.0.1:0", "--set=env.remote_workers=1", "--set=evaluation.every_updates=0")
ENDLESS = "--set=total_env_steps=1e9"


@pytest.fixture(autouse=True)
def gymnasium_of_the_tests(sandbox):
    sandbox.env["FLOTILLA_PYTHON"] = sys.executable
    sandbox.env["PATH"] = f"{pathlib.Path(sys.executable).parent}:{sandbox.env['PATH']}"


def dials(sandbox, name, code, prefix=(), stdin=subprocess.DEVNULL):
    """`code` in the background, where flotilla_gym is; its output is in NAME.out."""
    with open(sandbox.folder / f"{name}.out", "wb") as log:
        return subprocess.Popen(
            [*prefix, sys.executable, "-c", code], cwd=sandbox.folder, env=sandbox.env | {"PYTHONPATH": str(MODULES)},
            stdin=stdin, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def dialling(address, env="'CartPole-v1'", **how):
    how = "".join(f", {name}={value!r}" for name, value in how.items())
    return f"import flotilla_gym; flotilla_gym.dial('{address}', {env}{how})"


def said(sandbox, name):
    return (sandbox.folder / f"{name}.out").read_text()


def ids(status):
    """Of env servers that are leased."""
    return {server.id for server in status.env_server if server.assigned_rank >= 0 and server.state != "dead"}


def playing(status):
    return sum(worker.state == "playing" for learner in status.learner for worker in learner.env_worker)


def replaced(status):
    return status.env_worker_restarts == 1 and playing(status) == 1


# ---- Behind a firewall


@pytest.fixture
def cluster(sandbox):
    """Host 1 accepts no connection, and knows the other by its name."""
    with Cluster(sandbox, hosts=2, nnodes="1") as cluster:
        cluster.hosts.shut(1)
        for host in (0, 1):
            cluster.hosts.call(host, "HOST0", cluster.hosts.address(0))
        yield cluster


def check_shut(cluster):
    """Nothing that listens there can be reached."""
    listen = "import socket; s = socket.create_server(('0.0.0.0', 5000)); print('up', flush=True); s.accept()"
    connect = f"import socket; socket.create_connection(('{cluster.hosts.address(1)}', 5000), 2)"
    listener = subprocess.Popen([*cluster.hosts.prefix(1), sys.executable, "-c", listen], stdout=subprocess.PIPE)
    listener.stdout.readline()
    tried = subprocess.run([*cluster.hosts.prefix(0), sys.executable, "-c", connect], capture_output=True, text=True)
    listener.kill()
    listener.wait()
    assert "TimeoutError" in tried.stderr


def test_where_no_connection_is_accepted_as_the_readme_says(sandbox, cluster):
    check_shut(cluster)
    section = guide("envserver", "Dialling in")
    (sandbox.folder / "build").mkdir()
    (sandbox.folder / "build" / "bin").symlink_to(BIN)
    (commands,) = blocks(section, "")
    with open(sandbox.folder / "train.out", "wb") as log:
        train = subprocess.Popen(
            [*cluster.hosts.prefix(0), "bash", "-ec", commands], cwd=sandbox.folder, env=sandbox.env,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    poll((sandbox.folder / "token").exists, "the token")
    (code,) = blocks(section, "python")
    robot = dials(sandbox, "robot", code, prefix=cluster.hosts.prefix(1))
    assert train.wait(TIMEOUT) == 0, said(sandbox, "train") + said(sandbox, "robot")
    assert robot.wait(20) == 0, said(sandbox, "robot")
    result = summary(sandbox.folder / "runs" / "dialled")
    assert result["status"] == "completed" and result["env_id"] == "gym:CartPole-v1"
    assert result["mean_return"] > 50, result  # chance is 22
    assert result["restarts"]["env_worker"] == 0


def test_cut_off_and_healed_it_goes_on(sandbox, cluster):
    launcher = cluster.launch(
        0, "cartpole_ppo", "--set=env.id=gym:CartPole-v1", "--set=env.num_workers=2", "--set=env.remote_workers=1",
        "--set=env.dial_listen=0.0.0.0:0", "--set=evaluation.every_updates=0", ENDLESS,
    )  # fmt: skip
    robot = dials(sandbox, "robot", dialling(cluster.address), prefix=cluster.hosts.prefix(1))

    def both(status):
        workers = [w for learner in status.get("learner", []) for w in learner.get("env_worker", [])]
        return sum(w["state"] == "playing" for w in workers) == 2

    before = cluster.await_status(both, "the environment to dial in")
    cluster.await_update(int(before["update"]) + 5)
    cluster.hosts.unplug(1)
    cut = time.monotonic()
    meanwhile = cluster.await_status(lambda s: not both(s), "its loss to be seen")
    lost_after = time.monotonic() - cut
    # By its connection, long before env.step_timeout_seconds.
    assert lost_after < 40, lost_after
    cluster.await_update(int(meanwhile["update"]) + 5)  # the local worker alone
    time.sleep(max(0, cut + PARTITION_SECONDS - time.monotonic()))  # what is tested is this long a cut
    cluster.hosts.plug(1)
    healed = time.monotonic()
    again = cluster.await_status(both, "it to play again")
    assert time.monotonic() - healed < 20
    cluster.await_update(int(again["update"]) + 5)
    assert again["generation"] == before["generation"]
    assert cluster.program(0, "stop", "flotilla", "stop", f"--coordinator={cluster.address}", "--insecure").wait(30) == 0
    result = cluster.succeed([launcher])
    assert result["restarts"]["learner"] == 0 and result["restarts"]["env_worker"] == 1
    assert robot.wait(20) == 0, said(sandbox, "robot")


# ---- Half dead


def test_a_replacement_takes_over_from_a_half_dead_one_at_once(sandbox):
    job = sandbox.train("cartpole_ppo", *LISTENS, "--set=env.id=gym:CartPole-v1", ENDLESS)
    how = {"token_file": f"{job.run_dir}/token", "identity": "robot.id"}
    first = dials(sandbox, "first", dialling(job.address(), **how))
    job.await_update(3)
    before = ids(job.status())
    # The second has loaded what it needs when the first goes.
    waits = "import sys, gymnasium, flotilla_gym.dialling; print('ready', flush=True); sys.stdin.read(); "
    second = dials(sandbox, "second", waits + dialling(job.address(), **how), stdin=subprocess.PIPE)
    poll(lambda: "ready" in said(sandbox, "second"), "the second to be ready")
    # Its connections stay up, its deadline is 60 s away, and nothing else can play: all wait for it.
    first.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    second.stdin.close()
    job.await_status(replaced, "the second to play")
    job.await_more_updates(3)
    assert time.monotonic() - stopped < 25  # pings would say so after 30
    assert ids(job.status()) == before  # the same, to everybody
    # It wakes up, and is told.
    first.send_signal(signal.SIGCONT)
    assert first.wait(30) == 1
    assert "replaced" in said(sandbox, "first"), said(sandbox, "first")
    job.await_more_updates(3)
    assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    assert second.wait(20) == 0, said(sandbox, "second")
    assert job.succeeds()["restarts"]["env_worker"] == 1


def test_a_half_dead_one_costs_its_deadline_where_a_stranger_waits(sandbox):
    job = sandbox.train(
        "cartpole_ppo", *LISTENS, "--set=env.id=gym:CartPole-v1", "--set=env.step_timeout_seconds=3", ENDLESS
    )
    first = dials(sandbox, "first", dialling(job.address(), token_file=f"{job.run_dir}/token"))
    job.await_update(3)
    before = ids(job.status())
    second = dials(sandbox, "second", dialling(job.address(), token_file=f"{job.run_dir}/token"))
    job.await_status(lambda s: len(s.env_server) == 2, "the second to wait")
    first.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    job.await_status(replaced, "the second to play")
    job.await_more_updates(3)
    assert time.monotonic() - stopped < 25  # pings would say so after 30
    assert ids(job.status()) and not ids(job.status()) & before
    first.kill()
    first.wait()
    assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    assert second.wait(20) == 0, said(sandbox, "second")
    job.succeeds()


# ---- Others


def test_one_written_from_the_protocol_trains_and_follows_its_learner(sandbox, python):  # noqa: F811
    assert len((EXAMPLES / "corridor_dialler.py").read_text().splitlines()) < 150
    # Nobody else has ever heard of Corridor-v0.
    job = sandbox.train("cartpole_ppo", "--nproc-per-node=2", *LISTENS, "--set=env.id=Corridor-v0", ENDLESS)
    command = [sys.executable, EXAMPLES / "corridor_dialler.py", f"--coordinator={job.address()}"]
    servers = [
        subprocess.Popen([*command, f"--token-file={job.run_dir}/token"], cwd=sandbox.folder, env=sandbox.env)
        for _ in range(2)
    ]
    job.await_update(5)
    # Its learner is lost; what replaces it listens elsewhere.
    before = job.status()
    os.kill(before.learner[1].pid, signal.SIGKILL)
    job.await_status(lambda s: s.generation > before.generation and s.update > before.update + 20, "another to go on")
    assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    assert [server.wait(20) for server in servers] == [0, 0]
    result = job.succeeds()
    assert result["env_id"] == "Corridor-v0" and result["restarts"]["learner"] == 1


def test_an_environment_of_ones_own_that_is_there_already(sandbox):
    (sandbox.folder / "arm.py").write_text(
        "import sys, gymnasium, flotilla_gym\n"
        "class Arm(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        self.left = 10\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.left -= 1\n"
        "        return self.observation_space.sample(), float(action), self.left == 0, False, {}\n"
        "    def close(self):\n"
        "        print('closed')\n"
        "flotilla_gym.dial(sys.argv[1], Arm(), env_id='Arm-v0', token_file=sys.argv[2])\n"
    )
    job = sandbox.train("cartpole_ppo", *LISTENS, "--set=env.id=Arm-v0", "--set=env.num_envs=1", "--set=total_env_steps=8192")
    arm = dials(sandbox, "arm", f"import sys; sys.argv = ['', '{job.address()}', '{job.run_dir}/token']; exec(open('arm.py').read())")
    result = job.succeeds()
    assert arm.wait(20) == 0, said(sandbox, "arm")
    assert "closed" not in said(sandbox, "arm")
    assert result["mean_return"] > 7, result  # chance is 5


def test_who_is_not_let_in_is_told_at_once(sandbox):
    job = sandbox.train("cartpole_ppo", *LISTENS, "--set=env.id=gym:CartPole-v1", ENDLESS)
    (sandbox.folder / "wrong").write_text("wrong\n")
    stranger = dials(sandbox, "stranger", dialling(job.address(), token_file="wrong"))
    assert stranger.wait(30) == 1
    assert "Refused: the coordinator at" in said(sandbox, "stranger")
    # Another environment than the run's: it says so, and plays nothing.
    other = dials(sandbox, "other", dialling(job.address(), "'Acrobot-v1'", token_file=f"{job.run_dir}/token"))
    poll(lambda: 'the learner plays "gym:CartPole-v1", and this is "gym:Acrobot-v1"' in said(sandbox, "other"), "its refusal")
    assert playing(job.status()) == 0
    right = dials(sandbox, "right", dialling(job.address(), token_file=f"{job.run_dir}/token"))
    job.await_update(3)
    for process in (other, right):
        process.kill()
        process.wait()
    job.process.kill()


def test_an_address_to_dial_is_refused_where_no_worker_may_come(sandbox):
    result = sandbox.run("train", "cartpole_ppo", "--set=env.dial_listen=0.0.0.0:0", "--dry-run")
    assert result.returncode == 2 and re.search("env.dial_listen.*is set, but env.remote_workers is 0", result.stderr)
