"""An environment whose step takes 1 ms, and how fast processes step it that do nothing else.

    python millisecond.py KIND PROCESSES SECONDS

KIND is busy, which computes for 1 ms of a core, or waits, which sleeps for as long, as for a simulator elsewhere. For a
learner it is gym:millisecond:Millisecond-v0 with kwargs.kind=KIND.
"""
import json
import multiprocessing
import sys
import time

import gymnasium
import numpy

STEP = 1e-3  # seconds
WORK = 94_000  # turns of a loop, which take about as long
EPISODE = 200


class Millisecond(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (8,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, kind):
        self.kind = kind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = EPISODE
        return self._observation(), {}

    def step(self, action):
        if self.kind == "busy":
            for _ in range(WORK):
                pass
        else:
            time.sleep(STEP)
        self.left -= 1
        return self._observation(), float(action == 0), False, self.left == 0, {}

    def _observation(self):
        return self.np_random.uniform(-1, 1, 8).astype(numpy.float32)


gymnasium.register("Millisecond-v0", Millisecond)


def steps_alone(arguments):
    kind, seconds = arguments
    env = gymnasium.make("Millisecond-v0", kind=kind)
    env.reset(seed=1)
    began, steps = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        steps += 1
        if any(env.step(0)[2:4]):
            env.reset()
    return steps / took


if __name__ == "__main__":
    kind, processes, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with multiprocessing.Pool(processes) as pool:
        rates = pool.map(steps_alone, [(kind, seconds)] * processes, chunksize=1)
    print("RESULT " + json.dumps({"steps_per_second": sum(rates)}))
