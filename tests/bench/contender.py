"""Who takes part in a comparison, and how they take turns."""
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import bounded
import probe


@dataclasses.dataclass
class Contender:
    name: str
    command: list[str]  # "{run}" stands for a folder of its own, "{seed}" for the round
    read: Callable[[str, str], dict]  # (output, run folder) -> metric -> value
    env: dict = dataclasses.field(default_factory=dict)
    cap_s: float = 60
    until: Callable[[str], bool] = lambda folder: False  # ends the run early
    missing: str = ""  # what is not installed
    threads: tuple = ()  # counts of Torch's threads, of which the fastest is found first
    flop_per_step: float = 0  # of its arithmetic, where it is known
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


def used(use, began, ended, steps):
    """Of processors and memory, for `steps` steps from `began` to `ended`."""
    cores = use.cpu_between(began, ended)
    found = {"cpu_seconds_per_million_steps": cores * (ended - began) / steps * 1e6} if cores and steps > 0 else {}
    return found | ({"resident_mb": use.bytes / 1e6} if use.bytes else {})


def say(text):
    print(text, file=sys.stderr, flush=True)


class Disturbed(Exception):
    """Others used the cores, and this was to be recorded."""


class Turns:
    """Runs what takes part, and sees to what others do to the machine meanwhile.

    What is to be recorded wants the machine for itself, and the same one: a turn in which others used more than
    QUIET cores, or around which the machine itself became slower or faster than it was (probe.moved), is taken
    again, its result thrown away whatever it was; after TRIES, Disturbed is raised.
    """

    QUIET = 0.1
    TRIES = 10
    PAUSE = 5  # seconds, between looks at a machine that is not as fast as it was

    def __init__(self, cores, quiet_s, recorded, machine_probe=""):
        self.cores, self.quiet_s, self.recorded, self.machine_probe = cores, quiet_s, recorded, machine_probe
        self.failures, self.again = [], []
        self.probed = []  # what the machine could do around each turn

    def __call__(self, contenders, rounds):
        """A B B A: one run of each, then again from the last to the first; so that what the machine does, and what it
        does slowly, meets all alike."""
        for who in contenders:
            if who.missing:
                say(f"  {who.name}: {who.missing}")
        taking_part = [who for who in contenders if not who.missing]
        for who in taking_part:
            self.tune(who)
        for seed in range(1, rounds + 1):
            for who in taking_part if seed % 2 else reversed(taking_part):
                self.take(who, seed)
        self.failures += [f"{who.name}: {who.failure}" for who in contenders if who.failure]

    def tune(self, who):
        """Leaves it the count of threads with which it is fastest, by one run each."""
        if len(who.threads) < 2:
            return
        speeds = {}
        for threads in who.threads:
            who.env["OMP_NUM_THREADS"] = str(threads)
            bounded.wait_until_quiet(self.quiet_s)
            speeds[threads] = self.once(who, 0)[0][1].get("steps_per_second") or 0
        best = max(speeds, key=speeds.get)
        who.env["OMP_NUM_THREADS"] = str(best)
        say(f"  {who.name}: fastest with {best} of {', '.join(f'{n} ({x:,.0f})' for n, x in speeds.items())} threads")

    def undisturbed(self, what, attempt):
        """The result of `attempt`, a function that gives it and the cores that others used meanwhile."""
        for _ in range(self.TRIES):
            bounded.wait_until_quiet(self.quiet_s)
            before = self.as_fast_as_it_was()
            result, used = attempt()
            after = probe.measure(self.machine_probe, self.cores)
            moved = probe.moved((before, after), self.probed)
            if not self.recorded or (used <= self.QUIET and not moved):
                self.probed += [before, after]
                return result
            why = f"others used {used:.2f} cores" if used > self.QUIET else f"the machine is not the same: {moved}"
            say(f"  {what}: {why}; once more")
            self.again.append(what)
        raise Disturbed(f"{what}: {why}, {self.TRIES} times in a row; a record allows {self.QUIET} cores, and "
                        f"{100 * probe.MOST:.0f} % of change. Nothing of this comparison was recorded: run it on a "
                        "machine that does nothing else, or without --save")

    def as_fast_as_it_was(self):
        """What the machine can do, once that is what it could; or after some looks."""
        for _ in range(self.TRIES):
            numbers = probe.measure(self.machine_probe, self.cores)
            if not self.recorded or not probe.moved((numbers,), self.probed):
                break
            time.sleep(self.PAUSE)
        return numbers

    def limit(self, name):
        """The median of what the machine could do of `name` around the turns so far; None where it was not asked."""
        values = [numbers[name] for numbers in self.probed if name in numbers]
        return statistics.median(values) if values else None

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
            result = who.read(done.output, fill["{run}"])
        if span := result.pop("span", None):
            result |= used(done.use, *span)
        return (done, result), done.other_cpu

    def program(self, command, timeout, env=None):
        """One run of a program that measures by itself, on all cores."""
        def attempt():
            with bounded.others() as other:
                done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
            return done, other.cores
        return self.undisturbed(os.path.basename(command[0]), attempt)
