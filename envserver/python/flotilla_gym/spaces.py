"""Gymnasium's spaces as leaves of env.proto: arrays with a dtype and a shape.

A leaf is [R, ...] in a batch; a row of it is what the environment gives or takes.
What is counted (Discrete, MultiDiscrete, MultiBinary, and integers that are
actions) travels as INT64 from 0 on, with its number of values. Integers that are
only seen are plain numbers.
"""

import typing

import numpy as np
from gymnasium import spaces

from flotilla.v1 import env_pb2
from flotilla_gym.refused import Refused, unusable

# As in services/env/numbers.h: its square is still a float32.
MAX_MAGNITUDE = 1e18
_MAX_SQUARE = MAX_MAGNITUDE**2
DTYPES = {env_pb2.UINT8: np.dtype("u1"), env_pb2.INT64: np.dtype("<i8"), env_pb2.FLOAT32: np.dtype("<f4")}
_INT64 = np.iinfo(np.int64)
# Of an integer Box that is an action.
_MAX_VALUES = 1 << 31


class Said(typing.NamedTuple):
    """What an environment said at a reset or a step."""

    observation: object
    info: object
    ended: bool  # the episode


class Leaf:
    """One array of an observation or action space. `keys` lead to it from the top; `place` is its rank in the space's own order."""

    def __init__(self, space, keys, proto, start, place):
        self.keys = keys
        self.place = place
        self.proto = proto
        self.dtype = DTYPES[proto.dtype]
        self.shape = tuple(proto.shape)
        self.row_bytes = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        self._space = space
        # What is seen is one array of float32.
        self._plain = keys == () and self.dtype.kind == "f"
        # Discrete values travel from 0 on; the space's own begin here.
        self._start = np.asarray(start, np.int64)
        # Of each element; None: plain numbers.
        self.num_values = None
        if proto.num_values_each:
            self.num_values = np.reshape(proto.num_values_each, self.shape)
        elif proto.num_values:
            self.num_values = np.full(self.shape, proto.num_values)
        # Of a Discrete: how many values, and the space's own first.
        self._one_of = int(self.num_values) if isinstance(space, spaces.Discrete) else 0
        self._first = int(self._start) if self._one_of else 0
        if self.dtype.kind == "f":
            with np.errstate(over="ignore"):  # beyond float32 there are no bounds
                self._low, self._high = space.low.astype("<f4"), space.high.astype("<f4")

    def write(self, array, row, said):
        """Puts what the environment said into array[row]."""
        value = said.observation
        if self._plain and type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape:
            array[row] = value
            # One multiplication says of most that all of them are numbers: of small ones a tenth of the time.
            if np.vdot(value, value) <= _MAX_SQUARE:
                return
        value = np.asarray(self._find(said.observation))
        kind = value.dtype.kind
        if value.shape != self.shape or kind not in "fiub" or (kind == "f" and self.dtype.kind != "f"):
            want = f"{self._space.dtype}{list(self.shape)}"
            raise ValueError(f"the observation{self._at()} is {value.dtype}{list(value.shape)}, want {want}")
        if self.dtype.kind != "f":
            array[row] = self._integers(value)
            return
        if value.dtype.itemsize > self.dtype.itemsize:
            with np.errstate(over="ignore"):  # an infinity is refused below
                array[row] = value
        else:
            array[row] = value
        if not np.abs(array[row]).max() <= MAX_MAGNITUDE:
            good = np.abs(array[row]) <= MAX_MAGNITUDE
            self._refuse(array[row], good, lambda _: f"a finite number up to {MAX_MAGNITUDE:g}")

    def _find(self, observation):
        try:
            for key in self.keys:
                observation = observation[key]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"the observation{self._at()} is missing, want {self._space}") from None
        return observation

    def _integers(self, value):
        """`value` as it travels."""
        if value.dtype == self.dtype and self.num_values is None:
            return value
        if self.num_values is not None:
            if self.shape == ():  # much faster than an array's way below
                travels = int(value) - int(self._start)
                if 0 <= travels < self.num_values:
                    return travels
            # What is no int64 becomes negative.
            travels = value.astype(np.int64) - self._start
            good = (travels >= 0) & (travels < self.num_values)
            if not good.all():
                last = self._start + self.num_values - 1
                first = np.broadcast_to(self._start, self.shape)
                self._refuse(value, good, lambda at: f"{first[at]} to {last[at]}")
            return travels
        limits = np.iinfo(self.dtype)
        good = (value >= limits.min) & (value <= limits.max)
        if not good.all():
            self._refuse(value, good, lambda _: f"{limits.min} to {limits.max}")
        return value

    def _refuse(self, value, good, want):
        at = tuple(map(int, np.argwhere(~good)[0]))
        path = f' "{self.proto.path}"' if self.proto.path else ""
        element = f", element {np.ravel_multi_index(at, self.shape)}," if value.size > 1 else ""
        raise unusable(f"the observation{path}{element} is {value[at]}, want {want(at)}")

    def _at(self):
        return f' at "{self.proto.path}"' if self.proto.path else ""

    def values(self, data, rows, field, idle):
        """The environment's actions in `field`, [R, ...] bytes: one for each row. Refuses what the space does not hold,
        but of rows that are `idle` [R]; None: none is.
        """
        if len(data) != rows * self.row_bytes:
            want = f"{rows * self.row_bytes} ({rows} rows of {self.row_bytes})"
            raise Refused("INVALID_ARGUMENT", f"{field} has {len(data)} bytes, want {want}")
        array = np.frombuffer(data, self.dtype).reshape(rows, *self.shape)
        if self._one_of and idle is None:  # much faster than an array's way below
            chosen = array.tolist()
            if 0 <= min(chosen) and max(chosen) < self._one_of:
                return chosen if not self._first else [value + self._first for value in chosen]
        if self.dtype.kind == "f":
            own = self._continuous(array, field, idle)
        else:
            good = (array >= 0) & (array < self.num_values)
            _check(array, good, field, idle, lambda at: f"0 to {self.num_values[at] - 1}")
            own = array + self._start
            if isinstance(self._space, spaces.Discrete):
                return own.tolist()
            own = own.astype(self._space.dtype)
        return [own[row, ...] for row in range(rows)]  # of a scalar, too, an array

    def _continuous(self, array, field, idle):
        good = np.isfinite(array) & (array >= self._low) & (array <= self._high)
        _check(array, good, field, idle, lambda at: f"a finite number from {self._low[at]:g} to {self._high[at]:g}")
        if self._space.dtype == self.dtype:
            return array.copy()  # the environment's own, to write to
        # A float32 bound may lie a little outside of the space's own, and a float16 ends sooner.
        most = np.finfo(self._space.dtype).max
        with np.errstate(over="ignore"):
            own = np.clip(array.astype(self._space.dtype), -most, most)
        return np.clip(own, self._space.low, self._space.high)


def _check(array, good, field, idle, want):
    if idle is not None:
        good = good | idle.reshape(-1, *[1] * (good.ndim - 1))
    if good.all():
        return
    row, *at = map(int, np.argwhere(~good)[0])
    element = f", element {np.ravel_multi_index(at, array.shape[1:])}" if array[row].size > 1 else ""
    raise Refused("INVALID_ARGUMENT", f"{field} is {array[(row, *at)]:g} in row {row}{element}, want {want(tuple(at))}")


def leaves(space, what):
    """Flattens `space`, sorted by path. Refuses, naming it, a space that the protocol has no array for."""
    found = []
    _walk(space, (), what, found)
    return in_order(found, f"{what} {space}")


def in_order(found, name):
    """Sorts the leaves of `name` by path. Refuses paths that are not distinct."""
    found = sorted(found, key=lambda leaf: leaf.proto.path.encode())
    paths = [leaf.proto.path for leaf in found]
    if not found or len(set(paths)) < len(paths):
        raise Refused("INVALID_ARGUMENT", f"the {name} has leaves {paths}, want at least one, and distinct paths")
    return found


def actions(env_id, space, found, columns, rows, idle=None):
    """One action for each row from a batch's columns, [R, ...] bytes a leaf; of `idle` rows anything."""
    if len(columns) != len(found):
        raise Refused("INVALID_ARGUMENT", f"actions.action has {len(columns)} leaves, want {len(found)}")
    by_leaf = {}
    for i, (leaf, data) in enumerate(zip(found, columns)):
        field = f'env "{env_id}": actions.action[{i}] (leaf "{leaf.proto.path}")'
        by_leaf[leaf.keys] = leaf.values(data, rows, field, idle)
    if found[0].keys == ():
        return by_leaf[()]
    return [_assemble(space, (), by_leaf, row) for row in range(rows)]


def _assemble(space, keys, by_leaf, row):
    if isinstance(space, spaces.Dict):
        return {key: _assemble(child, (*keys, key), by_leaf, row) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_assemble(child, (*keys, i), by_leaf, row) for i, child in enumerate(space))
    return by_leaf[keys][row]


class _Unfit(Exception):
    """Why a space is no leaf, after "which"."""


def _walk(space, keys, what, found):
    """Appends the leaves of `space`, in its own order."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, child in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
            _walk(child, (*keys, key), what, found)
        return
    path = "/".join(map(str, keys))
    try:
        proto, start = _describe(space, what)
    except _Unfit as unfit:
        at = f' at "{path}"' if keys else ""
        raise Refused("INVALID_ARGUMENT", f"the {what} has {space}{at}, which {unfit}") from None
    proto.path = path
    found.append(Leaf(space, keys, proto, start, place=len(found)))


def _describe(space, what):
    """Its leaf, and the first of its values if they are counted. Raises _Unfit."""
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise _Unfit(
            "no array of the protocol holds; want Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of them "
            "(a wrapper can convert it)"
        )
    if 0 in space.shape:
        raise _Unfit("has no elements; want one or more in every dimension")
    if isinstance(space, spaces.Discrete):
        return _counted(space, space.start, space.n)
    if isinstance(space, spaces.MultiBinary):
        return _counted(space, 0, 2)
    if isinstance(space, spaces.MultiDiscrete):
        # gymnasium before 0.29 has no start.
        return _counted(space, getattr(space, "start", 0), space.nvec)
    if space.dtype.kind == "f":
        return _numbers(space), 0
    if what == "action space":
        return _counted_box(space)
    return env_pb2.Leaf(dtype=env_pb2.UINT8 if space.dtype == np.uint8 else env_pb2.INT64, shape=space.shape), 0


def _numbers(box):
    leaf = env_pb2.Leaf(dtype=env_pb2.FLOAT32, shape=box.shape)
    for bounds, field in ((box.low, leaf.low), (box.high, leaf.high)):
        with np.errstate(over="ignore"):
            bounds = bounds.astype(np.float32).ravel()
        if np.isfinite(bounds).any():
            field.extend(bounds[:1] if (bounds == bounds[0]).all() else bounds)
    return leaf


def _counted_box(box):
    """An action that is an integer: one of the values between its bounds."""
    if not box.is_bounded():
        raise _Unfit(
            "has integers without bounds, and so no number of values to choose from; want finite low and high "
            "(a Box of floats needs none)"
        )
    # Differences of Python's integers do not overflow.
    values = box.high.astype(object) - box.low.astype(object) + 1
    most = int(np.max(values))
    if most > _MAX_VALUES:
        raise _Unfit(
            f"has integers of {most} values, want at most {_MAX_VALUES} to choose from; narrow low and high, "
            "or use a Box of floats and round"
        )
    return _counted(box, box.low, values)


def _counted(space, start, num_values):
    """From `start` on; both are of one element or of each."""
    start, each = np.asarray(start, object), np.asarray(num_values, object)
    if np.min(start) < _INT64.min or np.max(start + each) - 1 > _INT64.max:
        raise _Unfit(f"has values that are no int64; want {_INT64.min} to {_INT64.max}")
    leaf = env_pb2.Leaf(dtype=env_pb2.INT64, shape=space.shape)
    ranges = [int(n) for n in each.ravel()]
    if len(set(ranges)) == 1:
        leaf.num_values = ranges[0]
    else:
        leaf.num_values_each.extend(ranges)
    return leaf, start.astype(np.int64)
