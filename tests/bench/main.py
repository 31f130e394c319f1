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

RECORDED_ROUNDS = 7


def parse():
    parser = argparse.ArgumentParser(prog="run.sh", description="Our speed beside our peers'.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(groups.ALL)}; all by default")
    parser.add_argument("--quick", action="store_true", help="about 3 minutes: one short round, fewer peers")
    parser.add_argument("--save", action="store_true", help="write tests/bench/results/<date>-<cpu>[-<groups>].md as well, "
                        "if nobody else used the cores")
    parser.add_argument("--rounds", type=int, help="turns that each contender takes (7; with --quick 1)")
    parser.add_argument("--quiet-seconds", type=float, default=60, help="wait this long for a quiet machine (60)")
    parser.add_argument("--memory-seconds", type=float, help="how long each memory run is watched (600)")
    parser.add_argument("--cores", type=int, default=2, help="cores that every run gets (2)")
    options = parser.parse_args()
    unknown = [g for g in options.groups if g not in groups.ALL]
    if unknown:
        parser.error(f"unknown group {unknown[0]}; there are {', '.join(groups.ALL)}")
    options.rounds = options.rounds or (1 if options.quick else RECORDED_ROUNDS)
    if options.save and options.rounds < RECORDED_ROUNDS:
        parser.error(f"--save records medians of at least {RECORDED_ROUNDS} rounds, not of {options.rounds}: leave out "
                     "--quick, --rounds or --save")
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
    machine_probe, lacks = ours.program("flotilla_machine_probe", ours.BENCH_BIN)
    if lacks and options.save:
        sys.exit(f"a record says what the machine could do: {lacks}")
    chosen = options.groups or list(groups.ALL)
    parts = [report.heading(options)]
    print(parts[0], flush=True)

    turns = contender.Turns(options.cores, 0 if options.quick else options.quiet_seconds, recorded=options.save,
                            machine_probe="" if lacks else machine_probe)
    began = time.monotonic()
    for name in chosen:
        contender.say(f"{name}:")
        try:
            parts.append(groups.ALL[name](options, turns) + "\n\n" + report.machine_after(turns))
        except contender.Disturbed as disturbed:
            sys.exit(str(disturbed))
        print("\n" + parts[-1], flush=True)
        if options.save:
            save("\n\n".join(parts), options.groups)
    contender.say(f"took {(time.monotonic() - began) / 60:.1f} minutes")
    sys.exit("\n".join(turns.failures) or None)


if __name__ == "__main__":
    main()
