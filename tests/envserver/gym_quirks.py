"""Environments that do what they should not: gym:gym_quirks:ID."""

import sys

import gymnasium
import numpy as np
from gymnasium import spaces


class OldSeeds(gymnasium.Env):
    """Draws from numpy's older generator, which takes seeds of 32 bits; two steps an episode."""

    observation_space = spaces.Box(0, 1, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.random = np.random.RandomState(seed)
        self.steps = 0
        return self.random.random_sample(1), {}

    def step(self, action):
        self.steps += 1
        return self.random.random_sample(1), float(self.random.random_sample()), self.steps == 2, False, {}


class Exits(gymnasium.Env):
    def __init__(self):
        sys.exit("no display\nis here")


class Blind(gymnasium.Env):
    """Sees nothing at an episode's end: action 1 terminates it, 2 truncates it, 3 does both."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.float32([1]), {}

    def step(self, action):
        return None if action else np.float32([1]), 1.0, bool(action & 1), bool(action & 2), {}


for env in (OldSeeds, Exits, Blind):
    gymnasium.register(f"{env.__name__}-v0", entry_point=env, disable_env_checker=True)
