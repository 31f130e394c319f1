"""The space of a sweep: values by the sweep's seed, the trial and the field alone, so
that a sweep that goes on draws what it would have drawn.

A parameter is as launcher/sweep_file.cc writes it: field, kind, and low and high (of
integers, step), or values. Values are text, as `flotilla train --set` takes it.
"""

import hashlib
import json
import math


def unit(*names):
    """A number of [0, 1) that follows from `names`."""
    digest = hashlib.sha256(json.dumps(names).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def integers(parameter):
    return range(parameter["low"], parameter["high"] + 1, parameter["step"])


def text_of(parameter, value):
    """Of a number, within the parameter's ends, in as many digits as people read."""
    low, high = parameter["low"], parameter["high"]
    if parameter["kind"] == "integer":
        allowed = integers(parameter)
        nearest = round((value - low) / parameter["step"])
        return str(allowed[min(max(nearest, 0), len(allowed) - 1)])
    return repr(min(max(float(f"{value:.6g}"), low), high))


def draw(parameter, share):
    """The value that `share` of [0, 1) falls on."""
    kind = parameter["kind"]
    if kind == "choice":
        return parameter["values"][int(share * len(parameter["values"]))]
    if kind == "integer":
        allowed = integers(parameter)
        return str(allowed[int(share * len(allowed))])
    low, high = parameter["low"], parameter["high"]
    if kind == "log_uniform":
        return text_of(parameter, math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
    return text_of(parameter, low + share * (high - low))


def sample(sweep, trial):
    """{field: value} of a trial of RANDOM."""
    return {p["field"]: draw(p, unit(sweep["seed"], trial, p["field"])) for p in sweep["parameters"]}


def grid_point(sweep, trial):
    """{field: value} of a trial of GRID; the last field changes first."""
    values = {}
    for parameter in reversed(sweep["parameters"]):
        trial, at = divmod(trial, len(parameter["values"]))
        values[parameter["field"]] = parameter["values"][at]
    return dict(reversed(values.items()))


def perturb(sweep, values, trial):
    """PBT's next values after those of a parent, of the new trial."""
    factor, resample = sweep["pbt"]["perturb"], sweep["pbt"]["resample"]
    perturbed = {}
    for parameter in sweep["parameters"]:
        field = parameter["field"]
        share = unit(sweep["seed"], trial, field)
        up = unit(sweep["seed"], trial, field, "up") < 0.5
        if unit(sweep["seed"], trial, field, "resample") < resample:
            perturbed[field] = draw(parameter, share)
        elif parameter["kind"] == "choice":
            at = parameter["values"].index(values[field]) + (1 if up else -1)
            perturbed[field] = parameter["values"][min(max(at, 0), len(parameter["values"]) - 1)]
        else:
            value = float(values[field])
            moved = value * factor if up == (value > 0) else value / factor
            if parameter["kind"] == "integer" and text_of(parameter, moved) == values[field]:
                moved = value + parameter["step"] * (1 if up else -1)
            perturbed[field] = text_of(parameter, moved)
    return perturbed
