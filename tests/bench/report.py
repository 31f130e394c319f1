"""The results as Markdown."""
import datetime
import os
import platform
import random
import re
import shlex
import statistics
import subprocess
import sys
import time

import contender
import ours
import peers
import probe


def cpu_model():
    with open("/proc/cpuinfo") as f:
        names = re.findall(r"^(?:model name|Model)\s*:\s*(.*)$", f.read(), re.M)
    return names[0] if names else platform.processor() or platform.machine()


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else "?"
    except (OSError, subprocess.TimeoutExpired):
        return "?"


def cleanrl_version():
    if not peers.CLEANRL_DIR:
        return "CLEANRL_DIR is not set"
    try:
        with open(os.path.join(peers.CLEANRL_DIR, "pyproject.toml")) as f:
            return "a checkout, " + re.search(r'^version = "(.*)"', f.read(), re.M)[1]
    except (OSError, TypeError):
        return "a checkout"


def load():
    """How busy and how fast the machine is, to compare records by."""
    began = time.process_time()
    sum(range(20_000_000))
    return (f"load average {' '.join(f'{x:.2f}' for x in os.getloadavg())}; "
            f"Python adds 20 million numbers in {time.process_time() - began:.2f} s")


def machine_after(turns):
    again = f"; turns taken again: {', '.join(turns.again)}" if turns.again else ""
    text = f"{machine(turns)}\n\nAfter it: {load()}{again}".strip()
    turns.again, turns.probed = [], []
    return text


def heading(options):
    lines = [
        f"# Benchmarks, {datetime.datetime.now():%Y-%m-%d %H:%M}",
        "",
        f"- machine: {cpu_model()}, {len(os.sched_getaffinity(0))} cores, of which each run got {options.cores}; "
        f"Linux {platform.release()}, Python {platform.python_version()}",
        f"- Flotilla: {first_line(os.path.join(ours.BIN, 'flotilla'), 'version')}, commit "
        + first_line("git", "-C", ours.REPOSITORY, "rev-parse", "--short", "HEAD"),
        f"- CleanRL: {cleanrl_version()}",
        *(f"- {line}" for line in peers.versions()),
        f"- {options.rounds} round{'s' * (options.rounds > 1)}; "
        + (f"a turn in which others used more than {contender.Turns.QUIET} cores, or around which the machine's "
           f"multiply-adds moved by more than {100 * probe.MOST:.0f} %, from before it to after it or from the median around "
           "those before, was taken again"
           if options.save else "whatever others did to the machine meanwhile: see the last column"),
        "- before: " + load(),
    ]
    if options.quick:
        lines.append("- **--quick: one short round; shows that it works, not how fast it is**")
    return "\n".join(lines)


def number(x):
    if x is None or x == float("inf"):
        return "-"
    return f"{x:,.0f}" if x >= 100 else f"{x:.2f}"


def ratio(a, b):
    return f"{a / b:.2f}" if a and b and a != float("inf") and b != float("inf") else "-"


def interval(ours, theirs, times=2000):
    """Of the ratio of two medians: (low, high) of 95 % of what comes of rounds drawn anew, both's of a round together
    (Efron's bootstrap); None of fewer than three rounds, or where one has no number."""
    rounds = list(zip(ours, theirs))
    if len(rounds) < 3 or len(ours) != len(theirs) or any(None in pair for pair in rounds):
        return None
    draw, found = random.Random(1), []
    for _ in range(times):
        a, b = zip(*draw.choices(rounds, k=len(rounds)))
        found.append(statistics.median(a) / statistics.median(b))
    found.sort()
    return found[int(0.025 * times)], found[int(0.975 * times) - 1]


def compared(reference, who, metric):
    """How many times the reference's median is who's, and how sure that is."""
    if reference is None or reference is who:
        return ""
    text = ratio(reference.median(metric), who.median(metric))
    found = interval(reference.metrics.get(metric, []), who.metrics.get(metric, []))
    return f"{text} ({found[0]:.2f} to {found[1]:.2f})" if found and text != "-" else text


def resources(contenders, turns):
    """What it takes: of processors, of memory, and of what the processors can do."""
    rows = ["| what it takes | CPU seconds a million steps | MB resident | Torch threads | of the probed multiply-adds |",
            "| --- | --: | --: | --: | --: |"]
    fma = turns.limit("fma_gflops")
    for who in contenders:
        seconds, megabytes, speed = (who.median(name) for name in (
            "cpu_seconds_per_million_steps", "resident_mb", "steps_per_second"))
        if speed is None:
            continue
        share = f"{100 * speed * who.flop_per_step / (fma * 1e9):.1f} %" if who.flop_per_step and fma else "-"
        rows.append(f"| {who.name} | {number(seconds)} | {number(megabytes)} | {who.env.get('OMP_NUM_THREADS', '-')} | {share} |")
    return "\n".join(rows)


def machine(turns):
    """What the machine could do around the turns."""
    parts = []
    for name, unit in (("fma_gflops", "GFLOP/s of float32 multiply-adds"), ("amx_gflops", "GFLOP/s by tiles"),
                       ("copy_gb_s", "GB/s copied"), ("ping_pong_ns", "ns from core to core and back")):
        values = [numbers[name] for numbers in turns.probed if name in numbers]
        if values:
            parts.append(f"{number(statistics.median(values))} {unit} ({number(min(values))} to {number(max(values))})")
    return "The machine around each turn: " + ", ".join(parts) + "." if parts else ""


def table(contenders, metric, title, reference=None):
    """`reference`: the run of ours that each median is compared with."""
    versus = f"{reference.name} / this (95 %)" if reference else ""
    rows = [f"| {title} | runs | median | min | max | {versus} | other CPU |",
            "| --- | --: | --: | --: | --: | --: | --: |"]
    for who in contenders:
        runs = who.metrics.get(metric, [])
        values = [v for v in runs if v is not None]
        if who.missing or (who.failure and not values):
            rows.append(f"| {who.name} | 0 | {who.missing or who.failure} | | | | |")
        elif not values:
            rows.append(f"| {who.name} | {len(runs)} | not reached | | | | |")
        else:
            rows.append(f"| {who.name} | {len(runs)} | {number(who.median(metric))} | {number(min(values))} | "
                        f"{number(max(values)) if len(values) == len(runs) else 'not reached'} | "
                        f"{compared(reference, who, metric)} | "
                        f"{max(who.other_cpu):.2f} |")
    return "\n".join(rows)


def shorten(text):
    for path, name in ((ours.BENCH_BIN, "$FLOTILLA_BENCH_BIN"), (ours.BIN, "$FLOTILLA_BIN"),
                       (ours.REPOSITORY + "/", ""), (peers.CLEANRL_DIR, "$CLEANRL_DIR"),
                       (peers.PEERS_DIR, "$PEERS_DIR")):
        if path:
            text = text.replace(path, name)
    return text


def commands(contenders):
    lines = []
    for who in contenders:
        env = " ".join(f"{k}={v}" for k, v in who.env.items() if k in ("OMP_NUM_THREADS", "LIMIT_S"))
        words = ["python3" if w == sys.executable else w.replace("{seed}", "SEED").replace("{run}", "RUN") for w in who.command]
        command = shlex.join(words).replace(" --standalone --progress none", "")
        lines.append(f"- {who.name}: `{(env + ' ' + shorten(command)).strip()}`")
    return "\n".join(lines)


def verdict(wanted, value, bound, at_least=True, unit=""):
    if value is None or bound is None or value == float("inf"):
        return f"- not measured: {wanted}"
    met = value >= bound if at_least else value <= bound
    sign = ("≥" if met else "<") if at_least else ("≤" if met else ">")
    return f"- **{'met' if met else 'NOT MET'}**: {wanted}: {number(value)}{unit} {sign} {number(bound)}{unit}"
