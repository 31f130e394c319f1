"""Gymnasium's spaces and action masks on the wire, played through the real server."""

import pathlib

import gymnasium
import numpy as np
import pytest
from google.protobuf import text_format
from gymnasium import spaces

import gym_envs
from gym_envs import Masked, Sampled, Says, Unusual, space_leaves, values_of
from play_client import Player, Server, env_pb2, episode_seed
from test_gym import CODE, flotilla_gym, get_spec, options, refusal  # noqa: F401 - a fixture

HERE = str(pathlib.Path(__file__).parent)
SEEDS = range(70)
SOURCES = ("observation", "info")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("env"), "--env=gym:x", "--retry-wait-ms=0", env={"PYTHONPATH": HERE}) as server:
        yield server


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """flotilla-envserver, which plays the Python server for its own learner."""
    with Server(tmp_path_factory.mktemp("env"), "--retry-wait-ms=0", env={"PYTHONPATH": HERE}) as server:
        yield server


def play(server, name, num_envs=1, num_groups=1, **kwargs):
    fields = options(gym_kwargs={key: str(value) for key, value in kwargs.items()})
    return Player(server.address, f"gym:gym_envs:{name}-v0", num_envs, num_groups, options=fields)


def path_of(keys):
    return "/".join(map(str, keys))


def want_leaf(space, is_action):
    """(dtype, shape, num_values of each element or None) of a space's leaf."""
    counted = not isinstance(space, spaces.Box) or (is_action and space.dtype.kind != "f")
    if counted:
        return env_pb2.INT64, space.shape, values_of(space)[1].ravel().tolist()
    if space.dtype.kind == "f":
        return env_pb2.FLOAT32, space.shape, None
    return (env_pb2.UINT8 if space.dtype == np.uint8 else env_pb2.INT64), space.shape, None


def said_leaf(leaf):
    num_values = [leaf.num_values] * int(np.prod(leaf.shape)) if leaf.num_values else list(leaf.num_values_each)
    return leaf.dtype, tuple(leaf.shape), num_values or None


def travels(space, value):
    """An observation's array."""
    start = 0 if isinstance(space, spaces.Box) else values_of(space)[0]
    return np.float32(value) if space.dtype.kind == "f" else np.asarray(value).astype(np.int64) - start


def seen(env, observation):
    """What a learner is to see, by path."""
    leaves = space_leaves(env.observation_space, observation)
    found = {path_of(keys): travels(space, value) for keys, space, value in leaves if keys[:1] != ("action_mask",)}
    if env.source == "info" and "" in found:
        found["observation"] = found.pop("")
    several = isinstance(env.action_space, (spaces.Dict, spaces.Tuple)) and len(list(space_leaves(env.action_space))) > 1
    for keys, mask in env.masks.items():
        found[f"action_mask/{path_of(keys)}" if several else "action_mask"] = mask
    return found


def choose(space, mask, rng):
    """A value as it travels that the mask allows, with its own ends more often than not."""
    first, num_values = values_of(space)
    if num_values is None:
        value = np.float32(space.sample())
        with np.errstate(over="ignore"):
            low, high = np.float32(space.low), np.float32(space.high)
        end = np.where(rng.integers(2, size=space.shape), low, high)
        return np.clip(np.where(np.isfinite(end) & (rng.random(space.shape) < 0.3), end, value), low, high)
    if mask is None:
        mask = np.ones(num_values.sum())
    parts = np.split(mask, np.cumsum(num_values.ravel())[:-1])
    return np.reshape([rng.choice(np.flatnonzero(part)) for part in parts], space.shape)


def own(space, chosen, keys=()):
    """The environment's action of what travels."""
    if isinstance(space, spaces.Dict):
        return {key: own(child, chosen, (*keys, key)) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(own(child, chosen, (*keys, i)) for i, child in enumerate(space))
    if isinstance(space, spaces.Discrete):
        return int(chosen[keys] + space.start)
    if space.dtype.kind == "f":
        return np.asarray(np.clip(np.asarray(chosen[keys]).astype(space.dtype), space.low, space.high))
    return np.asarray(chosen[keys] + values_of(space)[0]).astype(space.dtype)


def expect(player, arrays, row, want):
    assert sorted(want, key=str.encode) == [leaf.path for leaf in player.spec.observation]
    for i, leaf in enumerate(player.spec.observation):
        np.testing.assert_array_equal(arrays[i][row], want[leaf.path], leaf.path)


def check_spec(spec, env):
    actions = {path_of(keys): space for keys, space, _ in space_leaves(env.action_space)}
    assert [leaf.path for leaf in spec.action] == sorted(actions, key=str.encode)
    masks = {leaf.path: leaf for leaf in spec.observation if leaf.path.startswith("action_mask")}
    for leaf in spec.action:
        want = want_leaf(actions[leaf.path], True)
        assert said_leaf(leaf) == want
        if env.source is None or want[2] is None:
            assert leaf.mask_path == ""
            continue
        mask = masks.pop(leaf.mask_path)
        assert (mask.dtype, list(mask.shape), mask.num_values) == (env_pb2.UINT8, [sum(want[2])], 0)
    assert not masks
    assert spec.action_mask_path == (spec.action[0].mask_path if len(spec.action) == 1 else "")
    observations = {path_of(keys): space for keys, space, _ in space_leaves(env.observation_space)}
    for leaf in spec.observation:
        if leaf.path.startswith("action_mask"):
            continue
        space = observations["" if "" in observations else leaf.path]
        assert said_leaf(leaf) == want_leaf(space, False)


def cross(server, seeds, source):
    """Plays random spaces beside the environments themselves. Returns how many episodes ended."""
    ends = 0
    for seed in seeds:
        kwargs = {"seed": seed} | ({"source": source} if source else {})
        rng = np.random.default_rng(seed)
        twins = [Sampled(**kwargs) for _ in range(4)]
        with play(server, "Sampled", 4, 2, **kwargs) as player:
            check_spec(player.spec, twins[0])
            episodes = [0] * 4
            steps = player.receive_all()
            for row, twin in enumerate(twins):
                observation, _ = twin.reset(seed=episode_seed(player.hello, row, 0))
                arrays = [player.observation(steps[row // 2], i) for i in range(len(player.spec.observation))]
                expect(player, arrays, row % 2, seen(twin, observation))
            for _ in range(8):
                chosen = [
                    {keys: choose(space, twin.masks.get(keys), rng) for keys, space, _ in space_leaves(twin.action_space)}
                    for twin in twins
                ]
                by_path = [{path_of(keys): value for keys, value in row.items()} for row in chosen]
                for step in steps:
                    rows = by_path[2 * step.group : 2 * step.group + 2]
                    player.send(step, *([row[leaf.path] for row in rows] for leaf in player.spec.action))
                steps = player.receive_all()
                for row, twin in enumerate(twins):
                    step, r = steps[row // 2], row % 2
                    assert not step.error, (seed, step.error)
                    observation, reward, terminated, truncated, _ = twin.step(own(twin.action_space, chosen[row]))
                    assert np.frombuffer(step.reward, np.float32)[r] == reward
                    assert (step.terminated[r], step.truncated[r]) == (terminated, truncated)
                    if terminated or truncated:
                        ends += 1
                        at = list(step.final_row).index(r)
                        finals = [player.final_observation(step, i) for i in range(len(player.spec.observation))]
                        expect(player, finals, at, seen(twin, observation))
                        episodes[row] += 1
                        observation, _ = twin.reset(seed=episode_seed(player.hello, row, episodes[row]))
                    arrays = [player.observation(step, i) for i in range(len(player.spec.observation))]
                    expect(player, arrays, r, seen(twin, observation))
    return ends


@pytest.mark.parametrize("source", [None, *SOURCES])
def test_random_spaces_cross_whole(server, source):
    assert cross(server, SEEDS, source) > 100


@pytest.mark.parametrize("source", [None, *SOURCES])
def test_random_spaces_cross_another_server(behind, source):
    cross(behind, SEEDS[:5], source)


def test_the_random_spaces_are_of_every_kind():
    kinds = set()
    for seed in SEEDS:
        for env in (Sampled(seed), *(Sampled(seed, source) for source in SOURCES)):
            for what in ("observation", "action"):
                top = getattr(env, f"{what}_space")
                found = [space for _, space, _ in space_leaves(top)] + [top]
                kinds |= {(what, type(space).__name__, str(space.dtype)) for space in found}
            kinds.add((env.source, env.whole, len(env._counted()) > 1))
    for what in ("observation", "action"):
        for dtype in gym_envs._BOX_DTYPES:
            assert (what, "Box", dtype) in kinds
        for kind in ("Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple"):
            assert any(kind == name for where, name, _ in kinds if where == what), kind
    for source in SOURCES:
        assert {(source, True, False), (source, True, True), (source, False, True)} <= kinds


def box(low, high, dtype, shape=None):
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), shape, dtype)


@pytest.mark.parametrize(
    "space, what, want",
    [
        (box([-1, 0], [1, np.inf], np.float16), "observation", "dtype: FLOAT32 shape: 2 low: -1 low: 0 high: 1 high: inf"),
        (box([0, 0], [5e299, 5e299], np.float64), "action", "dtype: FLOAT32 shape: 2 low: 0"),
        (box(-2, 2, np.float64), "action", "dtype: FLOAT32 low: -2 high: 2"),
        (spaces.Box(0, 255, (3, 4, 5), np.uint8), "observation", "dtype: UINT8 shape: 3 shape: 4 shape: 5"),
        (box([0, 250], [0, 255], np.uint8), "action", "dtype: INT64 shape: 2 num_values_each: 1 num_values_each: 6"),
        (box([-3, 5], [-1, 9], np.int16), "observation", "dtype: INT64 shape: 2"),
        (box([-3, 5], [-1, 9], np.int16), "action", "dtype: INT64 shape: 2 num_values_each: 3 num_values_each: 5"),
        (box(-(2**31), -1, np.int64), "action", "dtype: INT64 num_values: 2147483648"),
        (spaces.Box(0, 1, (2,), np.bool_), "observation", "dtype: INT64 shape: 2"),
        (spaces.Box(0, 1, (2,), np.bool_), "action", "dtype: INT64 shape: 2 num_values: 2"),
        (spaces.Discrete(5, start=-2), "observation", "dtype: INT64 num_values: 5"),
        (spaces.MultiBinary((2, 3)), "action", "dtype: INT64 shape: 2 shape: 3 num_values: 2"),
        (spaces.MultiDiscrete([[2, 2], [2, 2]]), "action", "dtype: INT64 shape: 2 shape: 2 num_values: 2"),
        (
            spaces.MultiDiscrete([[1, 2], [3, 4]]),
            "observation",
            "dtype: INT64 shape: 2 shape: 2 num_values_each: 1 num_values_each: 2 num_values_each: 3 num_values_each: 4",
        ),
    ],
)
def test_the_leaf_of_each_space(flotilla_gym, space, what, want):
    (leaf,) = flotilla_gym.rows.leaves(space, f"{what} space")
    assert leaf.proto == text_format.Parse(want, env_pb2.Leaf())


@pytest.mark.parametrize("action, words", [([0, 3], "element 1, want 0 to 2"), ([-1, 0], "element 0, want 0 to 8")])
def test_a_choice_beyond_its_values_ends_the_stream(server, action, words):
    with play(server, "Masked") as player:
        player.send(player.receive(), [action])
        code, message = refusal(player.receive)
        assert code == CODE.INVALID_ARGUMENT and words in message


REFUSED = {
    "observation": ["observation space", "Text(", 'at "words"', "want Box"],
    "sequence": ["observation space", "Sequence(", 'at "1"', "a wrapper can convert it"],
    "graph": ["observation space", "Graph(", "want Box"],
    "one of": ["action space", "OneOf(", 'at "a"', "want Box"],
    "text": ["action space", "Text(", "want Box"],
    "unbounded": ["action space", 'at "1"', "integers without bounds", "want finite low and high"],
    "wide": ["action space", "integers of 2147483649 values, want at most 2147483648", "Box of floats"],
    "no elements": ["observation space", "(2, 0)", "has no elements"],
    "no int64": ["observation space", "Discrete(5", "values that are no int64"],
    "paths": ["observation space", "['a/b', 'a/b']", "distinct paths"],
    "mask size": ["observation space", 'MultiBinary(3) at "action_mask"', "Box or MultiBinary of 2 values", "rename it"],
    "mask bounds": ["observation space", 'Box(0, 2, (2,), int8) at "action_mask"', "2 values of 0 or 1, one for each value of the action"],
    "mask keys": ["observation space", '5 values', '(2 for "a", 3 for "b")', "by the action's keys"],
}  # fmt: skip


@pytest.mark.parametrize("which", list(Unusual.UNUSUAL))
def test_what_no_array_holds_is_refused_by_name(server, which):
    env_id = "gym:gym_envs:Unusual-v0"
    for call in (
        lambda: play(server, "Unusual", which=which),
        lambda: get_spec(server, env_id, gym_kwargs={"which": which}),
    ):
        code, message = refusal(call)
        assert code == CODE.INVALID_ARGUMENT and message.startswith(f"{env_id}: the ")
        for word in REFUSED[which]:
            assert word in message, message


@pytest.mark.parametrize("wrong", range(len(Says.WRONG)))
def test_an_observation_outside_of_its_space_is_an_error_of_its_row(server, wrong):
    with play(server, "Says", 2) as player:
        player.send(player.receive(), [0, 1 + wrong])
        step = player.receive()
        assert [error.row for error in step.error] == [1]
        assert Says.WRONG[wrong][1] in step.error[0].message
        player.send(step, [0, 0])
        assert not player.receive().error


FAULTS = {
    "short": " has 11 values, want 12, one for each value of the action",
    "two": ", value 10, is 2, want 0 or 1",
    "not a number": ", value 0, is nan, want 0 or 1",
    "text": " is str, want 12 values of 0 or 1",
    "nothing": " forbids all 3 values of element 1, want one or more allowed",
    "missing": " is missing, want 12 values of 0 or 1",
    "a value": " has 1 values, want 12",
    "end, then missing": " is missing, want 12 values of 0 or 1",
}
FORGIVEN_AT_THE_END = ("nothing", "missing")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("fault", list(Masked.FAULTS))
def test_a_mask_that_does_not_fit_is_an_error_of_its_row(server, source, fault):
    with play(server, "Masked", 2, source=source) as player:
        mask = [leaf.path for leaf in player.spec.observation].index("action_mask")
        step = player.receive()
        player.send(step, [[0, 0], [1 + list(Masked.FAULTS).index(fault), 0]])
        step = player.receive()
        assert [error.row for error in step.error] == [1] and not step.final_row
        assert f'ValueError: {source}["action_mask"]{FAULTS[fault]}' in step.error[0].message
        np.testing.assert_array_equal(player.observation(step, mask), np.ones((2, 12)))
        player.send(step, [[0, 0], [0, 0]])
        assert not player.receive().error


@pytest.mark.parametrize("source", SOURCES)
def test_a_row_without_an_environment_allows_every_action(tmp_path, source):
    """Somebody still chooses one for it, which is ignored."""
    with Server(tmp_path, "--env=gym:x", "--retry-wait-ms=3600000", env={"PYTHONPATH": HERE}) as server:
        with play(server, "Masked", 2, source=source) as player:
            player.send(player.receive(), [[0, 0], [1, 0]])
            step = player.receive()
            assert [error.row for error in step.error] == [1]
            by_path = {leaf.path: player.observation(step, i) for i, leaf in enumerate(player.spec.observation)}
            np.testing.assert_array_equal(by_path.pop("action_mask"), np.ones((2, 12)))
            np.testing.assert_array_equal(list(by_path.values()), [[2, 0]])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("end", [1, 2], ids=["terminated", "truncated"])
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.startswith("end")])
def test_at_an_episodes_end_a_mask_may_allow_nothing(server, source, end, fault):
    with play(server, "Masked", 1, source=source) as player:
        mask = [leaf.path for leaf in player.spec.observation].index("action_mask")
        player.send(player.receive(), [[1 + list(Masked.FAULTS).index(fault), end]])
        step = player.receive()
        if fault in FORGIVEN_AT_THE_END:
            assert not step.error and len(step.final_row) == 1
            np.testing.assert_array_equal(player.final_observation(step, mask), np.ones((1, 12)))
        else:
            assert FAULTS[fault] in step.error[0].message and not step.final_row
        np.testing.assert_array_equal(player.observation(step, mask), np.ones((1, 12)))


def said_masks(flotilla_gym, space, mask):
    """What `mask` in info becomes: by path, and each action's mask_path."""
    action = flotilla_gym.rows.leaves(space, "action space")
    masks, wrong = flotilla_gym.masks.in_info({"action_mask": mask}, action)
    said = flotilla_gym.rows.Said(None, {"action_mask": mask}, False)
    found = {}
    for leaf in masks:
        array = np.full((1, *leaf.shape), 9, leaf.dtype)
        leaf.write(array, 0, said)
        found[leaf.proto.path] = array[0].tolist()
    return found, [leaf.proto.mask_path for leaf in action], wrong


def test_a_mask_of_all_actions_is_in_the_actions_own_order(flotilla_gym):
    """Paths are not: "10" comes before "2"."""
    last = [[0] * i + [1] for i in range(11)]
    space = spaces.Tuple([spaces.Box(-1, 1), *(spaces.Discrete(i + 1) for i in range(11))])
    found, paths, _ = said_masks(flotilla_gym, space, np.concatenate(last).astype(bool))
    assert found == {f"action_mask/{i + 1}": bits for i, bits in enumerate(last)}
    assert paths == ["", *(f"action_mask/{i}" for i in sorted(range(1, 12), key=str))]


@pytest.mark.parametrize(
    "mask, found",
    [
        ({"a": {"b": [1, 0]}}, {"action_mask/a/b": [1, 0]}),
        ({"a/b": [1, 0], "c": [0, 1, 1.0]}, {"action_mask/a/b": [1, 0], "action_mask/c": [0, 1, 1]}),
        ({"a": {"b": [1, 0], "d": None}}, {"action_mask/a/b": [1, 0]}),
        ({"a": {"b": [1, 0], "e": [1]}}, {}),
        ({"a": {"b": [1, 0, 1]}}, {}),
        ({"a": {"b": "10"}}, {}),
        ([1] * 4, {}),
        ({}, {}),
        ("text", {}),
    ],
)
def test_masks_by_the_actions_keys_may_leave_some_out(flotilla_gym, mask, found):
    space = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2), "d": spaces.Box(-1, 1)}), "c": spaces.Discrete(3)})
    masks, paths, wrong = said_masks(flotilla_gym, space, mask)
    assert masks == found and {path for path in paths if path} == set(found)
    assert ("want 5 values of 0 or 1" in wrong) == (not found)


def test_what_a_mask_of_all_actions_forbids_is_named(flotilla_gym):
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiDiscrete([1, 2])})
    for mask, words in (([0, 0, 1, 1, 1], 'all 2 values of action "a"'), ([0, 1, 0, 1, 1], 'all 1 values of action "b" of element 0')):
        with pytest.raises(ValueError, match=words):
            said_masks(flotilla_gym, space, mask)


@pytest.mark.parametrize("kwargs", [{"size": 7}, {"continuous": "true"}], ids=["of another size", "of no choices"])
def test_an_info_whose_mask_fits_no_action_masks_none(server, kwargs):
    with play(server, "Masked", **kwargs) as player:
        assert [leaf.path for leaf in player.spec.observation] == [""]
        assert [leaf.mask_path for leaf in player.spec.action] == [""] and player.spec.action_mask_path == ""
        step = player.receive()
        player.send(step, [[0.5]] if "continuous" in kwargs else [[0, 0]])
        assert not player.receive().error


def test_a_row_that_cannot_be_reset_at_first_does_not_hide_the_masks(server):
    """Which are declared before any row starts; the rows that could be reset play on as if nothing had looked."""
    with play(server, "Stubborn", 4) as player:
        assert player.spec.action[0].mask_path == player.spec.action_mask_path == "action_mask"
        step = player.receive()
        assert [error.row for error in step.error] == [0] and "RuntimeError: not yet" in step.error[0].message
        for _ in range(3):
            np.testing.assert_array_equal(player.observation(step, 1).ravel(), [1] * 4)  # resets of each, but for the failed
            player.send(step, [0] * 4)
            step = player.receive()
            assert not step.error


# v3, as it has been called for long, where Gymnasium still has it.
TAXI = "Taxi-v3" if "Taxi-v3" in gymnasium.registry else "Taxi-v4"
REAL = {
    TAXI: lambda space, mask, rng: rng.choice(np.flatnonzero(mask)),
    "FrozenLake-v1": lambda space, mask, rng: rng.integers(space.n),
    "Blackjack-v1": lambda space, mask, rng: rng.integers(space.n),
    "CliffWalking-v1": lambda space, mask, rng: rng.integers(space.n),
    "MountainCar-v0": lambda space, mask, rng: rng.integers(space.n),
    "MountainCarContinuous-v0": lambda space, mask, rng: rng.uniform(-1, 1, 1).astype(np.float32),
    "LunarLander-v3": lambda space, mask, rng: rng.integers(space.n),
}


@pytest.mark.parametrize("env_id", list(REAL))
def test_gymnasiums_own_environments_play(server, env_id):
    try:
        twin = gymnasium.make(env_id)
    except gymnasium.error.DependencyNotInstalled as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(3)
    assert get_spec(server, f"gym:{env_id}").spec.env_id == f"gym:{env_id}"
    with Player(server.address, f"gym:{env_id}", 1) as player:
        paths = [leaf.path for leaf in player.spec.observation]
        masked = env_id == TAXI
        assert paths == {TAXI: ["action_mask", "observation"], "Blackjack-v1": ["0", "1", "2"]}.get(env_id, [""])
        assert player.spec.action_mask_path == player.spec.action[0].mask_path == ("action_mask" if masked else "")

        def check(observation, info, column):
            wants = observation if isinstance(observation, tuple) else [info["action_mask"], observation] if masked else [observation]
            for i, want in enumerate(wants):
                np.testing.assert_array_equal(column(i)[0], want)

        step = player.receive()
        episode = 0
        observation, info = twin.reset(seed=episode_seed(player.hello, 0, 0))
        for _ in range(450):
            check(observation, info, lambda i: player.observation(step, i))
            action = REAL[env_id](twin.action_space, info.get("action_mask"), rng)
            player.send(step, [action])
            step = player.receive()
            assert not step.error
            observation, _, terminated, truncated, info = twin.step(action)
            if terminated or truncated:
                check(observation, info, lambda i: player.final_observation(step, i))
                episode += 1
                observation, info = twin.reset(seed=episode_seed(player.hello, 0, episode))
        assert episode > 0 or env_id in ("CliffWalking-v1", "MountainCarContinuous-v0")
