"""The Atari pipeline, frame by frame against Gymnasium's AtariPreprocessing."""

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing

from play_client import Player, Rows, Server, episode_seed

from flotilla.v1 import config_pb2

ROWS = 2
STEPS = 1500

gymnasium.register_envs(ale_py)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("env"), "--threads=2") as server:
        yield server


class Twin:
    """Gymnasium's own, seeded as ours."""

    def __init__(self, env_id, size, sticky):
        env = gymnasium.make(env_id, frameskip=1, repeat_action_probability=sticky)
        self.env = AtariPreprocessing(env, noop_max=0, frame_skip=4, screen_size=size)

    def reset(self, seed):
        # What reset(seed=...) does, but for its hash of the seed.
        game = self.env.unwrapped
        game.ale.setInt("random_seed", seed & 0x7FFFFFFF)
        game.load_game()
        return self.env.reset()[0]


@pytest.mark.parametrize(
    "env_id, size, sticky",
    [
        ("ALE/Pong-v5", 84, 0.0),
        ("ALE/Breakout-v5", 84, 0.0),
        ("ALE/Breakout-v5", 96, 0.0),
        ("ALE/SpaceInvaders-v5", 84, 0.0),
        ("ALE/Pong-v5", 84, 0.25),
    ],
)
def test_every_frame_is_gymnasiums(server, env_id, size, sticky):
    rng = np.random.default_rng(0)
    options = config_pb2.EnvOptions(
        atari=config_pb2.AtariOptions(
            noop_max=0,
            fire_reset=False,
            episodic_life=False,
            clip_reward=False,
            screen_size=size,
            repeat_action_probability=sticky,
        )
    )
    twins = [Twin(env_id, size, sticky) for _ in range(ROWS)]
    games = [0] * ROWS
    returns = [0] * ROWS
    with Player(
        server.address, env_id, ROWS, 2, options=options, incarnation=rng.integers(1, 1 << 40), learner_id="atari"
    ) as player:
        num_actions = player.spec.action[0].num_values
        assert num_actions == twins[0].env.action_space.n
        steps = player.receive_all()
        rows = Rows(player, steps)
        for row, twin in enumerate(twins):
            np.testing.assert_array_equal(rows.observation[row], twin.reset(episode_seed(player.hello, row, 0)))
        for _ in range(STEPS):
            actions = rng.integers(num_actions, size=ROWS)
            steps = player.step_all(steps, actions)
            rows = Rows(player, steps)
            for row, twin in enumerate(twins):
                want, reward, terminated, truncated, _ = twin.env.step(actions[row])
                assert rows.reward[row] == reward
                assert rows.terminated[row] == terminated
                assert rows.truncated[row] == truncated
                returns[row] += reward
                if terminated or truncated:
                    games[row] += 1
                    np.testing.assert_array_equal(rows.final[row], want)
                    assert rows.end[row].raw_return == returns[row]
                    returns[row] = 0
                    want = twin.reset(episode_seed(player.hello, row, games[row]))
                np.testing.assert_array_equal(rows.observation[row], want)
    assert sum(games) > 0
