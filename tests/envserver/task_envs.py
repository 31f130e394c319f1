"""A task with every kind of space, which can be learned: gym:task_envs:Signals-v0."""

import gymnasium
import numpy as np
from gymnasium import spaces

COLORS = 3
SIDE = 36


class Signals(gymnasium.Env):
    """Name the image's color and the goal's side.

    The first choice is a color, of which one wrong one is forbidden at a time; the second is on which side of 0 the goal
    lies. Each right answer gives 1 / 2. A forbidden color is an error: the row fails.
    """

    observation_space = spaces.Dict(
        {
            "rgb": spaces.Box(0, 255, (SIDE, SIDE, COLORS), np.uint8),
            "goal": spaces.Box(-1, 1, (2,), np.float32),
            "hint": spaces.Discrete(5),
            "action_mask": spaces.MultiBinary(COLORS + 2),
        }
    )
    action_space = spaces.MultiDiscrete([COLORS, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        if not self._mask[action[0]]:
            raise ValueError(f"color {action[0]} is forbidden: the mask is {self._mask.tolist()}")
        right = (action[0] == self._color) / 2 + (action[1] == (self._goal[0] > 0)) / 2
        return self._observe(), float(right), False, False, {}

    def _observe(self):
        self._color = int(self.np_random.integers(COLORS))
        self._goal = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self._mask = np.ones(COLORS + 2, np.int8)
        self._mask[(self._color + int(self.np_random.integers(1, COLORS))) % COLORS] = 0
        image = self.np_random.integers(0, 64, (SIDE, SIDE, COLORS), dtype=np.uint8)
        image[..., self._color] += 128
        return {"rgb": image, "goal": self._goal, "hint": int(self.np_random.integers(5)), "action_mask": self._mask}


gymnasium.register("Signals-v0", entry_point=Signals, max_episode_steps=16)
