"""pettingzoo: environments: on the Python server alone, and behind flotilla-envserver."""

import importlib
import pathlib

import grpc
import numpy as np
import pytest

from play_client import Player, Server, env_pb2, env_pb2_grpc, episode_seed

HERE = str(pathlib.Path(__file__).parent)
CODE = grpc.StatusCode
MODES = {"python": ["--env=pettingzoo:x"], "behind": []}
both = pytest.mark.parametrize("server", list(MODES), indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    mode = MODES[getattr(request, "param", "python")]
    with Server(tmp_path_factory.mktemp("env"), *mode, "--retry-wait-ms=0", env={"PYTHONPATH": HERE}) as server:
        yield server


def options(max_episode_steps=0, **kwargs):
    hello = env_pb2.Hello()
    hello.options.max_episode_steps = max_episode_steps
    hello.options.kwargs.update({name: str(value).lower() for name, value in kwargs.items()})
    return hello.options


def flags(step, field, rows):
    return list(getattr(step, field) or (b"\1" if field == "active" else b"\0") * rows)


def rewards(step):
    return np.frombuffer(step.reward, "<f4").tolist()


def play(player, step, *actions):
    """One step of the only group, of int64 actions."""
    return player.step_all([step], actions)[0]


def seen(player, step):
    """Observations, per leaf [R, ...]."""
    return [player.observation(step, leaf) for leaf in range(len(player.spec.observation))]


def ends(step):
    return [(end.row, end.raw_return, end.length, end.others_play_on) for end in step.episode_end]


@both
def test_agents_that_act_at_once_leave_one_by_one(server):
    with Player(server.address, "pettingzoo:zoo_envs:Survivors", 6, worker_id=2) as player:
        assert player.spec.agents == 3
        assert [leaf.path for leaf in player.spec.observation] == [""]
        (step,) = player.receive_all()
        rows = seen(player, step)[0]
        assert [list(row[:2]) for row in rows] == [[0, 0], [1, 0], [2, 0]] * 2
        for e in (0, 1):  # an environment's seed is that of its first row
            assert rows[3 * e][2] == episode_seed(player.hello, 3 * e, 0) % 1000
        assert step.active == b""

        step = play(player, step, 1, 3, 2, 0, 0, 0)
        assert rewards(step) == [1, 3, 2, 0, 0, 0]
        assert flags(step, "terminated", 6) == [0, 1, 0, 0, 0, 0]
        assert flags(step, "active", 6) == [1, 0, 1, 1, 1, 1]
        assert list(step.final_row) == [1]
        assert np.frombuffer(step.final_observation.leaf[0], "<f4").tolist() == [1, 1, 3]
        assert ends(step) == [(1, 3, 1, True)]
        assert seen(player, step)[0][1].tolist() == [0, 0, 0]

        # It is sent anything, and the environment nothing.
        step = play(player, step, 3, -77, 1, 1, 1, 1)
        assert ends(step) == [(0, 4, 2, True)]
        assert flags(step, "active", 6) == [0, 0, 1, 1, 1, 1]
        step = play(player, step, 9, 9, 3, 1, 1, 1)
        assert ends(step) == [(2, 6, 3, False)]
        assert step.active == b""  # all of the next episode's
        rows = seen(player, step)[0]
        assert [list(row[:2]) for row in rows[:3]] == [[0, 0], [1, 0], [2, 0]]
        assert rows[0][2] == episode_seed(player.hello, 0, 1) % 1000
        # The others are at their third step; the time limit ends all of them together.
        step = play(player, step, 0, 0, 0, 1, 1, 1)
        step = play(player, step, 0, 0, 0, 1, 3, 1)
        assert flags(step, "terminated", 6) == [0, 0, 0, 0, 1, 0]
        assert flags(step, "truncated", 6) == [0, 0, 0, 1, 0, 1]
        assert ends(step) == [(3, 4, 5, False), (4, 6, 5, False), (5, 4, 5, False)]


@both
def test_agents_that_act_in_turn_learn_of_things_at_their_turn(server):
    with Player(server.address, "pettingzoo:zoo_envs:Race", 3, options=options(length=2)) as player:
        assert [leaf.path for leaf in player.spec.observation] == ["action_mask", "observation"]
        assert player.spec.action[0].mask_path == "action_mask"
        (step,) = player.receive_all()
        turn = episode_seed(player.hello, 0, 0) % 3
        returns, lengths, told = [0] * 3, [0] * 3, []
        for move in range(6):
            active = flags(step, "active", 3)
            assert active == [int(slot == turn) for slot in range(3)]
            mask, observation = seen(player, step)
            assert observation[turn].tolist() == [turn, move]
            assert mask[turn].tolist() == [1, 1, move // 3 % 2]
            for slot in {0, 1, 2} - {turn}:
                assert not mask[slot].any() and not observation[slot].any()
            # 1 to who moves, and -1 to the next, at the next one's turn.
            step = play(player, step, *[1 if slot == turn else 99 for slot in range(3)])
            for slot, reward in enumerate(rewards(step)):
                returns[slot] += reward
            lengths[turn] += 1
            told += ends(step)
            turn = (turn + 1) % 3
        assert sorted((row, total, length) for row, total, length, _ in told) == [(s, returns[s], 2) for s in range(3)]
        assert sum(returns) == 0
        # The environment ended with the last one that was told of its end.
        assert [others for *_, others in told] == [True, True, False]
        # The next episode.
        assert flags(step, "active", 3).index(1) == episode_seed(player.hello, 0, 1) % 3


def test_step_limit_ends_all_who_still_play(server):
    with Player(server.address, "pettingzoo:zoo_envs:Survivors", 3, options=options(2, length=50)) as player:
        assert player.spec.max_episode_steps == 2
        (step,) = player.receive_all()
        step = play(player, step, 3, 1, 1)
        step = play(player, step, 0, 3, 1)
        assert flags(step, "terminated", 3) == [0, 1, 0]
        assert flags(step, "truncated", 3) == [0, 0, 1]
        assert ends(step) == [(1, 4, 2, False), (2, 2, 2, False)]
    with Player(server.address, "pettingzoo:zoo_envs:Race", 3, options=options(2)) as player:
        (step,) = player.receive_all()
        turn = flags(step, "active", 3).index(1)
        for move in range(2):
            step = play(player, step, *[1 if slot == (turn + move) % 3 else 99 for slot in range(3)])
        assert flags(step, "truncated", 3) == [1, 1, 1]
        by_row = {row: (total, length) for row, total, length, _ in ends(step)}
        # Whom it is the turn of next has lost one that it was not told of.
        assert by_row == {turn: (1, 1), (turn + 1) % 3: (0, 1), (turn + 2) % 3: (-1, 0)}


@both
def test_who_is_not_observed_earns_and_ends_all_the_same(server):
    with Player(server.address, "pettingzoo:zoo_envs:Quiet", 3) as player:
        (step,) = player.receive_all()
        step = play(player, step, 3, 1, 2)
        assert rewards(step) == [3, 1, 2]
        assert flags(step, "terminated", 3) == [1, 0, 0]
        assert flags(step, "active", 3) == [0, 0, 1]
        assert ends(step) == [(0, 3, 1, True)]
        assert not np.any(np.frombuffer(step.final_observation.leaf[0], "<f4"))
        assert not seen(player, step)[0][:2].any()
        # What it earns in between belongs to its last action.
        step = play(player, step, 99, 99, 0)
        assert rewards(step) == [0, 1, 0]
        assert flags(step, "active", 3) == [0, 1, 1]
        step = play(player, step, 99, 2, 3)
        assert rewards(step) == [0, 2, 3]
        assert ends(step) == [(2, 5, 3, True)]
        step = play(player, step, 99, 99, 99)
        assert rewards(step) == [0, 2, 0]
        assert seen(player, step)[0][1].tolist() == [1, 4, 2]
        # The time limit: it has seen nothing since.
        step = play(player, step, 99, 1, 99)
        assert rewards(step) == [0, 1, 0]
        assert flags(step, "truncated", 3) == [0, 1, 0]
        assert ends(step) == [(1, 7, 3, False)]
        assert np.frombuffer(step.final_observation.leaf[0], "<f4").tolist() == [1, 4, 2]
        assert step.active == b""


def test_who_is_not_observed_at_the_step_limit_ends_with_what_it_saw_last(server):
    with Player(server.address, "pettingzoo:zoo_envs:Quiet", 3, options=options(3, length=50)) as player:
        (step,) = player.receive_all()
        step = play(player, step, 0, 1, 0)
        step = play(player, step, 0, 99, 0)
        step = play(player, step, 0, 2, 0)
        assert flags(step, "truncated", 3) == [1, 1, 1]
        assert ends(step) == [(0, 0, 3, False), (1, 4, 2, False), (2, 0, 3, False)]
        final = np.frombuffer(step.final_observation.leaf[0], "<f4").reshape(3, 3)
        assert final.tolist() == [[0, 3, 0], [1, 2, 1], [2, 3, 0]]


def test_no_observation_is_none_to_be_cut_short_with(server):
    with Player(server.address, "pettingzoo:zoo_envs:Blinded", 3, options=options(length=1)) as player:
        (step,) = player.receive_all()
        step = play(player, step, 1, 1, 1)
        assert [error.row for error in step.error] == [0, 1, 2]
        assert "ValueError: the observation is object[], want float32[3]" in step.error[0].message
        step = play(player, step, 3, 3, 3)  # its task ended it: nothing is to come
        assert not step.error and flags(step, "terminated", 3) == [1, 1, 1]


def test_who_left_without_a_word_is_terminated(server):
    with Player(server.address, "pettingzoo:zoo_envs:Deserters", 3, options=options(1)) as player:
        (step,) = player.receive_all()
        step = play(player, step, 1, 1, 1)
        assert flags(step, "terminated", 3) == [0, 0, 1]
        assert flags(step, "truncated", 3) == [1, 1, 0]
    with Player(server.address, "pettingzoo:zoo_envs:Deserters", 3, options=options(all=True)) as player:
        (step,) = player.receive_all()
        step = play(player, step, 1, 2, 0)
        assert flags(step, "terminated", 3) == [1, 1, 1]
        assert ends(step) == [(0, 1, 1, False), (1, 2, 1, False), (2, 0, 1, False)]
    with Player(server.address, "pettingzoo:zoo_envs:Untold", 3, options=options(1, length=1)) as player:
        (step,) = player.receive_all()
        turn = flags(step, "active", 3).index(1)
        step = play(player, step, *[1 if slot == turn else 99 for slot in range(3)])
        # Who has moved has ended, though its turn to learn of it had not come; the next goes on.
        assert flags(step, "terminated", 3) == [int(slot != (turn + 1) % 3) for slot in range(3)]
        assert flags(step, "truncated", 3) == [int(slot == (turn + 1) % 3) for slot in range(3)]


@both
def test_environments_fail_with_all_their_agents(server):
    with Player(server.address, "pettingzoo:zoo_envs:Survivors", 6) as player:
        (step,) = player.receive_all()
        step = play(player, step, 3, 1, 1, 1, 1, 1)
        step = play(player, step, 0, 1, 4, 2, 2, 2)
        assert [error.row for error in step.error] == [0, 1, 2]
        assert 'env "pettingzoo:zoo_envs:Survivors", row 0: ValueError: four' == step.error[0].message
        assert "zoo_envs.py" in step.error[0].traceback
        assert [error.message for error in step.error[1:]] == ["", ""]
        assert rewards(step) == [0, 0, 0, 2, 2, 2]
        assert step.active == b"" and not step.episode_end
        assert seen(player, step)[0][0].tolist()[:2] == [0, 0]
        step = play(player, step, 1, 1, 1, 1, 1, 1)
        assert not step.error


def test_masks_may_be_in_the_info(server):
    with Player(server.address, "pettingzoo:zoo_envs:Survivors", 3, options=options(masked=True)) as player:
        assert player.spec.action[0].mask_path == "action_mask"
        (step,) = player.receive_all()
        assert seen(player, step)[0].tolist() == [[1, 1, 1, 1, 0]] * 3


@pytest.mark.parametrize(
    "env_id, rows, code, words",
    [
        ("zoo_envs:Survivors", 4, CODE.INVALID_ARGUMENT, 'num_envs is 4 in 1 groups, and "pettingzoo:zoo_envs:Survivors" has 3 agents: use 3 or 6'),
        ("zoo_envs:Mixed", 3, CODE.INVALID_ARGUMENT, "the action space of a0 is Discrete(5), and that of a1 Discrete(6)"),
        ("zoo_envs:Absent", 3, CODE.NOT_FOUND, "zoo_envs has no Absent"),
        ("zoo_envs", 3, CODE.NOT_FOUND, "zoo_envs has no parallel_env nor env"),
        ("no/such_v1", 3, CODE.NOT_FOUND, "there is no module pettingzoo.no.such_v1, nor no.such_v1"),
        ("a b", 3, CODE.INVALID_ARGUMENT, "as in pettingzoo:classic/connect_four_v3"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_by_name(server, env_id, rows, code, words):
    with pytest.raises(grpc.RpcError) as caught, Player(server.address, f"pettingzoo:{env_id}", rows):
        pass
    assert caught.value.code() == code
    assert words in caught.value.details()


def test_wrong_arguments_are_refused(server):
    with pytest.raises(grpc.RpcError) as caught:
        Player(server.address, "pettingzoo:zoo_envs:Survivors", 3, options=options(agnets=3))
    assert caught.value.code() == CODE.INVALID_ARGUMENT
    assert "env.options.kwargs" in caught.value.details() and "agnets" in caught.value.details()


AGENTS = {"classic/tictactoe_v3": 2, "classic/rps_v2": 2, "sisl/multiwalker_v9": 3}


@pytest.mark.parametrize("env_id", AGENTS)
def test_pettingzoos_own_environments_play(server, env_id):
    rng = np.random.default_rng(5)
    with Player(server.address, f"pettingzoo:{env_id}", AGENTS[env_id]) as player:
        (action,) = player.spec.action
        mask = [leaf.path for leaf in player.spec.observation].index(action.mask_path) if action.mask_path else None
        (step,) = player.receive_all()
        for _ in range(60):
            if action.num_values:
                weights = seen(player, step)[mask] if mask is not None else np.ones((player.rows, action.num_values))
                actions = [int(rng.choice(np.flatnonzero(row))) if row.any() else 0 for row in weights]
            else:
                actions = rng.uniform(-1, 1, (player.rows, *action.shape))
            (step,) = player.step_all([step], actions)
            assert not step.error, step.error[0]


@both
def test_connect_four_is_pettingzoos(server):
    with Player(server.address, "pettingzoo:classic/connect_four_v3", 2) as player:
        assert player.spec.agents == 2
        compare_connect_four(player, lambda planes: planes)


def test_our_connect_four_is_pettingzoos(tmp_path):
    with Server(tmp_path) as server, Player(server.address, "Connect4", 2) as player:
        compare_connect_four(player, lambda planes: planes.transpose(2, 0, 1).ravel())


def compare_connect_four(player, form):
    """Random games: seen, allowed and paid as PettingZoo does, whose board is [6, 7, 2]."""
    rng = np.random.default_rng(3)
    twin = importlib.import_module("pettingzoo.classic.connect_four_v3").env()
    paths = [leaf.path for leaf in player.spec.observation]
    mask_leaf = paths.index(player.spec.action[0].mask_path)
    (step,) = player.receive_all()
    results = set()
    for _ in range(20):
        twin.reset(seed=0)
        begins = flags(step, "active", 2).index(1)
        for move in range(42):
            slot = (begins + move) % 2
            assert flags(step, "active", 2) == [int(s == slot) for s in range(2)]
            want = twin.observe(twin.agent_selection)
            arrays = seen(player, step)
            np.testing.assert_array_equal(arrays[mask_leaf][slot], want["action_mask"])
            np.testing.assert_array_equal(arrays[1 - mask_leaf][slot], form(want["observation"]))
            column = int(rng.choice(np.flatnonzero(want["action_mask"])))
            step = play(player, step, column, column)
            twin.step(column)
            if any(twin.terminations.values()):
                break
            assert rewards(step) == [0, 0] and not step.final_row
        assert flags(step, "terminated", 2) == [1, 1]
        paid = [twin.rewards[agent] for agent in twin.possible_agents]
        assert rewards(step) == (paid if begins == 0 else paid[::-1])
        results.add(tuple(rewards(step)))
        assert [end.raw_return for end in step.episode_end] == rewards(step)
        assert sum(end.length for end in step.episode_end) == move + 1
    assert {(1, -1), (-1, 1)} <= results
