"""Gymnasium's spaces as leaves of env.proto: arrays with a dtype and a shape.

A leaf is [R, ...] in a batch; a row of it is what the environment gives or takes.
"""

import numpy as np
from gymnasium import spaces

from flotilla.v1 import env_pb2
from flotilla_gym.refused import Refused

# As in services/env/numbers.h: its square is still a float32.
MAX_MAGNITUDE = 1e18
DTYPES = {env_pb2.UINT8: np.dtype("u1"), env_pb2.INT64: np.dtype("<i8"), env_pb2.FLOAT32: np.dtype("<f4")}


class Leaf:
    """One array of an observation or action space. `keys` lead to it from the top."""

    def __init__(self, space, keys, proto):
        self.keys = keys
        self.proto = proto
        self.dtype = DTYPES[proto.dtype]
        self.shape = tuple(proto.shape)
        self.row_bytes = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        self._space = space
        # Discrete values travel from 0 on; the space's own begin here.
        self._start = getattr(space, "start", 0)
        self._shifted = bool(np.any(self._start))
        if self.dtype.kind == "f":
            self._low, self._high = space.low.astype("<f4"), space.high.astype("<f4")
        elif proto.num_values_each:
            self._limit = np.reshape(proto.num_values_each, self.shape)
        else:
            self._limit = np.full(self.shape, proto.num_values)

    def write(self, array, row, observation):
        """Puts the environment's `observation` into array[row]."""
        for key in self.keys:
            observation = observation[key]
        value = np.asarray(observation)
        kind = value.dtype.kind
        if value.shape != self.shape or kind not in "fiub" or (kind == "f" and self.dtype.kind != "f"):
            at = f' at "{self.proto.path}"' if self.proto.path else ""
            raise ValueError(
                f"the observation{at} is {value.dtype}{list(value.shape)}, want {self._space.dtype}{list(self.shape)}"
            )
        array[row] = value - self._start if self._shifted else value
        if self.dtype.kind == "f" and not np.abs(array[row]).max() <= MAX_MAGNITUDE:
            bad = next(i for i, x in enumerate(array[row].ravel()) if not abs(x) <= MAX_MAGNITUDE)
            at = f' "{self.proto.path}"' if self.proto.path else ""
            element = f", element {bad}," if array[row].size > 1 else ""
            raise ValueError(
                f"the observation{at}{element} is {array[row].ravel()[bad]}, want a finite number up to {MAX_MAGNITUDE:g}"
            )

    def values(self, data, rows, field):
        """The environment's actions in `field`, [R, ...] bytes: one for each row. Refuses what the space does not hold."""
        if len(data) != rows * self.row_bytes:
            want = f"{rows * self.row_bytes} ({rows} rows of {self.row_bytes})"
            raise Refused("INVALID_ARGUMENT", f"{field} has {len(data)} bytes, want {want}")
        array = np.frombuffer(data, self.dtype).reshape(rows, *self.shape)
        if self.dtype.kind == "f":
            return self._continuous(array, field)
        _check(array, (array >= 0) & (array < self._limit), field, lambda at: f"0 to {self._limit[at] - 1}")
        if self.shape == ():
            return (array + self._start).tolist()
        return (array + self._start).astype(self._space.dtype)

    def _continuous(self, array, field):
        good = np.isfinite(array) & (array >= self._low) & (array <= self._high)
        _check(array, good, field, lambda at: f"a finite number from {self._low[at]:g} to {self._high[at]:g}")
        if self._space.dtype == self.dtype:
            return array.copy()  # the environment's own, to write to
        # A float32 bound may lie a little outside of the space's own.
        return np.clip(array.astype(self._space.dtype), self._space.low, self._space.high)


def _check(array, good, field, want):
    if good.all():
        return
    row, *at = map(int, np.argwhere(~good)[0])
    element = f", element {np.ravel_multi_index(at, array.shape[1:])}" if array[row].size > 1 else ""
    raise Refused("INVALID_ARGUMENT", f"{field} is {array[(row, *at)]:g} in row {row}{element}, want {want(tuple(at))}")


def leaves(space, what):
    """Flattens `space`, sorted by path. Refuses, naming it, a space that the protocol has no array for."""
    found = sorted(_walk(space, (), what), key=lambda leaf: leaf.proto.path.encode())
    paths = [leaf.proto.path for leaf in found]
    if not found or len(set(paths)) < len(paths):
        raise Refused("INVALID_ARGUMENT", f"the {what} {space} has leaves {paths}, want at least one, and distinct paths")
    return found


def actions(env_id, space, found, columns, rows):
    """One action for each row from a batch's columns, [R, ...] bytes a leaf."""
    if len(columns) != len(found):
        raise Refused("INVALID_ARGUMENT", f"actions.action has {len(columns)} leaves, want {len(found)}")
    by_leaf = {}
    for i, (leaf, data) in enumerate(zip(found, columns)):
        field = f'env "{env_id}": actions.action[{i}] (leaf "{leaf.proto.path}")'
        by_leaf[leaf.keys] = leaf.values(data, rows, field)
    if found[0].keys == ():
        return by_leaf[()]
    return [_assemble(space, (), by_leaf, row) for row in range(rows)]


def _assemble(space, keys, by_leaf, row):
    if isinstance(space, spaces.Dict):
        return {key: _assemble(child, (*keys, key), by_leaf, row) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_assemble(child, (*keys, i), by_leaf, row) for i, child in enumerate(space))
    return by_leaf[keys][row]


def _walk(space, keys, what):
    if isinstance(space, spaces.Dict):
        for key, child in space.items():
            yield from _walk(child, (*keys, key), what)
    elif isinstance(space, spaces.Tuple):
        for i, child in enumerate(space):
            yield from _walk(child, (*keys, i), what)
    else:
        proto = _describe(space, what)
        if proto is None:
            at = f' at "{"/".join(map(str, keys))}"' if keys else ""
            raise Refused(
                "INVALID_ARGUMENT",
                f"the {what} has {space}{at}, which no array of the protocol holds; want Box, Discrete, "
                "MultiDiscrete, MultiBinary, and Dict or Tuple of them (a wrapper can convert it)",
            )
        proto.path = "/".join(map(str, keys))
        yield Leaf(space, keys, proto)


def _describe(space, what):
    """None: there is no such leaf."""
    if isinstance(space, spaces.Discrete):
        return env_pb2.Leaf(dtype=env_pb2.INT64, num_values=int(space.n))
    if isinstance(space, spaces.MultiBinary):
        return env_pb2.Leaf(dtype=env_pb2.INT64, shape=space.shape, num_values=2)
    if isinstance(space, spaces.MultiDiscrete):
        leaf = env_pb2.Leaf(dtype=env_pb2.INT64, shape=space.shape)
        ranges = space.nvec.ravel().tolist()
        if len(set(ranges)) == 1:
            leaf.num_values = ranges[0]
        else:
            leaf.num_values_each.extend(ranges)
        return leaf
    if not isinstance(space, spaces.Box) or 0 in space.shape:
        return None
    if space.dtype.kind == "f":
        leaf = env_pb2.Leaf(dtype=env_pb2.FLOAT32, shape=space.shape)
        for bounds, field in ((space.low, leaf.low), (space.high, leaf.high)):
            bounds = bounds.astype(np.float32).ravel()
            if np.isfinite(bounds).any():
                field.extend(bounds[:1] if (bounds == bounds[0]).all() else bounds)
        return leaf
    if what != "observation space" or space.dtype.kind not in "iub":
        return None
    return env_pb2.Leaf(dtype=env_pb2.UINT8 if space.dtype == np.uint8 else env_pb2.INT64, shape=space.shape)
