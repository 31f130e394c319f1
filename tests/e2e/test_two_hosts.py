"""Two launchers and an env server on three hosts: network namespaces on one switch."""

import json
import os
import subprocess
import time

import pytest

from harness import BIN, poll, summary
from hosts import Hosts

# Longer than distributed.dead_after_seconds; 30 by hand.
PARTITION_SECONDS = float(os.environ.get("FLOTILLA_PARTITION_SECONDS", 8))


@pytest.fixture
def hosts():
    with Hosts(3) as hosts:
        yield hosts


class HostJob:
    """A program on one of the hosts."""

    def __init__(self, sandbox, hosts, host, name, *words):
        self.log = sandbox.folder / f"{name}.out"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*hosts.prefix(host), str(BIN / words[0]), *map(str, words[1:])],
                cwd=sandbox.folder, env=sandbox.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip


@pytest.fixture
def start(sandbox, hosts):
    """Starts both launchers; the run's folder is on storage that they share."""
    run_dir = sandbox.folder / "run"
    address = f"{hosts.address(0)}:29400"

    def starter(config, *words):
        launchers = [
            HostJob(
                sandbox, hosts, node, f"launcher_{node}", "flotilla", "train", config, "--nnodes=2",
                f"--node-rank={node}", f"--coordinator={address}", "--insecure", f"--run-dir={run_dir}",
                "--progress=plain", *words,
            )
            for node in (0, 1)
        ]  # fmt: skip
        return run_dir, launchers

    starter.address = address
    return starter


def said(run_dir, launchers):
    parts = [f"--- {job.log.name}\n{job.log.read_text()}" for job in launchers]
    parts += [f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in sorted(run_dir.glob("logs/*.log"))]
    return "\n".join(parts)


def status(hosts, sandbox, address):
    """What `flotilla status` says, asked from host 0."""
    asked = subprocess.run(
        [*hosts.prefix(0), str(BIN / "flotilla"), "status", f"--coordinator={address}", "--insecure", "--json"],
        cwd=sandbox.folder, env=sandbox.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return json.loads(asked.stdout) if asked.returncode == 0 else {}


def both_succeed(run_dir, launchers, timeout=150):
    for job in launchers:
        try:
            code = job.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(said(run_dir, launchers)) from None
        assert code == 0, said(run_dir, launchers)
    result = summary(run_dir)
    assert result["world_size"] == 2
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    return result


def test_two_hosts_solve_cartpole_with_an_env_server_on_a_third(sandbox, hosts, start):
    run_dir, launchers = start("cartpole_fast", "--set=env.num_workers=2", "--set=env.remote_workers=1")
    server = HostJob(
        sandbox, hosts, 2, "serve-envs", "flotilla", "serve-envs", f"--coordinator={start.address}", "--workers=2",
        "--insecure",
    )  # fmt: skip
    result = both_succeed(run_dir, launchers)
    assert result["status"] == "solved" and result["eval_mean_return"] >= 475
    assert server.process.wait(30) == 0, server.log.read_text()


def test_a_host_that_was_cut_off_comes_back(sandbox, hosts, start):
    run_dir, launchers = start(
        "cartpole_fast", "--set=evaluation.every_updates=100000", "--set=total_env_steps=3e6",
    )  # fmt: skip

    def update():
        return int(status(hosts, sandbox, start.address).get("update", 0))

    poll(lambda: update() >= 20, "update 20", 60)
    hosts.unplug(1)
    time.sleep(PARTITION_SECONDS)  # what is tested is this long a partition
    hosts.plug(1)
    result = both_succeed(run_dir, launchers)
    # Every update is counted once.
    assert result["global_steps"] == result["updates"] * 2 * 64 * 32
    # What it had learned was not lost: it is solved, if only by the last evaluation.
    assert result["status"] in ("completed", "solved") and result["eval_mean_return"] > 100
    assert result["restarts"]["learner"] == 0, said(run_dir, launchers)
