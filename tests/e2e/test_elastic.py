"""--nnodes 1:2: nodes come, die and come again while training goes on."""

import pytest

from cluster import Cluster
from harness import training_lines

SHARE = 2 * 8 * 32  # environment steps of one node in one update


@pytest.fixture
def cluster(sandbox):
    with Cluster(sandbox, hosts=2, nnodes="1:2") as cluster:
        yield cluster


def test_nodes_come_and_go(cluster, sandbox):
    def launch(node):
        return cluster.launch(
            node, sandbox.config("cartpole_fast"), "--nproc-per-node=2", "--set=env.num_envs=8",
            "--set=total_env_steps=1e9", "--set=distributed.dead_after_seconds=2",
            "--set=distributed.heartbeat_seconds=0.2", "--set=distributed.last_call_seconds=1",
        )  # fmt: skip

    def world(size):
        formed = cluster.await_status(lambda s: s["state"] == "ACTIVE" and s["world_size"] == size, f"a world of {size}")
        trains = cluster.await_update(int(formed["update"]) + 20)
        assert trains["generation"] == formed["generation"]
        return trains

    first = launch(0)
    alone = world(2)
    second = launch(1)
    together = world(4)
    survivors = {learner["pid"] for learner in alone["learner"]}
    assert survivors <= {learner["pid"] for learner in together["learner"]}

    cluster.lose_host(1)
    second.wait(20)
    left = world(2)
    assert {learner["pid"] for learner in left["learner"] if learner["state"] == "alive"} == survivors

    third = launch(1)
    world(4)
    assert cluster.program(0, "stop", "flotilla", "stop", f"--coordinator={cluster.address}", "--insecure").wait(30) == 0
    result = cluster.succeed([first, third])
    assert result["status"] == "stopped" and result["world_size"] == 4

    # Every update counts once, and as many steps as its world had.
    lines = training_lines(cluster.run_dir)
    assert [line["update"] for line in lines] == list(range(1, result["updates"] + 1))
    steps = [0] + [line["global_step"] for line in lines]
    sizes = [(b - a) // SHARE for a, b in zip(steps, steps[1:])]
    assert set(sizes) == {1, 2} and steps[-1] == sum(sizes) * SHARE
    changes = [b for a, b in zip(sizes, sizes[1:]) if a != b]
    assert changes == [2, 1, 2]
