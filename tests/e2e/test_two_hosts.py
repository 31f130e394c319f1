"""Two launchers and an env server on three hosts: network namespaces on one switch."""

import os
import re
import time

import pytest

from cluster import Cluster
from harness import guide

# Longer than distributed.dead_after_seconds; 30 by hand.
PARTITION_SECONDS = float(os.environ.get("FLOTILLA_PARTITION_SECONDS", 8))
UPDATE = 2 * 64 * 32


@pytest.fixture
def cluster(sandbox):
    with Cluster(sandbox, hosts=3, nnodes="2") as cluster:
        yield cluster


def start(cluster, *words):
    return [cluster.launch(node, "cartpole_fast", *words) for node in (0, 1)]


def stop(cluster):
    assert cluster.program(0, "stop", "flotilla", "stop", f"--coordinator={cluster.address}", "--insecure").wait(30) == 0


def test_two_hosts_solve_cartpole_with_an_env_server_on_a_third(cluster):
    """As README has it."""
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", guide("", "On several hosts"))
    for there, here in (("HOST0:29400", cluster.address), ("/shared/runs/first", str(cluster.run_dir))):
        block = block.replace(there, here)
    train, serve = (re.sub(r"\s+#.*", "", line).split()[1:] for line in block.splitlines())
    launchers = [
        cluster.program(
            node, f"launcher_{node}", "flotilla", *(str(node) if word == "R" else word for word in train),
            "--set=env.num_workers=2", "--set=env.remote_workers=1",
        )
        for node in (0, 1)
    ]  # fmt: skip
    server = cluster.program(2, "serve_envs_2", "flotilla", *serve, "--workers=2")
    result = cluster.succeed(launchers)
    assert result["world_size"] == 2
    assert result["status"] == "solved" and result["eval_mean_return"] >= 475
    assert server.wait(30) == 0, cluster.diagnosis()


def test_a_host_may_take_its_own_name_for_loopback(cluster):
    """As Debian's installer writes it into /etc/hosts; and nobody can resolve what the hosts call themselves."""
    for host, address in enumerate(("127.0.1.1", cluster.hosts.address(0))):
        cluster.hosts.call(host, "first", address)
    cluster.address = "first:29400"
    result = cluster.succeed(start(cluster, "--set=evaluation.every_updates=100000", "--set=total_updates=20"))
    assert result["world_size"] == 2 and result["updates"] == 20


def test_a_host_that_was_cut_off_comes_back(cluster):
    # Without end, so that no cut comes too late on a busy machine.
    launchers = start(cluster, "--set=evaluation.every_updates=100000", "--set=total_env_steps=1e9")
    before = cluster.await_update(20)
    cluster.hosts.unplug(1)
    cut = time.monotonic()
    # What an operator sees meanwhile.
    told = cluster.await_status(lambda s: s["state"] != "ACTIVE", "the loss to be seen")
    assert told["fence_reason"] and told["waiting_for"], told
    time.sleep(max(0, cut + PARTITION_SECONDS - time.monotonic()))  # what is tested is this long a partition
    cluster.hosts.plug(1)
    again = cluster.await_status(
        lambda s: s["state"] == "ACTIVE" and int(s["generation"]) > int(before["generation"]), "both to meet again"
    )
    cluster.await_update(int(again["update"]) + 200)
    stop(cluster)
    result = cluster.succeed(launchers)
    assert result["status"] == "stopped" and result["world_size"] == 2
    # Every update is counted once.
    assert result["global_steps"] == result["updates"] * UPDATE
    assert result["mean_return"] >= 195  # of CartPole, where 22 is chance
    assert result["restarts"]["learner"] == 0, cluster.diagnosis()


def test_env_servers_of_a_lost_host_are_done_without(cluster):
    launchers = start(
        cluster, "--set=env.num_workers=2", "--set=env.remote_workers=1", "--set=evaluation.every_updates=100000",
        "--set=total_env_steps=1e9",
    )  # fmt: skip
    cluster.serve_envs(2, "--workers=2")

    def playing(status):
        workers = [w for learner in status.get("learner", []) for w in learner.get("env_worker", [])]
        return sum(w["state"] == "playing" for w in workers)

    both = cluster.await_status(lambda s: playing(s) == 4, "both env servers to play")
    cluster.hosts.unplug(2)
    alone = cluster.await_status(lambda s: playing(s) == 2, "their loss to be seen")
    without = cluster.await_update(int(alone["update"]) + 20)
    assert without["generation"] == both["generation"]
    cluster.hosts.plug(2)
    again = cluster.await_status(lambda s: playing(s) == 4, "them to play again")
    assert again["generation"] == both["generation"]
    stop(cluster)
    result = cluster.succeed(launchers)
    assert result["restarts"]["learner"] == 0
