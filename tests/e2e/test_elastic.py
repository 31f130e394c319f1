"""--nnodes 1:2: nodes come, die and come again while training goes on."""

import itertools
import subprocess

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
    def launcher(node, *words):
        return cluster.launch(
            node, sandbox.config("cartpole_fast"), "--nproc-per-node=2", "--set=env.num_envs=8",
            "--set=total_env_steps=1e9", "--set=distributed.dead_after_seconds=2",
            "--set=distributed.heartbeat_seconds=0.2",
            # However slowly they start, both learners of a node join at once. Who is not heard of is dead before.
            "--set=distributed.last_call_seconds=4", *words,
        )  # fmt: skip

    return launcher


@pytest.fixture
def world(cluster):
    """Waits until so many learners train together."""

    def steps():
        """So many had been made with each update."""
        begun = (cluster.run_dir / "metrics.jsonl").exists()
        return [line["global_step"] for line in training_lines(cluster.run_dir)] if begun else []

    def waiter(size):
        formed = cluster.await_status(lambda s: s["state"] == "ACTIVE" and s["world_size"] == size, f"a world of {size}")
        before = len(steps())

        def trains(_):
            # What a status says may be of the world before.
            newest = steps()[before:][-21:]
            return len(newest) == 21 and {b - a for a, b in zip(newest, newest[1:])} == {size // 2 * SHARE}

        cluster.await_status(trains, f"20 updates of {size} learners")
        # Who is a moment late.
        status = cluster.await_status(lambda s: all(learner["state"] != "suspect" for learner in s["learner"]), "no suspect")
        assert status["generation"] == formed["generation"]
        return status

    return waiter


def alive(status):
    return {learner["id"]: learner["pid"] for learner in status["learner"] if learner["state"] == "alive"}


def stop(cluster, launchers, world_size=4):
    asked = cluster.program(0, "stop", "flotilla", "stop", f"--coordinator={cluster.address}", "--insecure")
    assert asked.wait(30) == 0
    result = cluster.succeed(launchers)
    assert result["status"] == "stopped" and result["world_size"] == world_size
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
    again = world(4)
    assert alone.items() <= alive(again).items()
    result = stop(cluster, [first, third])
    assert world_sizes(cluster, result) == [2, 4, 2, 4]
    assert int(again["learner_restarts"]) == result["restarts"]["learner"] == 2


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


# An environment whose releases differ in what they observe.
GAUGES = """
import os

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

COUNT = int(os.environ["GAUGES"])


class Gauges(gymnasium.Env):
    observation_space = Box(0, 1, (COUNT,), np.float32)
    action_space = Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(COUNT, np.float32), {}

    def step(self, action):
        return np.zeros(COUNT, np.float32), 1.0, False, False, {}


gymnasium.register("Gauges-v0", entry_point=Gauges, max_episode_steps=10)
"""


def test_who_plays_other_environments_is_turned_away_alone(cluster, launch, world):
    folder, env = cluster.sandbox.folder, cluster.sandbox.env
    (folder / "gauges.py").write_text(GAUGES)
    gauges = "--set=env.id=gym:gauges:Gauges-v0"
    env |= {"PYTHONPATH": str(folder), "GAUGES": "2"}
    first = launch(0, gauges)
    trains = world(2)

    env["GAUGES"] = "3"
    second = launch(1, gauges)
    try:
        code = second.wait(90)
    except subprocess.TimeoutExpired:
        raise AssertionError(cluster.diagnosis()) from None
    assert code == 2, cluster.diagnosis()
    said = (folder / "launcher_1.out").read_text()
    assert "has another network or other episode metrics than rank " in said, said
    after = world(2)
    assert after["generation"] == trains["generation"], after
    assert alive(trains).items() <= alive(after).items()
    stop(cluster, [first], world_size=2)
