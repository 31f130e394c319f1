"""--nnodes 1:2: nodes come, die and come again while training goes on."""

import itertools

import pytest

from cluster import Cluster
from harness import training_lines

SHARE = 2 * 8 * 32  # environment steps of one node in one update


@pytest.fixture
def cluster(sandbox):
    with Cluster(sandbox, hosts=2, nnodes="1:2") as cluster:
        yield cluster


@pytest.fixture
def launch(cluster, sandbox):
    def launcher(node):
        return cluster.launch(
            node, sandbox.config("cartpole_fast"), "--nproc-per-node=2", "--set=env.num_envs=8",
            "--set=total_env_steps=1e9", "--set=distributed.dead_after_seconds=2",
            "--set=distributed.heartbeat_seconds=0.2", "--set=distributed.last_call_seconds=1",
        )  # fmt: skip

    return launcher


@pytest.fixture
def world(cluster):
    """Waits until so many learners train together."""

    def waiter(size):
        formed = cluster.await_status(lambda s: s["state"] == "ACTIVE" and s["world_size"] == size, f"a world of {size}")
        trains = cluster.await_update(int(formed["update"]) + 20)
        assert trains["generation"] == formed["generation"]
        return trains

    return waiter


def alive(status):
    return {learner["id"]: learner["pid"] for learner in status["learner"] if learner["state"] == "alive"}


def stop(cluster, launchers):
    asked = cluster.program(0, "stop", "flotilla", "stop", f"--coordinator={cluster.address}", "--insecure")
    assert asked.wait(30) == 0
    result = cluster.succeed(launchers)
    assert result["status"] == "stopped" and result["world_size"] == 4
    return result


def world_sizes(cluster, result):
    """In the order in which they came. Every update counts once, and as many steps as its world had."""
    lines = training_lines(cluster.run_dir)
    assert [line["update"] for line in lines] == list(range(1, result["updates"] + 1))
    steps = [0] + [line["global_step"] for line in lines]
    assert all((b - a) % SHARE == 0 for a, b in zip(steps, steps[1:]))
    sizes = [(b - a) // SHARE for a, b in zip(steps, steps[1:])]
    return [2 * size for size, _ in itertools.groupby(sizes)]


def test_nodes_come_and_go(cluster, launch, world):
    first = launch(0)
    alone = alive(world(2))
    second = launch(1)
    assert alone.items() <= alive(world(4)).items()

    cluster.lose_host(1)
    second.wait(20)
    assert alive(world(2)) == alone

    third = launch(1)
    assert alone.items() <= alive(world(4)).items()
    result = stop(cluster, [first, third])
    assert world_sizes(cluster, result) == [2, 4, 2, 4]


def test_the_rest_trains_on_while_a_node_is_cut_off(cluster, launch, world):
    launchers = [launch(0), launch(1)]
    everyone = alive(world(4))
    cluster.hosts.unplug(1)
    rest = world(2)
    assert alive(rest).items() < everyone.items()
    assert rest["fence_reason"].startswith("rank "), rest
    cluster.hosts.plug(1)
    # It comes back with the processes that it had.
    assert alive(world(4)) == everyone
    result = stop(cluster, launchers)
    assert result["restarts"]["learner"] == 0
    assert world_sizes(cluster, result)[-3:] == [4, 2, 4]
