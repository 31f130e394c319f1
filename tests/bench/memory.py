"""Resident memory of every process of a run, over time."""
import dataclasses
import os
import re
import shutil
import statistics
import tempfile
import time

import bounded
import report
from contender import say
from ours import metric_lines, train

MB = 1e6  # as in "under 40 MB"
GROWTH = 0.02  # of its size; what allocators and page faults do without leaking
GROWTH_MIN = 1e6
FEW_UPDATES = 10  # after these every buffer has been used


@dataclasses.dataclass
class Process:
    name: str
    samples: list  # (seconds since the run began, bytes)

    def around(self, begin, end):
        values = [rss for t, rss in self.samples if begin <= t <= end]
        return statistics.median(values) if values else None


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

    def __init__(self, seconds):
        self.seconds, self.began, self.processes = seconds, time.monotonic(), {}

    def __call__(self, launcher):
        now = time.monotonic() - self.began
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
    sampler = Sampler(seconds)
    try:
        run = os.path.join(folder, "run")
        command = [word.replace("{run}", run).replace("{seed}", "1") for word in who.command]
        done = bounded.run(command, who.env, seconds + 30, cores, until=sampler, poll_s=1)
        updates = len(metric_lines(run))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not done.capped:
        say(f"  {who.name} ended by itself (exit {done.returncode}):\n    " +
            "\n    ".join(done.output.splitlines()[-8:]))
    return sampler.processes.values(), updates, done.capped


def describe(who, processes, updates, seconds, lived, limits):
    warm, window = 0.2 * seconds, max(3, 0.05 * seconds)
    rows = [f"### {who.name}: {seconds:.0f} s, {updates} lines of metrics", "",
            "| process | start | after warm-up | end | largest | growth after warm-up |",
            "| --- | --: | --: | --: | --: | --: |"]
    verdicts = [] if lived else ["- **NOT MET**: the run went on for the whole time"]
    for p in sorted(processes, key=lambda p: p.name):
        first, last, largest = p.samples[0][1], p.samples[-1][1], max(rss for _, rss in p.samples)
        after, end = p.around(warm, warm + window), p.around(seconds - window, seconds + 60)
        if after is None or end is None:
            rows.append(f"| {p.name} (lived {p.samples[-1][0] - p.samples[0][0]:.0f} s) | {first / MB:.1f} | | "
                        f"{last / MB:.1f} | {largest / MB:.1f} | |")
            continue
        rows.append(f"| {p.name} | {first / MB:.1f} | {after / MB:.1f} | {end / MB:.1f} | {largest / MB:.1f} | "
                    f"{(end - after) / MB:+.2f} |")
        if updates < FEW_UPDATES:
            continue
        verdicts.append(report.verdict(f"{p.name} does not grow after warm-up (growth within 1 MB or 2 %)",
                                       (end - after) / MB, max(GROWTH_MIN, GROWTH * after) / MB, at_least=False,
                                       unit=" MB"))
    if updates < FEW_UPDATES:
        verdicts.append(f"- not measured: growth; {updates} updates are too few, try --memory-seconds")
    for part, limit in limits.items():
        found = [max(rss for _, rss in p.samples) for p in processes if part in p.name]
        verdicts.append(report.verdict(f"{part} under {limit} MB resident", max(found) / MB if found else None, limit,
                                       at_least=False, unit=" MB"))
    return "\n".join(rows) + "\n\n" + "\n".join(verdicts)


def section(seconds, cores):
    endless = dict(total_env_steps=10 ** 12, optimizer__learning_rate="2.5e-4")
    cases = [
        (train("CartPole, 2 learners, evaluations and checkpoints", "cartpole_fast", 2, seconds, **endless,
               evaluation__stop_return=1000, evaluation__every_updates=50, checkpoint__every_updates=500),
         {"flotilla-coordinator": 40, "flotilla-envserver": 40}),
        (train("Breakout, 1 learner, 16 games in one env server", "breakout_ppo", 1, seconds, total_env_steps=10 ** 12,
               env__num_envs=16),
         {"flotilla-envserver": 250}),
    ]
    parts = ["## Memory", "VmRSS in MB (10^6 bytes), once a second."]
    for who, limits in cases:
        if who.missing:
            say(f"  {who.name}: {who.missing}")
            parts.append(f"### {who.name}\n\n{who.missing}")
            continue
        say(f"  {who.name}: {seconds} s")
        processes, updates, lived = watch(who, seconds, cores)
        parts.append(describe(who, processes, updates, seconds, lived, limits))
    return "\n\n".join(parts + ["Commands:", report.commands([who for who, _ in cases])])
