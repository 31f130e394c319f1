"""One metric of one run, in bounded memory."""

from array import array


class Series:
    """Points in the order in which they were written. Where they are more than
    `most`, neighbours are averaged two by two: curves get coarser, not longer.
    Not thread-safe."""

    def __init__(self, most):
        self.most = most
        self.stride = 1  # lines that a point stands for
        self.remade = 0  # how often all points changed
        self.steps, self.seconds, self.values = array("d"), array("d"), array("d")
        self._waiting = []

    def __len__(self):
        return len(self.steps)

    def add(self, step, seconds, value):
        self._waiting.append((step, seconds, value))
        if len(self._waiting) < self.stride:
            return
        last_step, last_seconds, _ = self._waiting[-1]
        mean = sum(v for _, _, v in self._waiting) / len(self._waiting)
        self._waiting.clear()
        self._append(last_step, last_seconds, mean)
        if len(self) > self.most:
            self._halve()

    def _append(self, step, seconds, value):
        self.steps.append(step)
        self.seconds.append(seconds)
        self.values.append(value)

    def _halve(self):
        even = len(self) // 2 * 2
        points = list(zip(self.steps, self.seconds, self.values))
        self.steps, self.seconds, self.values = array("d"), array("d"), array("d")
        for i in range(0, even, 2):
            (_, _, a), (step, seconds, b) = points[i], points[i + 1]
            self._append(step, seconds, (a + b) / 2)
        # The odd one stands for half of the next point.
        self._waiting = [p for p in points[even:] for _ in range(self.stride)]
        self.stride *= 2
        self.remade += 1

    def since(self, start):
        """Points from number `start` on, for JSON."""
        return [
            [int(s) for s in self.steps[start:]],
            [round(s, 2) for s in self.seconds[start:]],
            [float(f"{v:.6g}") for v in self.values[start:]],
        ]
