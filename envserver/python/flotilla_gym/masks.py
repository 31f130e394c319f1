"""Action masks: which values of its discrete actions an environment allows now.

It says so in observation["action_mask"], or in info["action_mask"] with every
reset and step: 0 and 1 for the values of all discrete actions end to end, in the
action space's order, or a Dict or Tuple of such arrays like the action space. On
the wire each such action has a leaf of its own.
"""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from flotilla.v1 import env_pb2
from flotilla_gym.refused import Refused
from flotilla_gym.spaces import DTYPES

KEY = "action_mask"


class MaskLeaf:
    """The observation leaf that masks one leaf of the action."""

    def __init__(self, source, path, keys, action, begin, whole):
        """The values from `begin` on of the `whole` many that `source`, "observation" or "info", has at `keys`."""
        self.proto = env_pb2.Leaf(path=path, dtype=env_pb2.UINT8, shape=[_size(action)])
        self.dtype = DTYPES[self.proto.dtype]
        self.shape = tuple(self.proto.shape)
        self.row_bytes = self.shape[0]
        self.source = source
        self._keys = (KEY, *keys)
        self._name = source + "".join(f'["{key}"]' if isinstance(key, str) else f"[{key}]" for key in self._keys)
        self._slice = slice(begin, begin + self.shape[0])
        self._whole = whole
        self._action = f' of action "{action.proto.path}"' if action.proto.path else ""
        self._num_values = action.num_values.ravel()
        self._starts = np.cumsum(self._num_values) - self._num_values

    def write(self, array, row, said):
        """Puts what the environment said into array[row]. Where the episode goes on, something has to be allowed."""
        value = _follow(getattr(said, self.source), self._keys)
        if value is None:
            if not said.ended:
                raise ValueError(f"{self._name} is missing, want {self._whole} values of 0 or 1")
            array[row] = 1
            return
        flat = _flat(value)
        if flat is None:
            raise ValueError(f"{self._name} is {type(value).__name__}, want {self._whole} values of 0 or 1")
        if flat.size != self._whole:
            raise ValueError(f"{self._name} has {flat.size} values, want {self._whole}, one for each value of the action")
        ones = flat == 1
        if not (ones | (flat == 0)).all():
            bad = int(np.argmin(ones | (flat == 0)))
            raise ValueError(f"{self._name}, value {bad}, is {flat[bad]}, want 0 or 1")
        array[row] = ones[self._slice]
        allowed = np.logical_or.reduceat(array[row], self._starts)
        if allowed.all():
            return
        if not said.ended:
            bad = int(np.argmin(allowed))
            element = f" of element {bad}" if allowed.size > 1 else ""
            values = f"all {self._num_values[bad]} values{self._action}{element}"
            raise ValueError(f"{self._name} forbids {values}, want one or more allowed")
        array[row] |= np.repeat(~allowed, self._num_values)


def in_observation(space, action):
    """The masks that an observation of `space` has for the leaves of `action`. Refuses some that fit none of them."""
    if not isinstance(space, spaces.Dict) or KEY not in space.keys() or not _discrete(action):
        return []
    tree = _zeros(space[KEY])
    masks = None if tree is None else _masks("observation", tree, action)
    if masks is None:
        raise Refused(
            "INVALID_ARGUMENT",
            f'the observation space has {space[KEY]} at "{KEY}", want a Box or MultiBinary of {_wanted(action)}; '
            "rename it if it is no mask",
        )
    return masks


def in_info(info, action):
    """The masks that such an `info` has, and what is wrong if it has some that fit no action."""
    if not isinstance(info, Mapping) or info.get(KEY) is None:
        return [], ""
    masks = _masks("info", info[KEY], action)
    if masks is None:
        return [], f'info["{KEY}"] has {_count(info[KEY])} values, want {_wanted(action)}; no action is masked'
    return masks, ""


def can_be_masked(action):
    return bool(_discrete(action))


def _discrete(action):
    """In the action space's own order."""
    return sorted((leaf for leaf in action if leaf.num_values is not None), key=lambda leaf: leaf.place)


def _size(action):
    return int(action.num_values.sum())


def _wanted(action):
    sizes = ", ".join(f'{_size(leaf)} for "{leaf.proto.path}"' for leaf in _discrete(action))
    total = sum(map(_size, _discrete(action)))
    each = f" ({sizes}), end to end or by the action's keys" if len(action) > 1 else ""
    return f"{total} values of 0 or 1, one for each value of the action{each}"


def _masks(source, tree, action):
    """Of a mask like `tree`; None if it fits none of the action's leaves."""
    found = []

    def add(leaf, keys, begin, whole):
        path = KEY if len(action) == 1 else f"{KEY}/{leaf.proto.path}"
        leaf.proto.mask_path = path
        found.append(MaskLeaf(source, path, keys, leaf, begin, whole))

    total = sum(map(_size, _discrete(action)))
    flat = _flat(tree)
    if flat is not None and flat.size == total:
        begin = 0
        for leaf in _discrete(action):
            add(leaf, (), begin, total)
            begin += _size(leaf)
        return found
    parts = []
    for leaf in _discrete(action):
        for keys in (leaf.keys, (leaf.proto.path,)):
            part = _follow(tree, keys)
            if keys and part is not None:
                parts.append((leaf, keys, _flat(part)))
                break
    if any(flat is None or flat.size != _size(leaf) for leaf, _, flat in parts):
        return None
    # Nothing is left over: a key may be misspelt.
    if not parts or sum(flat.size for *_, flat in parts) != _count(tree):
        return None
    for leaf, keys, _ in parts:
        add(leaf, keys, 0, _size(leaf))
    return found


def _zeros(space):
    """A mask that `space` holds; None if it does not hold masks alone."""
    if isinstance(space, spaces.Dict):
        parts = {key: _zeros(child) for key, child in space.items()}
        return None if any(part is None for part in parts.values()) else parts
    if isinstance(space, spaces.Tuple):
        parts = tuple(_zeros(child) for child in space)
        return None if any(part is None for part in parts) else parts
    bits = isinstance(space, spaces.Box) and (space.low >= 0).all() and (space.high <= 1).all()
    return np.zeros(space.shape, np.uint8) if bits or isinstance(space, spaces.MultiBinary) else None


def _follow(tree, keys):
    """What `tree` has at `keys`; None if nothing."""
    for key in keys:
        if isinstance(tree, Mapping):
            tree = tree.get(key)
        elif isinstance(tree, (tuple, list)) and isinstance(key, int) and key < len(tree):
            tree = tree[key]
        else:
            return None
    return tree


def _flat(value):
    """The numbers of an array, or of a list of some for each element, end to end; None: it is something else."""
    if isinstance(value, (tuple, list)) and any(isinstance(part, (tuple, list, np.ndarray)) for part in value):
        parts = [_flat(part) for part in value]
        return None if any(part is None for part in parts) else np.concatenate(parts)
    array = np.asarray(value)
    return array.ravel() if array.dtype.kind in "fiub" else None


def _count(tree):
    if tree is None:
        return 0
    if isinstance(tree, Mapping):
        return sum(map(_count, tree.values()))
    if isinstance(tree, (tuple, list)):
        return sum(map(_count, tree))
    return np.size(tree)
