"""What the peers' runners share: the meter of one training run and the line that carries its result.

LIMIT_S: seconds of training after which a runner stops itself. SEED: of the run.
"""
import json
import os
import time
from collections import deque

LIMIT_S = float(os.environ.get("LIMIT_S", "45"))
SEED = int(os.environ.get("SEED", "1"))
TARGET = 475.0  # Gymnasium's bar for CartPole-v1: the mean return of 100 episodes


def emit(**result):
    os.write(1, ("RESULT " + json.dumps(result) + "\n").encode())


class Meter:
    """Steady steps per second, and the seconds until the last 100 training episodes average `target`."""

    def __init__(self, target=TARGET):
        self.first = self.last = None  # (steps, time)
        self.target = target
        self.returns = deque(maxlen=100)
        self.solved_at = None
        self.begin()

    def begin(self, start=None):
        """Training starts: imports and set-up are not counted."""
        self.start = time.perf_counter() if start is None else start

    def steps(self, n):
        """Always called at the same point of the loop, so that whole updates are counted."""
        self.last = (n, time.perf_counter())
        self.first = self.first or self.last

    def episode(self, episode_return):
        self.returns.append(float(episode_return))
        if len(self.returns) == 100:
            self.mean(sum(self.returns) / 100)

    def mean(self, value):
        """Of what trained last, where the peer says no more of its episodes."""
        if self.solved_at is None and value >= self.target:
            self.solved_at = self.elapsed()

    def elapsed(self):
        return time.perf_counter() - self.start

    def out_of_time(self):
        return self.elapsed() > LIMIT_S

    def report(self):
        if self.last is None:
            return
        (n0, t0), (n1, t1) = self.first, self.last
        if t1 <= t0:  # one reading only: count from the start
            n0, t0 = 0, self.start
        clock = time.time() - time.perf_counter()
        emit(steps_per_second=(n1 - n0) / (t1 - t0), seconds_to_target=self.solved_at, span=[t0 + clock, t1 + clock, n1 - n0])
