"""Decisions of the program's own policy, and others' compared with them."""

import copy
import pathlib

import numpy as np
import torch

from flotilla.checkpoint import parse_safetensors
from flotilla.errors import Error
from flotilla.run import messages

# Of values, states and continuous actions: relative above 1 (of actions unit_of_actions), absolute below. Two libraries
# add up in another order.
TOLERANCE = 1e-5
LARGEST_TOLERANCE = 1e-3  # more than what rounding explains is another policy


class Decisions:
    """What learner/eval/decisions.h says is in the file: decisions of the program's own policy, each greedy."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        self.tensors = parse_safetensors(data, path)
        self.spec = messages()[1].EnvSpec.FromString(self.tensors.pop("spec").tobytes())

    def __len__(self):
        return len(self.tensors["row"])

    def steps(self):
        """Indices of decisions that can be made together: the first of each row, the second, ..."""
        rows = self.tensors["row"]
        of_row = [np.flatnonzero(rows == row) for row in np.unique(rows)]
        for t in range(max(map(len, of_row))):
            yield np.array([indices[t] for indices in of_row if len(indices) > t])

    def play(self, module):
        """What decisions were made from: (indices, leaves [N, ...] in the specification's order, state [N, S] or None).

        The state is what the program's own policy carried on: another one's own parts from it by a little more at every
        step, so that the length of an episode would decide whether two are alike."""
        state, stacks = {}, {}
        for indices in self.steps():
            rows, begins = self.tensors["row"][indices], self.tensors["begins"][indices] != 0
            before = None
            if module.state_size:
                zeros = np.zeros(module.state_size, np.float32)
                before = np.stack([zeros if new else state[row] for row, new in zip(rows, begins)])
            leaves = []
            for leaf in module.spec.observation:
                k, newest = module.frames[leaf.path], self.tensors[f"observation.{leaf.path}"][indices]
                if k > 1:
                    for row, new, frame in zip(rows, begins, newest):
                        seen = stacks.get((leaf.path, row), [])
                        stacks[leaf.path, row] = [frame] * k if new or not seen else [*seen[1:], frame]
                    newest = np.stack([stacks[leaf.path, row] for row in rows])
                leaves.append(newest)
            if module.state_size:
                state |= dict(zip(rows, self.tensors["state"][indices]))
            yield indices, leaves, before


def difference(one, other, unit=1.0):
    """The largest, in units, relative above one; infinite where one is not finite."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if one.size == 0:
        return 0.0
    apart = np.abs(one - other) / np.maximum(unit, np.abs(other))
    return float(np.nan_to_num(apart, nan=np.inf).max())


def unit_of_actions(module):
    """[A] of continuous actions: 1, or where a policy is squashed into its bounds half of their distance, if that is more.
    The last bits of its means move an action near 0 by as much as they move one near a bound."""
    low, high = (x.numpy().astype(np.float64) for x in (module.low, module.high))
    return np.maximum(1, (high - low) / 2) if module.algorithm == "sac" else np.ones_like(low)


def tolerance(module, decisions):
    """How far numbers may lie apart: TOLERANCE, or four times what values, states and actions move by when each weight
    becomes the float32 next to it, where that is more. No two libraries that round their sums otherwise have to agree on
    that; large features before a saturated gate make it large."""
    nudged, random = copy.deepcopy(module), np.random.default_rng(1)
    with torch.no_grad():
        for weight in nudged.parameters():
            to = torch.tensor(random.choice(np.float32([-np.inf, np.inf]), tuple(weight.shape)))
            weight.copy_(torch.nextafter(weight, to))
    moved = 0.0
    for _, leaves, state in decisions.play(module):
        observation = {leaf.path: torch.tensor(x) for leaf, x in zip(module.spec.observation, leaves)}
        with torch.no_grad():
            one, other = (each.decide(observation, None if state is None else torch.tensor(state)) for each in (module, nudged))
        rest = [3] + ([2] if module.algorithm == "ppo" else [])  # others' values are not compared
        apart = [difference(one[i], other[i]) for i in rest if one[i] is not None]
        moved = max(moved, difference(one[1], other[1], unit_of_actions(module)), *apart)
    return min(max(TOLERANCE, 4 * moved), LARGEST_TOLERANCE) if np.isfinite(moved) else TOLERANCE


class Check:
    """Compares decisions, and remembers the largest difference and what it was of."""

    def __init__(self, module, tolerance):
        self.tolerance = tolerance
        self.module, self.largest, self.of, self.decisions, self.ties = module, 0.0, "nothing", 0, 0

    def note(self, of, apart):
        if apart > self.largest:
            self.largest, self.of = apart, of

    def recorded(self, decisions, run):
        """`run(leaves, state)` returns {"discrete", "continuous", "value", "state"}."""
        module, tensors = self.module, decisions.tensors

        for indices, leaves, state in decisions.play(module):
            out = run(leaves, state)
            self.decisions += len(indices)
            if "discrete" in tensors:
                self._choices(tensors["discrete"][indices], out["discrete"], leaves, state)
            if "continuous" in tensors:
                low, high = module.low.numpy(), module.high.numpy()
                wanted = np.clip(tensors["continuous"][indices], low, high)
                self.note("an action", difference(out["continuous"], wanted, unit_of_actions(module)))
            if module.algorithm == "ppo":  # others record none
                self.note("a value", difference(out["value"], tensors["value"][indices]))
            if module.state_size:
                self.note("a state", difference(out["state"], tensors["state"][indices]))

    def _choices(self, wanted, got, leaves, state):
        """Equal, or as likely within the tolerance: two that are equal are anybody's choice."""
        if np.array_equal(wanted, got):
            return
        observation = {leaf.path: torch.tensor(x) for leaf, x in zip(self.module.spec.observation, leaves)}
        with torch.no_grad():
            policy = self.module(observation, None if state is None else torch.tensor(state)).policy.numpy()
        for row, i in np.argwhere(wanted != got):
            at = sum(self.module.spaces.num_values[:i])
            apart = difference(policy[row, at + got[row, i]], policy[row, at + wanted[row, i]])
            if apart > self.tolerance:
                self.note("a choice", np.inf)
            self.ties += 1

    def refuse(self, path, whose):
        if self.largest <= self.tolerance:
            return
        size = "another value" if self.largest == np.inf and self.of == "a choice" else f"a difference of {self.largest:.3g}"
        raise Error(
            f"{whose} does not decide as the program's own policy: {self.of} has {size} in {self.decisions} decisions, "
            f"want at most {self.tolerance:.2g}; {path} was not written"
        )
