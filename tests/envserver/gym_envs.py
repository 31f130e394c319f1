"""Environments that the tests register with Gymnasium: gym:gym_envs:ID."""

import asyncio
import os
import warnings
import zlib

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

_MASK = (1 << 64) - 1


def _splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class NativeCartPole(CartPoleEnv):
    """Gymnasium's dynamics from the native server's initial states."""

    def reset(self, *, seed, options=None):
        super().reset(seed=seed)
        # services/base/random.h: xoshiro256++, four numbers of 53 bits.
        s = [_splitmix64((seed + i * 0x9E3779B97F4A7C15) & _MASK) for i in range(4)]
        state = []
        for _ in range(4):
            total = (s[0] + s[3]) & _MASK
            word = ((((total << 23) & _MASK) | (total >> 41)) + s[0]) & _MASK
            t = (s[1] << 17) & _MASK
            s[2] ^= s[0]
            s[3] ^= s[1]
            s[1] ^= s[2]
            s[0] ^= s[3]
            s[2] ^= t
            s[3] = ((s[3] << 45) & _MASK) | (s[3] >> 19)
            state.append(-0.05 + 0.1 * ((word >> 11) * 2.0**-53))
        self.state = np.float32(state).astype(np.float64)
        return np.float32(state), {}


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Faulty(gymnasium.Env):
    """Counts its steps, and does what action `1 + i` asks for: FAULTS[i]."""

    FAULTS = (
        "raise", "exit", "nan", "shape", "dtype", "end, then fail to reset", "fail to be made again",
        "see nan", "see infinity", "see too much", "see nan at the end", "say too much", "say nothing",
    )  # fmt: skip
    SEEN = {"see nan": np.nan, "see infinity": -np.inf, "see too much": 1e19, "see nan at the end": np.nan}
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(1 + len(FAULTS))
    broken = False

    def __init__(self):
        if Faulty.broken:
            Faulty.broken = False  # once
            raise RuntimeError("cannot be made")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        if getattr(self, "fail_reset", False):
            raise RuntimeError("cannot be reset")
        return self.observe(), {}

    def observe(self):
        return np.float32([self.count])

    def step(self, action):
        self.count += 1
        fault = self.FAULTS[action - 1] if action else None
        if fault == "raise":
            raise ValueError("two\nlines")
        if fault == "exit":
            raise SystemExit(3)
        if fault == "say too much":
            raise ValueError("\udc80" + "⛵" * 170_000)  # the first is no character
        if fault == "say nothing":
            raise Speechless
        if fault in self.SEEN:
            return np.float32([self.SEEN[fault]]), 0.0, fault.endswith("end"), False, {}
        if fault == "nan":
            return self.observe(), float("nan"), False, False, {}
        if fault == "shape":
            return np.zeros(2, np.float32), 0.0, False, False, {}
        if fault == "dtype":
            return "text", 0.0, False, False, {}
        if fault == "end, then fail to reset":
            self.fail_reset = True
            return self.observe(), 1.0, True, False, {}
        if fault == "fail to be made again":
            Faulty.broken = True
            raise ValueError("broke")
        return self.observe(), 1.0, False, False, {}


class Failing(CartPoleEnv):
    """CartPole that fails at HOWS[how], from that step or reset of the environment on; made anew, it counts again. Of a process's
    environments, one in `one_in` does. A process's first reset never fails: what cannot be reset at all is not played.
    """

    HOWS = ("raise", "shape", "nan reward", "reset", "see nan once")

    made = 0
    resets = 0

    def __init__(self, how, after=0, one_in=1):
        super().__init__()
        self.how, self.left = self.HOWS[how], after
        Failing.made += 1
        if Failing.made % one_in:
            self.left = 10**9

    def _fails(self):
        self.left -= 1
        return self.left < 0

    def reset(self, *, seed=None, options=None):
        Failing.resets += 1
        if self.how == "reset" and self._fails() and Failing.resets > 1:
            raise RuntimeError("it cannot be reset \x1b[31m")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.how == "reset" or not self._fails():
            return observation, reward, *rest
        if self.how == "raise":
            raise ValueError("it does not step \x1b[31m")
        if self.how == "shape":
            return observation[:2], reward, *rest
        if self.how == "nan reward":
            return observation, float("nan"), *rest
        if self.left == -1:
            observation = observation * np.float32(np.nan)
        return observation, reward, *rest


class Spaces(gymnasium.Env):
    """Every kind of space. An observation is the last action, where it has a place."""

    observation_space = spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (2, 3), np.uint8),
            "goal": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(5, start=-2))),
            "bits": spaces.MultiBinary(3),
            "counts": spaces.MultiDiscrete([3, 4]),
            "long": spaces.Box(-9, 9, (), np.int32),
        }
    )
    action_space = spaces.Tuple(
        (spaces.Box(-0.1, 0.1, (2,), np.float64), spaces.Discrete(5, start=-2), spaces.MultiDiscrete([3, 4], start=[1, 0]))
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe((np.zeros(2), 0, np.array([1, 0]))), {}

    def observe(self, action):
        goal, value, counts = action
        return {
            "pixels": np.arange(6, dtype=np.uint8).reshape(2, 3) + 250,
            "goal": (goal, value),
            "bits": np.array([1, 0, 1], np.int8),
            "counts": counts - [1, 0],
            "long": np.int32(-7),
        }

    def step(self, action):
        assert self.action_space.contains(action), action
        action[0][:] *= 1  # it is the environment's own
        return self.observe(action), 0.0, False, False, {}


class Unusual(gymnasium.Env):
    """A space that no array holds, or actions that cannot be counted: UNUSUAL[which], or the action space that is."""

    UNUSUAL = {
        "observation": {"observation": spaces.Dict({"a": spaces.Discrete(2), "words": spaces.Text(8)})},
        "sequence": {"observation": spaces.Tuple((spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))))},
        "graph": {"observation": spaces.Graph(spaces.Discrete(2), None)},
        "one of": {"action": spaces.Dict({"a": spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3)))})},
        "text": {"action": spaces.Text(8)},
        "unbounded": {"action": spaces.Tuple((spaces.Discrete(2), spaces.Box(-np.inf, 3, (2,), np.int64)))},
        "wide": {"action": spaces.Box(np.array([0, -1]), np.array([3, 2**31 - 1]), dtype=np.int64)},
        "no elements": {"observation": spaces.Box(0, 1, (2, 0))},
        "no int64": {"observation": spaces.Discrete(5, start=np.uint64(2**63 - 3), dtype=np.uint64)},
        "paths": {"observation": spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})})},
        "mask size": {"observation": spaces.Dict({"x": spaces.Discrete(2), "action_mask": spaces.MultiBinary(3)})},
        "mask bounds": {"observation": spaces.Dict({"action_mask": spaces.Box(0, 2, (2,), np.int8)})},
        "mask keys": {
            "observation": spaces.Dict({"action_mask": spaces.Dict({"a": spaces.MultiBinary(2), "c": spaces.MultiBinary(3)})}),
            "action": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)}),
        },
    }

    def __init__(self, which="observation"):
        which = self.UNUSUAL[which]
        self.observation_space = which.get("observation", spaces.Discrete(2))
        self.action_space = which.get("action", spaces.Discrete(2))


class Dies(gymnasium.Env):
    """Ends its whole process at the third step."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.count == 3:
            os._exit(9)
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Pixels(gymnasium.Env):
    """A picture of `shape` for ten steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, shape=(36, 36)):
        self.observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        return self.observation_space.sample(), float(action), self.count == 10, False, {}


def space_leaves(space, value=None, keys=()):
    """(keys, space, value) of each array of `space`, in its own order."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, child in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
            yield from space_leaves(child, None if value is None else value[key], (*keys, key))
    else:
        yield keys, space, value


def values_of(space):
    """The first value of each element, and how many there are; (0, None) if they are not counted."""
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start), np.array(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.nvec
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int64), np.full(space.shape, 2)
    if space.dtype.kind == "f":
        return 0, None
    return space.low.astype(np.int64), space.high.astype(np.int64) - space.low.astype(np.int64) + 1


def random_space(rng, is_action, depth=2):
    """Any of the spaces that are served."""
    kind = rng.choice(["box", "box", "discrete", "multi", "binary"] + ["dict", "dict", "tuple", "tuple"] * (depth > 0))
    if kind in ("dict", "tuple"):
        children = [random_space(rng, is_action, depth - 1) for _ in range(rng.integers(1, 5))]
        if kind == "tuple":
            return spaces.Tuple(children)
        return spaces.Dict({f"{rng.choice(list('abc'))}{i}": child for i, child in enumerate(children)})
    shape = [(), (3,), (1,), (2, 3), (2, 2, 3)][rng.integers(5)]
    if kind == "discrete":
        return spaces.Discrete(int(rng.integers(1, 6)), start=int(rng.integers(-3, 4)), dtype=rng.choice([np.int64, np.int8]))
    if kind == "binary":
        return spaces.MultiBinary(shape or 4)
    if kind == "multi":
        shape = shape or (2,)
        return spaces.MultiDiscrete(rng.integers(1, 5, shape), start=rng.integers(-3, 4, shape) * rng.integers(2))
    return _random_box(rng, shape, np.dtype(rng.choice(_BOX_DTYPES)), is_action)


_BOX_DTYPES = "float16 float32 float64 uint8 int8 uint16 int32 int64 uint64 bool".split()


def _random_box(rng, shape, dtype, is_action):
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, dtype)
    if dtype.kind == "f":
        low, high = rng.normal(-1, 0.3, shape), rng.normal(1, 0.3, shape)
        low, high = [(low, high), (-np.inf, high), (low, np.inf), (-np.inf, np.inf), (-0.1, 0.1)][rng.integers(5)]
        low, high = (np.broadcast_to(bound, shape).astype(dtype) for bound in (low, high))
        return spaces.Box(low, high, shape, dtype)
    if is_action:  # some up to a dtype's end
        width = rng.integers(0, 9, shape)
        low = rng.integers(-9, 9, shape) if dtype.kind == "i" else 255 - width
        return spaces.Box(np.array(low).astype(dtype), np.array(low + width).astype(dtype), shape, dtype)
    info = np.iinfo(dtype)
    return spaces.Box(max(info.min, -(2**62)), min(info.max, 2**62), shape, dtype)


class Sampled(gymnasium.Env):
    """Random spaces: it sees samples, and its reward is a digest of the action, which its space has to contain and its mask,
    if there is one in `source`, to allow. `masks` are the newest, by the action's keys.
    """

    def __init__(self, seed, source=None):
        rng = np.random.default_rng(seed)
        self.source = source
        self.observation_space = random_space(rng, False)
        self.action_space = random_space(rng, True)
        while source and not self._counted():
            self.action_space = random_space(rng, True)
        self.whole = isinstance(self.action_space, (spaces.Dict, spaces.Tuple)) <= rng.integers(2)
        if source == "observation":
            sizes = {"/".join(map(str, keys)): int(num_values.sum()) for keys, num_values in self._counted()}
            mask = {path: spaces.MultiBinary(size) for path, size in sizes.items()}
            mask = spaces.Box(0, 1, (sum(sizes.values()),), np.int8) if self.whole else spaces.Dict(mask)
            self.observation_space = spaces.Dict({"seen": self.observation_space, "action_mask": mask})

    def _counted(self):
        counted = [(keys, values_of(space)[1]) for keys, space, _ in space_leaves(self.action_space)]
        return [(keys, num_values) for keys, num_values in counted if num_values is not None]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._say(False)

    def _say(self, ended):
        """A sample, and an info."""
        observation, info = self.observation_space.sample(), {}
        self.masks = {}
        if self.source:
            for keys, num_values in self._counted():
                each = [self.np_random.integers(0, 2, n) for n in num_values.ravel()]
                for bits in each:
                    bits[self.np_random.integers(len(bits))] = 1
                self.masks[keys] = np.concatenate(each).astype(np.int8)
            mask = self._mask()
            # An episode's end may allow nothing, or say nothing: that is all.
            if ended and self.whole and self.np_random.random() < 0.5:
                self.masks = {keys: np.ones_like(bits) for keys, bits in self.masks.items()}
                mask = np.zeros_like(mask) if self.source == "observation" or self.np_random.random() < 0.5 else None
            if self.source == "observation":
                observation["action_mask"] = mask
            elif mask is not None:
                info["action_mask"] = mask
        return observation, info

    def _mask(self):
        if self.whole:
            return np.concatenate(list(self.masks.values()))
        if self.source == "observation":
            return {"/".join(map(str, keys)): bits for keys, bits in self.masks.items()}

        def tree(space, keys):
            if isinstance(space, spaces.Dict):
                return {key: tree(child, (*keys, key)) for key, child in space.items()}
            if isinstance(space, spaces.Tuple):
                return tuple(tree(child, (*keys, i)) for i, child in enumerate(space))
            if isinstance(space, spaces.MultiDiscrete) and space.shape:  # Gymnasium's own form: one for each element
                return tuple(np.split(self.masks[keys], np.cumsum(space.nvec.ravel())[:-1]))
            return self.masks.get(keys)

        return tree(self.action_space, ())

    def step(self, action):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of what is no array
            assert self.action_space.contains(action), (self.action_space, action)
        digest = 0
        for keys, space, value in space_leaves(self.action_space, action):
            digest = zlib.crc32(repr(np.asarray(value).tolist()).encode(), digest)
            if keys in self.masks:
                first, num_values = values_of(space)
                begins = np.cumsum(num_values.ravel()) - num_values.ravel()
                chosen = begins + (np.asarray(value, np.int64) - first).ravel()
                assert self.masks[keys][chosen].all(), (keys, value, self.masks[keys])
        end = self.np_random.integers(12)
        observation, info = self._say(end < 2)
        return observation, float(digest & 0xFFFF), end == 0, end == 1, info


class Masked(gymnasium.Env):
    """Two choices, masked in `source`; the first chooses what is wrong with the mask: FAULTS[i] at `1 + i`."""

    FAULTS = {
        "short": np.ones(11),
        "two": np.array([1] * 10 + [2, 1]),
        "not a number": np.array([np.nan] * 12),
        "text": "all",
        "nothing": np.array([1] * 9 + [0] * 3),
        "missing": None,
        "a value": 1,
        "end, then missing": np.ones(12),
    }  # fmt: skip
    action_space = spaces.MultiDiscrete([9, 3])

    def __init__(self, source="info", size=12, continuous=False):
        self.source, self.size = source, size
        self.observation_space = spaces.Discrete(5)
        if continuous:
            self.action_space = spaces.Box(-1, 1)
        if source == "observation":
            self.observation_space = spaces.Dict({"x": spaces.Discrete(5), "action_mask": spaces.Box(0, 1, (4, 3))})

    def _say(self, mask):
        if self.source == "info":
            return 2, {} if mask is None else {"action_mask": mask}
        return {"x": 2} | ({} if mask is None else {"action_mask": mask}), {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        forgets, self.forgets = getattr(self, "forgets", False), False
        return self._say(None if forgets else np.ones(self.size))

    def step(self, action):
        if not np.shape(action) == (2,) or not action[0]:
            observation, info = self._say(np.ones(self.size))
            return observation, 1.0, False, False, info
        fault, mask = list(self.FAULTS.items())[action[0] - 1]
        self.forgets = fault.startswith("end")
        # The second choice: the episode goes on, or ends.
        observation, info = self._say(mask)
        return observation, 1.0, bool(action[1] == 1 or self.forgets), bool(action[1] == 2), info


class Stubborn(gymnasium.Env):
    """Sees how often it was reset, and the first of a process fails at its first."""

    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(2)
    made = 0

    def __init__(self):
        self.resets = 0
        self.fails = Stubborn.made == 0
        Stubborn.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fails:
            self.fails = False
            raise RuntimeError("not yet")
        self.resets += 1
        return np.float32([self.resets]), {"action_mask": [True, False]}

    def step(self, action):
        return np.float32([self.resets]), 0.0, False, False, {"action_mask": [True, False]}


class Says(gymnasium.Env):
    """Sees what `WRONG[action - 1]` is; 0: what fits."""

    observation_space = spaces.Dict(
        {
            "bool": spaces.Box(0, 1, (), np.bool_),
            "count": spaces.Discrete(3, start=-1),
            "each": spaces.MultiDiscrete([2, 3]),
            "half": spaces.Box(-1, 1, (2,), np.float16),
            "pixels": spaces.Box(0, 255, (2, 2), np.uint8),
            "two": spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))),
            "wide": spaces.Box(0, 2**60, (), np.uint64),
        }
    )
    GOOD = {
        "bool": True, "count": -1, "each": [1, 2], "half": [0.5, 1], "pixels": np.full((2, 2), 255), "two": (0, 1),
        "wide": np.uint64(7),
    }  # fmt: skip
    WRONG = (
        ({"count": 2}, 'the observation "count" is 2, want -1 to 1'),
        ({"count": 0.5}, 'the observation at "count" is float64[], want int64[]'),
        ({"each": [1, 3]}, 'the observation "each", element 1, is 3, want 0 to 2'),
        ({"each": [1]}, 'the observation at "each" is int64[1], want int64[2]'),
        ({"half": [0, np.inf]}, 'the observation "half", element 1, is inf, want a finite number up to 1e+18'),
        ({"half": [1e300, 0]}, 'the observation "half", element 0, is inf, want a finite number'),
        ({"pixels": np.full((2, 2), 256)}, 'the observation "pixels", element 0, is 256, want 0 to 255'),
        ({"two": (0,)}, 'the observation at "two/1" is missing, want Discrete(2)'),
        ({"two": None}, 'the observation at "two/0" is missing, want Discrete(2)'),
        ({"wide": np.uint64(2**63)}, 'the observation "wide" is 9223372036854775808, want -9223372036854775808 to'),
        ({"wide": "7"}, 'the observation at "wide" is <U1[], want uint64[]'),
        ({"bool": None}, 'the observation at "bool" is object[], want bool[]'),
    )  # fmt: skip
    action_space = spaces.Discrete(1 + len(WRONG))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.GOOD, {}

    def step(self, action):
        wrong = self.WRONG[action - 1][0] if action else {}
        return self.GOOD | wrong, 0.0, False, False, {}


class Awaits(CartPoleEnv):
    """Talks to its robot by asyncio, in a loop of its own that it keeps and in new ones."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode=render_mode)
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(asyncio.sleep(0))

    def reset(self, *, seed=None, options=None):
        asyncio.run(asyncio.sleep(0))
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self._loop.run_until_complete(asyncio.sleep(0))
        return super().step(action)

    def close(self):
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
        super().close()


for env in (NativeCartPole, Faulty, Failing, Spaces, Unusual, Dies, Pixels, Sampled, Masked, Stubborn, Says, Awaits):
    limit = 500 if issubclass(env, CartPoleEnv) else None
    gymnasium.register(f"{env.__name__}-v0", entry_point=env, max_episode_steps=limit, disable_env_checker=True)
