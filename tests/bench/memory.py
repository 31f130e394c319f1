"""Resident memory of every process of a run, over time."""
import collections
import dataclasses
import os
import re
import shutil
import tempfile
import time

import bounded
import report
from contender import say
from ours import metric_lines, train

MB = 1e6  # as in "under 40 MB"
GROWTH = 0.02  # of its size; what allocators and page faults do without leaking
GROWTH_MIN = 1e6
FEW_UPDATES = 10
WARM_UPDATES = 3  # after these every buffer has been used


@dataclasses.dataclass
class Process:
    name: str
    samples: list  # (seconds since the run began, bytes)

    def between(self, begin, end):
        """The smallest and the largest of a time, or None."""
        values = [rss for t, rss in self.samples if begin <= t <= end]
        return (min(values), max(values)) if values else None


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"^VmRSS:\s+(\d+) kB", f.read(), re.M)[1]) * 1024


def role(pid):
    with open(f"/proc/{pid}/cmdline") as f:
        words = f.read().split("\0")
    name = os.path.basename(words[0])
    where = re.search(r"--requested_rank=(\d+)|--listen=unix:\S*/(\w+)", " ".join(words))
    return f"{name} {(where[1] and 'rank ' + where[1]) or where[2]}" if where else name


def descendants(pid):
    yield pid
    for child in bounded.children_of(pid):
        yield from descendants(child)


class Sampler:
    """Called while the run goes on; ends it after `seconds`."""

    def __init__(self, seconds, run):
        self.seconds, self.began, self.processes = seconds, time.monotonic(), {}
        self.run, self.warm = run, None

    def __call__(self, launcher):
        now = time.monotonic() - self.began
        if self.warm is None and now > 0.2 * self.seconds and len(metric_lines(self.run)) >= WARM_UPDATES:
            self.warm = now
        for pid in descendants(launcher):
            try:
                rss = resident(pid)
                if pid not in self.processes:
                    self.processes[pid] = Process(role(pid), [])
                self.processes[pid].samples.append((now, rss))
            except (OSError, TypeError):  # gone, or not yet itself
                pass
        return now > self.seconds


def watch(who, seconds, cores):
    folder = tempfile.mkdtemp(prefix="bench.memory.")
    run = os.path.join(folder, "run")
    sampler = Sampler(seconds, run)
    try:
        command = [word.replace("{run}", run).replace("{seed}", "1") for word in who.command]
        done = bounded.run(command, who.env, seconds + 30, cores, until=sampler, poll_s=1)
        updates = len(metric_lines(run))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not done.capped:
        say(f"  {who.name} ended by itself (exit {done.returncode}):\n    " +
            "\n    ".join(done.output.splitlines()[-8:]))
    return sampler.processes.values(), updates, sampler.warm, done.capped


def describe(who, processes, updates, warm, seconds, lived, limits):
    # Collecting and updating differ by far more than a leak: what is compared is the
    # smallest and the largest of two times that hold several updates each.
    warm = warm or 0.2 * seconds
    third = (seconds - warm) / 3
    rows = [f"### {who.name}: {seconds:.0f} s, {updates} lines of metrics, warm after {warm:.0f} s", "",
            "| process | start | first third after warm-up | last third | growth |",
            "| --- | --: | --: | --: | --: |"]
    verdicts = [] if lived else ["- **NOT MET**: the run went on for the whole time"]
    brief = collections.defaultdict(list)  # those that came and went
    for p in sorted(processes, key=lambda p: p.name):
        first = p.samples[0][1]
        before, after = p.between(warm, warm + third), p.between(seconds - third, seconds + 60)
        if before is None or after is None:
            brief[re.sub(r"\d+", "N", p.name)].append(max(rss for _, rss in p.samples))
            continue
        growth = [end - begin for begin, end in zip(before, after)]
        rows.append(f"| {p.name} | {first / MB:.1f} | {before[0] / MB:.1f} to {before[1] / MB:.1f} | "
                    f"{after[0] / MB:.1f} to {after[1] / MB:.1f} | "
                    f"{growth[0] / MB:+.2f}, {growth[1] / MB:+.2f} |")
        if updates < FEW_UPDATES:
            continue
        verdicts.append(report.verdict(f"{p.name} does not grow after warm-up (growth within 1 MB or 2 %)",
                                       max(growth) / MB, max(GROWTH_MIN, GROWTH * before[1]) / MB, at_least=False,
                                       unit=" MB"))
    for name, largest in brief.items():
        rows.append(f"| {name}, {len(largest)} of them, each for a part of the time | up to {max(largest) / MB:.1f} "
                    "| | | |")
    if updates < FEW_UPDATES:
        verdicts.append(f"- not measured: growth; {updates} updates are too few, try --memory-seconds")
    for part, limit in limits.items():
        found = [max(rss for _, rss in p.samples) for p in processes if part in p.name]
        verdicts.append(report.verdict(f"{part} under {limit} MB resident", max(found) / MB if found else None, limit,
                                       at_least=False, unit=" MB"))
    return "\n".join(rows) + "\n\n" + "\n".join(verdicts)


def cartpole(seconds):
    return (train("CartPole, 2 learners, evaluations and checkpoints", "cartpole_fast", 2, seconds,
                  total_env_steps=10 ** 12, optimizer__learning_rate="2.5e-4", evaluation__stop_return=1000,
                  evaluation__every_updates=50, checkpoint__every_updates=500),
            {"flotilla-coordinator": 40, "flotilla-envserver": 40})


def breakout(seconds):
    return (train("Breakout, 1 learner, 16 games in one env server", "breakout_ppo", 1, seconds,
                  total_env_steps=10 ** 12, env__num_envs=16),
            {"flotilla-envserver": 250})


def section(case, seconds, cores):
    who, limits = case(seconds)
    parts = ["## Memory", "VmRSS in MB (10^6 bytes), once a second: smallest to largest."]
    if who.missing:
        say(f"  {who.name}: {who.missing}")
        return "\n\n".join(parts + [f"### {who.name}\n\n{who.missing}"])
    say(f"  {who.name}: {seconds} s")
    processes, updates, warm, lived = watch(who, seconds, cores)
    parts.append(describe(who, processes, updates, warm, seconds, lived, limits))
    return "\n\n".join(parts + ["Command:", report.commands([who])])
