"""Runs the comparisons that run.sh names. Markdown on stdout, progress on stderr."""
import argparse
import datetime
import os
import re
import sys
import time

import contender
import groups
import ours
import report


def parse():
    parser = argparse.ArgumentParser(prog="run.sh", description="Our speed beside our peers'.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(groups.ALL)}; all by default")
    parser.add_argument("--quick", action="store_true", help="about 3 minutes: one short round, fewer peers")
    parser.add_argument("--save", action="store_true", help="write tests/bench/results/<date>-<cpu>[-<groups>].md as well")
    parser.add_argument("--rounds", type=int, help="turns that each contender takes")
    parser.add_argument("--quiet-seconds", type=float, default=60, help="wait this long for a quiet machine (60)")
    parser.add_argument("--memory-seconds", type=float, help="how long each memory run is watched (600)")
    parser.add_argument("--cores", type=int, default=2, help="cores that every run gets (2)")
    options = parser.parse_args()
    unknown = [g for g in options.groups if g not in groups.ALL]
    if unknown:
        parser.error(f"unknown group {unknown[0]}; there are {', '.join(groups.ALL)}")
    return options


def save(text, chosen):
    name = re.sub(r"[^a-z0-9]+", "-", report.cpu_model().lower()).strip("-")
    if chosen:
        name += "-" + "-".join(chosen)
    folder = os.path.join(ours.REPOSITORY, "tests", "bench", "results")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{datetime.date.today()}-{name}.md")
    with open(path, "w") as f:
        f.write(text + "\n")
    contender.say(f"written: {path}")


def main():
    options = parse()
    missing = ours.program("flotilla")[1]
    if missing:
        sys.exit(missing)
    chosen = options.groups or list(groups.ALL)
    parts = [report.heading(options)]
    print(parts[0], flush=True)

    failures = []

    def turns(contenders, rounds):
        contender.take_turns(contenders, rounds, options.cores, quiet_s=0 if options.quick else options.quiet_seconds)
        failures.extend(f"{who.name}: {who.failure}" for who in contenders if who.failure)

    began = time.monotonic()
    for name in chosen:
        contender.say(f"{name}:")
        parts.append(groups.ALL[name](options, turns))
        print("\n" + parts[-1], flush=True)
        if options.save:
            save("\n\n".join(parts), options.groups)
    contender.say(f"took {(time.monotonic() - began) / 60:.1f} minutes")
    sys.exit("\n".join(failures) or None)


main()
