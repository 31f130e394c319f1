"""Who takes part in a comparison, and how they take turns."""
import dataclasses
import json
import os
import re
import statistics
import subprocess
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


class Disturbed(Exception):
    """Others used the cores, and this was to be recorded."""


class Turns:
    """Runs what takes part, and sees to what others do to the machine meanwhile.

    What is to be recorded wants the machine for itself: a turn in which others used more than QUIET
    cores is taken again, its result thrown away whatever it was; after TRIES, Disturbed is raised.
    """

    QUIET = 0.1
    TRIES = 3

    def __init__(self, cores, quiet_s, recorded):
        self.cores, self.quiet_s, self.recorded = cores, quiet_s, recorded
        self.failures, self.again = [], []

    def __call__(self, contenders, rounds):
        """A B A B: one run of each, then again; so that what the machine does meets all alike."""
        for who in contenders:
            if who.missing:
                say(f"  {who.name}: {who.missing}")
        for seed in range(1, rounds + 1):
            for who in contenders:
                if not who.missing:
                    self.take(who, seed)
        self.failures += [f"{who.name}: {who.failure}" for who in contenders if who.failure]

    def undisturbed(self, what, attempt):
        """The result of `attempt`, a function that gives it and the cores that others used meanwhile."""
        for _ in range(self.TRIES):
            bounded.wait_until_quiet(self.quiet_s)
            result, used = attempt()
            if not self.recorded or used <= self.QUIET:
                return result
            say(f"  {what}: others used {used:.2f} cores; once more")
            self.again.append(what)
        raise Disturbed(f"{what}: others used {used:.2f} cores, {self.TRIES} times in a row; a record allows "
                        f"{self.QUIET}. Nothing of this comparison was recorded: run it on a machine that does "
                        "nothing else, or without --save")

    def take(self, who, seed):
        done, result = self.undisturbed(f"{who.name}, round {seed}", lambda: self.once(who, seed))
        who.other_cpu.append(done.other_cpu)
        if not result:
            who.failure = f"no result (exit {done.returncode}{', out of time' if done.capped else ''})"
            say(f"  {who.name}: {who.failure}; its last lines:\n    " + "\n    ".join(done.output.splitlines()[-8:]))
        for metric, value in result.items():
            who.metrics.setdefault(metric, []).append(value)
        shown = ", ".join(f"{k} {v:,.1f}" if v is not None else f"{k} -" for k, v in result.items())
        say(f"  round {seed}: {who.name}: {shown} (others used {done.other_cpu:.2f} cores)")

    def once(self, who, seed):
        with tempfile.TemporaryDirectory(prefix="bench.run.", ignore_cleanup_errors=True) as folder:
            fill = {"{run}": os.path.join(folder, "run"), "{seed}": str(seed)}
            command = [re.sub(r"\{run\}|\{seed\}", lambda m: fill[m[0]], word) for word in who.command]
            done = bounded.run(command, {**who.env, "SEED": str(seed)}, who.cap_s, self.cores,
                               until=lambda pid: who.until(fill["{run}"]))
            return (done, who.read(done.output, fill["{run}"])), done.other_cpu

    def program(self, command, timeout, env=None):
        """One run of a program that measures by itself, on all cores."""
        def attempt():
            with bounded.others() as other:
                done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
            return done, other.cores
        return self.undisturbed(os.path.basename(command[0]), attempt)
