"""What Python says of a configuration, as `flotilla train --set` takes it."""

import json
import math
import numbers
from collections.abc import Mapping

from flotilla.errors import Error
from flotilla.run import messages

# Their entries are JSON, or else text.
_JSON = ("env.options.kwargs.", "env.options.gym_kwargs.", "evaluation.kwargs.")


def assignments(fields):
    """["ppo.epochs=8", ...] of {"ppo.epochs": 8}, {"ppo": {"epochs": 8}} or any mixture. Raises Error."""
    found = []
    _walk(fields, "", found)
    return found


def _walk(fields, prefix, found):
    for name, value in fields.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise Error(f"an override is called {name!r}; want a field's path, as in overrides={{'ppo.epochs': 8}}")
        path = prefix + name
        if path.startswith(_JSON):
            found.append(f"{path}={_json(path, value)}")
        elif isinstance(value, Mapping):
            _walk(value, f"{path}.", found)
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
            # Sections of a repeated field, one by one.
            found += [f"{path}={text(path, item)}" for item in value]
        else:
            found.append(f"{path}={text(path, value)}")


def text(path, value):
    """`value`, of the field at `path`, in protobuf's text format."""
    value = _plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        value = float(value)
        # 1e6 steps are a whole number of them.
        return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)
    if isinstance(value, Mapping):
        return "{" + " ".join(f"{name}: {_inside(f'{path}.{name}', part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text(path, item) for item in value) + "]"
    raise Error(f"{path} is {value!r}; want a bool, a number, a string, or a list or dict of them")


def _inside(path, value):
    """As text(), of a field in a section that is written out, where strings are quoted, and an enumeration's values are
    not."""
    value = _plain(value)
    if isinstance(value, str):
        return value if value.isidentifier() and _is_enum(path, value) else json.dumps(value)
    return text(path, value)


def _is_enum(path, value):
    """Whether the field at `path` is an enumeration. Without the messages, which know, by the value's capitals."""
    try:
        section = messages()[0].RunConfig.DESCRIPTOR
    except Error:
        return value.isupper() and not path.endswith(".path")  # of a leaf, which may be "RGB"
    field = None
    for name in path.split("."):
        field = section.fields_by_name.get(name) if section else None
        section = field.message_type if field else None
    return field is not None and field.enum_type is not None


def _plain(value):
    """Of numpy's scalars and arrays, Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def _json(path, value):
    value = _plain(value)
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not finite")
        return json.dumps(dict(value) if isinstance(value, Mapping) else value)
    except (TypeError, ValueError) as error:
        raise Error(f"{path} is {value!r}, which is no JSON ({error}); want what JSON has") from None
