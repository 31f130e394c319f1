"""gym: environments that do what they should not (gym_quirks.py)."""

import grpc
import numpy as np
import pytest

from play_client import TIMEOUT, Player, env_pb2, env_pb2_grpc, episode_seed
from test_gym import CODE, both, flotilla_gym, get_spec, refusal, server  # noqa: F401


def replay(server, env_id, episodes):
    """The answers; of each episode its seed and actions."""
    played = [env_pb2.ReplayEpisode(seed=seed, action=[np.int64(actions).tobytes()]) for seed, actions in episodes]
    with grpc.insecure_channel(server.address) as channel:
        request = env_pb2.ReplayRequest(env_id=env_id, episode=played)
        return list(env_pb2_grpc.EnvServiceStub(channel).Replay(request, timeout=TIMEOUT))


def draw(generators):
    return np.float32([each.random_sample() for each in generators])


@both
def test_an_environment_that_exits_as_it_is_made_is_refused_in_its_words(server):
    env_id = "gym:gym_quirks:Exits-v0"
    for call in (
        lambda: get_spec(server, env_id),
        lambda: Player(server.address, env_id, 2),
        lambda: replay(server, env_id, [(5, [0])]),
    ):
        code, message = refusal(call)
        if code == CODE.UNIMPLEMENTED:  # others play no game of it again
            continue
        assert (code, message) == (CODE.FAILED_PRECONDITION, f"{env_id} has called sys.exit(): no display is here")
    assert get_spec(server, "gym:CartPole-v1").spec.env_id == "gym:CartPole-v1"  # the server is still there


def test_an_environment_of_numpys_older_generator_gets_the_lower_half_of_its_seeds(server):
    env_id = "gym:gym_quirks:OldSeeds-v0"
    with Player(server.address, env_id, 2) as player:
        step = player.receive()
        for episode in range(4):
            seeds = [episode_seed(player.hello, row, episode) for row in range(2)]
            twins = [np.random.RandomState(seed & 0xFFFFFFFF) for seed in seeds]
            assert not step.error, step.error[0].message
            np.testing.assert_array_equal(player.observation(step).ravel(), draw(twins))
            rewards = []
            for seen in (player.observation, player.final_observation):
                player.send(step, [0, 0])
                step = player.receive()
                rewards.append(np.frombuffer(step.reward, np.float32))
                np.testing.assert_array_equal(seen(step).ravel(), draw(twins))
                np.testing.assert_array_equal(rewards[-1], draw(twins))
            # Each alone, in a game of its own.
            for row, seed in enumerate(seeds):
                answers = replay(server, env_id, [(seed, [0, 0])])
                assert [np.frombuffer(answer.reward, np.float32)[0] for answer in answers[1:]] == [each[row] for each in rewards]


@pytest.mark.parametrize("bits", [32, 63, 64])
def test_a_game_begins_anew_with_any_of_its_episodes(bits, flotilla_gym):
    """Whatever it was reset with before, a seed gives one episode: by all of it, if the environment takes so much."""

    class Env:
        spec, observation_space, action_space, close, step = (None,) * 5

        def reset(self, seed):
            if seed >= 1 << bits:
                raise OverflowError("too large")
            return seed, {}

    seeds = [((1 << 64) - 1) * i // 7 for i in (3, 6, 1, 5, 0, 7, 2, 4)]
    game = flotilla_gym.games.GymGame(Env())
    for seed in seeds:
        want = seed if seed < 1 << bits else seed & 0xFFFFFFFF
        assert [turn.observation for turn in game.reset(seed)] == [want]


def test_a_reset_that_fails_for_another_reason_says_it(flotilla_gym):
    class Env:
        spec, observation_space, action_space, close, step = (None,) * 5
        seeds = []

        def reset(self, seed):
            self.seeds.append(seed)
            raise ValueError(f"attempt {len(self.seeds)}")

    game = flotilla_gym.games.GymGame(Env())
    with pytest.raises(ValueError, match="^attempt 1$"):
        game.reset((3 << 32) + 4)
    assert Env.seeds == [(3 << 32) + 4, (3 << 32) + 4, 4]
    with pytest.raises(ValueError, match="^attempt 4$"):
        game.reset(4)  # no other half to try
    assert len(Env.seeds) == 4


def test_a_reset_that_fails_once_costs_no_seed_its_upper_half(flotilla_gym, capfd):
    class Env:
        spec, observation_space, action_space, close, step = (None,) * 5
        failed = False

        def reset(self, seed):
            if not self.failed:
                self.failed = True
                raise ValueError("the scene is\nnot loaded")
            return seed, {}

    game = flotilla_gym.games.GymGame(Env())
    for seed in ((3 << 32) + 4, (5 << 32) + 6):
        assert [turn.observation for turn in game.reset(seed)] == [seed]
    said = "reset(seed=12884901892) worked at its second attempt, after ValueError: the scene is not loaded\n"
    assert capfd.readouterr().err == f"flotilla_gym: {said}"


def test_an_episode_that_is_cut_short_ends_with_an_observation(server):  # noqa: F811
    with Player(server.address, "gym:gym_quirks:Blind-v0", 4) as player:
        player.send(player.receive(), [0, 1, 2, 3])
        step = player.receive()
        assert [error.row for error in step.error] == [2]
        assert "ValueError: the observation is object[], want float32[1]" in step.error[0].message
        assert list(step.final_row) == [1, 3] and not player.final_observation(step).any()
        assert (step.terminated, step.truncated) == (b"\0\1\0\1", b"\0\0\0\0")


def shy(flotilla_gym, fails, choices=True):
    """What makes environments whose first `fails` resets fail; later ones have a mask."""
    from gymnasium import spaces

    class Env:
        spec, step = None, None
        observation_space = spaces.Box(0, 1, (1,), np.float32)
        action_space = spaces.Discrete(2) if choices else spaces.Box(-1, 1, (1,), np.float32)
        resets = 0

        def reset(self, seed):
            self.resets += 1
            if self.resets <= fails:
                raise RuntimeError(f"attempt {self.resets}")
            return np.float32([1]), {"action_mask": [0, 1]}

        def close(self):
            pass

    return lambda env_id, options: flotilla_gym.games.GymGame(Env())


def test_resets_that_all_fail_at_first_do_not_hide_the_masks(flotilla_gym):
    make = shy(flotilla_gym, 1)
    spec = flotilla_gym.rows.spec_of("Env", env_pb2.Hello().options, make)
    rows = flotilla_gym.rows.Rows(env_pb2.Hello(env_id="Env", num_envs=2, num_groups=1), 0, False, make)
    assert rows.spec == spec and spec.action_mask_path == "action_mask"
    arrays = [np.zeros((2, *leaf.shape), leaf.dtype) for leaf in rows.observation]
    rows.place([arrays])
    step = rows.reset(0).finish()
    # Each is back, in a later episode than the first.
    for row, error in enumerate(step.error):
        assert (error.row, error.message) == (row, f'env "Env", row {row}: RuntimeError: attempt 1')
    assert [error.episode for error in step.error] == [2, 1]
    assert arrays[0].tolist() == [[0, 1], [0, 1]]


def test_masks_that_no_reset_tells_of_are_not_taken_for_none(flotilla_gym, capfd):
    hello = env_pb2.Hello(env_id="Env", num_envs=2, num_groups=1)
    make = shy(flotilla_gym, 9)
    for call in (
        lambda: flotilla_gym.rows.spec_of("Env", hello.options, make),
        lambda: flotilla_gym.rows.Rows(hello, 0, False, make),
    ):
        with pytest.raises(flotilla_gym.rows.Refused, match="^Env: it cannot be reset, .*: attempt 2$") as caught:
            call()
        assert caught.value.code == CODE.UNAVAILABLE
        assert capfd.readouterr().err.startswith("Traceback")
    # Of what is not chosen among values there are none.
    assert not flotilla_gym.rows.Rows(hello, 0, False, shy(flotilla_gym, 9, choices=False)).spec.action_mask_path


@pytest.mark.parametrize("space, words", [("Discrete", "there are but two"), ("Text", "no array of the protocol holds")])
def test_what_was_made_is_closed_where_not_all_can_be_played(space, words, flotilla_gym):
    from gymnasium import spaces

    made, closed = [], []

    class Env:
        spec, step = None, None
        observation_space = spaces.Text(5) if space == "Text" else spaces.Discrete(3)
        action_space = spaces.Discrete(2)

        def __init__(self):
            if space == "Discrete" and len(made) == 2:
                raise RuntimeError("there are but two")
            made.append(self)

        def close(self):
            closed.append(self)
            raise ValueError("one that cannot be closed keeps no other open")

    hello = env_pb2.Hello(env_id="Env", num_envs=4, num_groups=2)
    with pytest.raises(Exception, match=words):
        flotilla_gym.rows.Rows(hello, 0, False, lambda env_id, options: flotilla_gym.games.GymGame(Env()))
    assert len(made) >= 2 and closed == made
