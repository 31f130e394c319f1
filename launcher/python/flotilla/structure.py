"""How observations and actions nest, in the environment's own Gymnasium structure, and as the arrays of its leaves."""

import math
from collections.abc import Mapping

import numpy as np

from flotilla.errors import Error
from flotilla.run import messages


def dtype_of(leaf):
    env_pb2 = messages()[1]
    return np.dtype({env_pb2.UINT8: "u1", env_pb2.INT64: "<i8"}.get(leaf.dtype, "<f4"))


def title(leaf, what="observation"):
    return f'{what} "{leaf.path}"' if leaf.path else f"the {what}"


def space_of(env, what):
    """The "observation" or "action" space of a Gymnasium environment, or of one row where it is a vector of them; None
    where there is none (PettingZoo's agents have theirs)."""
    one = f"single_{what}_space"
    # dir(): old wrappers warn of what is asked of them.
    space = getattr(env, one if one in dir(env) else f"{what}_space", None)
    return None if callable(space) else space


def parts(space, keys=()):
    """(path, what is there) of all that a Gymnasium space nests, in its own order; nothing without one."""
    nested = getattr(space, "spaces", None)
    if nested is not None:
        for key, child in nested.items() if isinstance(nested, Mapping) else enumerate(nested):
            yield from parts(child, (*keys, str(key)))
    elif space is not None:
        yield "/".join(keys), space


def start_of(space):
    """The first of the values that it counts; None where it counts none."""
    if hasattr(space, "start"):  # Discrete, MultiDiscrete
        return np.asarray(space.start, np.int64)
    if hasattr(space, "low") and np.dtype(space.dtype).kind in "iu":
        return np.asarray(space.low, np.int64)
    return None


def starts(space):
    """{path: the first of its values} of what a Gymnasium space counts; {} without one."""
    found = {path: start_of(part) for path, part in parts(space)}
    return {path: start for path, start in found.items() if start is not None}


def find(observation, path, leaf):
    """What an observation has at a leaf's path: by the whole of it, or step by step."""
    if not path:
        return observation
    if isinstance(observation, Mapping) and path in observation:
        return observation[path]
    words, at = path.split("/"), observation
    while words:
        for n in range(1, len(words) + 1):  # a key may have a slash
            key = "/".join(words[:n])
            if isinstance(at, Mapping):
                match = next((k for k in at if str(k) == key), None)
                if match is None:
                    continue
                at = at[match]
            elif isinstance(at, (tuple, list)) and key.isdigit() and int(key) < len(at):
                at = at[int(key)]
            else:
                continue
            words = words[n:]
            break
        else:
            raise Error(f"{title(leaf)} is missing, want {shown(leaf)}")
    return at


def shown(leaf):
    return f"{dtype_of(leaf)} {list(leaf.shape)}"


def rows_of(observation, spec, first, optional=()):
    """([array [N, ...] of each leaf], whether there was one observation alone). `first` is {path: of counted values, the
    first}; leaves in `optional` may be missing, and are None then."""
    arrays, alone = [], None
    for leaf in spec.observation:
        if leaf.path in optional and not _has(observation, leaf.path):
            arrays.append(None)
            continue
        value, shape = np.asarray(find(observation, leaf.path, leaf)), tuple(leaf.shape)
        one = value.ndim == len(shape)
        fits = value.shape[value.ndim - len(shape) :] == shape and value.ndim - len(shape) in (0, 1)
        if not fits and value.ndim in (1, 2) and value.shape[-1] == math.prod(shape):  # a mask, laid end to end
            one, fits = value.ndim == 1, True
            value = value.reshape(*value.shape[:-1], *shape)
        dtype = dtype_of(leaf)
        if not fits or value.dtype.kind not in "fiub" or (value.dtype.kind == "f" and dtype.kind != "f"):
            raise Error(f"{title(leaf)} is {value.dtype} {list(value.shape)}, want {shown(leaf)}, or the same of several rows")
        if alone is None:
            alone, rows = one, 1 if one else len(value)
        if one != alone or (not one and len(value) != rows):
            raise Error(f"{title(leaf)} has {'one row' if one else f'{len(value)} rows'}, other leaves {'one' if alone else rows}")
        if leaf.path in first and (leaf.num_values or leaf.num_values_each):
            value = value.astype(np.int64) - first[leaf.path]
        _check_values(leaf, value)
        arrays.append(np.ascontiguousarray(value.reshape(-1, *shape), dtype))
    return arrays, alone


def _check_values(leaf, value):
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise Error(f"{title(leaf)} holds a number that is not finite")
    most = np.reshape(leaf.num_values_each, list(leaf.shape)) if leaf.num_values_each else leaf.num_values
    if value.dtype.kind != "f" and np.any(most) and ((value < 0) | (value >= most)).any():
        bad = value[(value < 0) | (value >= most)].flat[0]
        hint = "; its own values begin elsewhere: give flotilla.load its environment (env=)" if bad == np.max(most) else ""
        raise Error(f"{title(leaf)} is {bad}, want 0 to {np.max(most) - 1}{hint}")


def _has(observation, path):
    try:
        find(observation, path, messages()[1].Leaf(path=path))
    except Error:
        return False
    return True


def end_to_end(mask, size):
    """A mask of `size` values; also of one that has an array for each element of the action."""
    if isinstance(mask, (tuple, list)) and len(mask) > 1:
        arrays = [np.asarray(array) for array in mask]
        if all(array.ndim for array in arrays) and sum(array.shape[-1] for array in arrays) == size:
            return np.concatenate(arrays, -1)
    return mask


def check_paths(space, spec):
    """That an action space has the leaves that the policy's actions have."""
    own, wanted = sorted(path for path, _ in parts(space)), sorted(leaf.path for leaf in spec.action)
    if space is not None and own != wanted:
        raise Error(f"env.action_space has leaves {own}, want {wanted}; give as env= what the run was trained on, {spec.env_id}")


def actions(leaves, discrete, continuous, space, alone):
    """One action, or those of N rows, as the Gymnasium `space` has them. Without one as nested as the paths say: Dicts,
    and Tuples where all keys are 0, 1, ..."""
    by_path, own = {}, dict(parts(space))
    for leaf in leaves:
        columns = (discrete if leaf.discrete else continuous)[:, leaf.first : leaf.first + leaf.elements]
        value = columns.reshape(-1, *leaf.shape)
        if own:
            value = _within(own[leaf.path], value)
            value = value[0, ...] if alone else value  # of a scalar, too, an array
            number = hasattr(own[leaf.path], "n")  # Discrete
        else:
            value, number = value[0] if alone else value, leaf.discrete
        by_path[leaf.path] = int(value) if number and alone and leaf.shape == () else value
    if own:
        return _assembled(space, by_path)
    if list(by_path) == [""]:
        return by_path[""]
    return _nested({tuple(path.split("/")): value for path, value in by_path.items()})


def _within(space, value):
    """`value`, [N, ...], in the dtype of `space` and from its own first value on, or between its bounds."""
    start, dtype = start_of(space), np.dtype(space.dtype)
    if value.dtype.kind != "f":
        return (value if start is None else value + start).astype(dtype)
    # A float32 bound may lie a little outside of the space's own, and a float16 ends sooner.
    with np.errstate(over="ignore"):
        value = value.astype(dtype)
    most = np.finfo(dtype).max
    return np.clip(np.clip(value, -most, most), space.low, space.high)


def _assembled(space, by_path, keys=()):
    nested = getattr(space, "spaces", None)
    if nested is None:
        return by_path["/".join(keys)]
    if isinstance(nested, Mapping):
        return {key: _assembled(child, by_path, (*keys, str(key))) for key, child in nested.items()}
    return tuple(_assembled(child, by_path, (*keys, str(i))) for i, child in enumerate(nested))


def _nested(by_keys):
    if () in by_keys:
        return by_keys[()]
    children = {}
    for (key, *rest), value in by_keys.items():
        children.setdefault(key, {})[tuple(rest)] = value
    children = {key: _nested(child) for key, child in children.items()}
    if set(children) == {str(i) for i in range(len(children))}:
        return tuple(children[str(i)] for i in range(len(children)))
    return children
