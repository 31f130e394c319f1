"""CartPole and Pendulum, step for step against Gymnasium's own."""

import gymnasium
import numpy as np
import pytest

from play_client import Player, Random, Rows, Server, episode_seed

ROWS = 4
STEPS = 1200


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("env")) as server:
        yield server


class CartPole:
    """Gymnasium's, put into our initial states."""

    id = "CartPole-v1"

    def __init__(self):
        self.env = gymnasium.make(self.id)

    def reset(self, seed):
        random = Random(seed)
        self.env.reset()
        state = np.float32([random.uniform(-0.05, 0.05) for _ in range(4)])
        self.env.unwrapped.state = state.astype(np.float64)
        return state

    def action(self, row, observation, rng):
        # Half the rows balance until the step limit, half fall.
        if row % 2:
            return int(rng.integers(2))
        return int(observation @ np.float32([0.1, 0.3, 1.0, 0.5]) > 0)


class Pendulum:
    id = "Pendulum-v1"

    def __init__(self):
        self.env = gymnasium.make(self.id)

    def reset(self, seed):
        random = Random(seed)
        self.env.reset()
        state = np.float32([random.uniform(-np.pi, np.pi), random.uniform(-1, 1)])
        self.env.unwrapped.state = state.astype(np.float64)
        return self.env.unwrapped._get_obs()

    def action(self, row, observation, rng):
        return rng.uniform(-2, 2, 1).astype(np.float32)


@pytest.mark.parametrize("kind", [CartPole, Pendulum])
def test_every_step_is_gymnasiums(server, kind):
    rng = np.random.default_rng(0)
    twins = [kind() for _ in range(ROWS)]
    episodes = [0] * ROWS
    ended = {"terminated": 0, "truncated": 0}
    with Player(server.address, kind.id, ROWS, 2, incarnation=rng.integers(1, 1 << 40)) as player:
        steps = player.receive_all()
        rows = Rows(player, steps)
        returns = np.zeros(ROWS)
        lengths = np.zeros(ROWS, int)
        for row, twin in enumerate(twins):
            np.testing.assert_array_equal(rows.observation[row], twin.reset(episode_seed(player.hello, row, 0)))
        for _ in range(STEPS):
            actions = [twin.action(row, rows.observation[row], rng) for row, twin in enumerate(twins)]
            steps = player.step_all(steps, actions)
            rows = Rows(player, steps)
            for row, twin in enumerate(twins):
                want, reward, terminated, truncated, _ = twin.env.step(actions[row])
                # Gymnasium may report both; ours is the task's end then.
                truncated = truncated and not terminated
                assert rows.reward[row] == np.float32(reward)
                assert rows.terminated[row] == terminated
                assert rows.truncated[row] == truncated
                returns[row] += np.float32(reward)
                lengths[row] += 1
                assert (row in rows.end) == (row in rows.final) == (terminated or truncated)
                if terminated or truncated:
                    ended["terminated" if terminated else "truncated"] += 1
                    np.testing.assert_array_equal(rows.final[row], want)
                    assert rows.end[row].raw_return == pytest.approx(returns[row], rel=1e-9)
                    assert rows.end[row].length == lengths[row]
                    returns[row] = lengths[row] = 0
                    episodes[row] += 1
                    want = twin.reset(episode_seed(player.hello, row, episodes[row]))
                np.testing.assert_array_equal(rows.observation[row], want)
    assert ended["truncated"] > 0
    assert (ended["terminated"] > 0) == (kind is CartPole)
