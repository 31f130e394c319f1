"""Who takes part in a comparison, and how they take turns."""
import dataclasses
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable

import bounded


@dataclasses.dataclass
class Contender:
    name: str
    command: list[str]  # "{run}" stands for a folder of its own, "{seed}" for the round
    read: Callable[[str, str], dict]  # (output, run folder) -> metric -> value
    env: dict = dataclasses.field(default_factory=dict)
    cap_s: float = 60
    until: Callable[[str], bool] = lambda folder: False  # ends the run early
    missing: str = ""  # what is not installed
    metrics: dict = dataclasses.field(default_factory=dict)  # metric -> a value a round
    other_cpu: list = dataclasses.field(default_factory=list)
    failure: str = ""

    def median(self, metric):
        values = [v for v in self.metrics.get(metric, []) if v is not None]
        # A run that did not get there is the slowest of all.
        short = len(self.metrics.get(metric, [])) - len(values)
        if not values or short > len(values):
            return None
        return statistics.median(values + [float("inf")] * short)


def peer_line(output, folder):
    """The result of one of the runners in peers/."""
    found = re.findall(r"^RESULT (.*)$", output, re.M)
    return json.loads(found[-1]) if found else {}


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_once(who, seed, cores):
    with tempfile.TemporaryDirectory(prefix="bench.run.", ignore_cleanup_errors=True) as folder:
        fill = {"{run}": os.path.join(folder, "run"), "{seed}": str(seed)}
        command = [re.sub(r"\{run\}|\{seed\}", lambda m: fill[m[0]], word) for word in who.command]
        done = bounded.run(command, {**who.env, "SEED": str(seed)}, who.cap_s, cores,
                           until=lambda pid: who.until(fill["{run}"]))
        result = who.read(done.output, fill["{run}"])
    who.other_cpu.append(done.other_cpu)
    if not result:
        who.failure = f"no result (exit {done.returncode}{', out of time' if done.capped else ''})"
        say(f"  {who.name}: {who.failure}; its last lines:\n    " + "\n    ".join(done.output.splitlines()[-8:]))
    for metric, value in result.items():
        who.metrics.setdefault(metric, []).append(value)
    shown = ", ".join(f"{k} {v:,.1f}" if v is not None else f"{k} -" for k, v in result.items())
    say(f"  round {seed}: {who.name}: {shown} (others used {done.other_cpu:.2f} cores)")


def take_turns(contenders, rounds, cores, quiet_s):
    """A B A B: one run of each, then again; so that what the machine does meets all alike."""
    for who in contenders:
        if who.missing:
            say(f"  {who.name}: {who.missing}")
    for seed in range(1, rounds + 1):
        for who in contenders:
            if not who.missing:
                bounded.wait_until_quiet(quiet_s)
                run_once(who, seed, cores)
