"""Environments that the tests register with Gymnasium: gym:gym_envs:ID."""

import os

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
    environments, one in `one_in` does.
    """

    HOWS = ("raise", "shape", "nan reward", "reset", "see nan once")

    made = 0

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
        if self.how == "reset" and self._fails():
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
    """Spaces that no array holds."""

    def __init__(self, which="observation"):
        self.observation_space = spaces.Discrete(2)
        self.action_space = spaces.Discrete(2)
        if which == "observation":
            self.observation_space = spaces.Dict({"a": spaces.Discrete(2), "words": spaces.Text(8)})
        else:
            self.action_space = spaces.Box(0, 3, (2,), np.int64)


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


for env in (NativeCartPole, Faulty, Failing, Spaces, Unusual, Dies, Pixels):
    limit = 500 if issubclass(env, CartPoleEnv) else None
    gymnasium.register(f"{env.__name__}-v0", entry_point=env, max_episode_steps=limit, disable_env_checker=True)
