"""A side-car of `flotilla train --track`: sends a run's metrics to a tracker.

It reads what the run has written and is no part of it: it may be slow, hang or die
and be started again. How far it came is in RUN/trackers/NAME.json, which it writes
every few seconds while it lives. Once there is a file RUN/trackers/over it sends the
rest and ends. Signals do not end it: batch systems send those to every process of a
job, and its run may still have to save.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import sys
import time

from flotilla_watch.config_text import flatten
from flotilla_watch.metrics_tail import MetricsTail
from flotilla_watch.trackers import TRACKERS, missing

POLL = 5.0  # between two sends
LOOK = 0.5  # between two looks for the run's end
SIGN_OF_LIFE = 5.0
MOST_ROWS = 500  # in one send
SET_ASIDE = re.compile(r"metrics\.jsonl\.(?:after_update_(\d+)|before_starting_over)(?:\.\d+)?")


class Run:
    """What a tracker is told of a run."""

    def __init__(self, options):
        folder = pathlib.Path(options.run_dir).absolute()
        self.folder = str(folder)
        self.name = folder.name
        self.project = options.project
        self.group = options.group
        self.tags = [tag for tag in options.tags.split(",") if tag]
        try:
            self.config = flatten((folder / "config.textproto").read_text(errors="replace"))
        except OSError:
            self.config = {}


class Position:
    """How far the tracker came, kept in a file."""

    # Of metrics.jsonl; the update of the last row that was sent; when lines were
    # last set aside, as far as that is known.
    FIELDS = {"offset": 0, "inode": 0, "update": -1, "aside": 0}

    def __init__(self, path):
        self.path = path
        self.id = ""
        self.at = dict(self.FIELDS)
        try:
            kept = json.loads(path.read_text())
            self.at = {name: int(kept[name]) for name in self.FIELDS}
            self.id = str(kept["id"])
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def save(self, at):
        self.at = at
        self.path.parent.mkdir(exist_ok=True)
        new = self.path.with_suffix(".json.new")
        new.write_text(json.dumps({"id": self.id} | at) + "\n")
        os.replace(new, self.path)

    def sign(self):
        """That its writer lives."""
        self.save(self.at)


def set_aside(folder, since):
    """(the last update whose rows still count, when lines were last set aside), by
    the files that a resumed run has made since then."""
    update, newest = None, since
    for entry in os.scandir(folder):
        found = SET_ASIDE.fullmatch(entry.name)
        if found and (when := entry.stat().st_mtime_ns) > since:
            kept = int(found[1]) if found[1] else -1
            update = kept if update is None else min(update, kept)
            newest = max(newest, when)
    return update, newest


class SideCar:
    def __init__(self, run, tracker, position):
        self.run, self.tracker, self.position = run, tracker, position
        at = position.at
        self.tail = MetricsTail(pathlib.Path(run.folder) / "metrics.jsonl", at["offset"], at["inode"])
        self.update, self.aside = at["update"], at["aside"]
        if not at["inode"]:  # what was set aside before the first row was read
            _, self.aside = set_aside(run.folder, 0)
        self.skip_to = -1
        self.waiting = []  # (when it has settled, what is kept then)
        self.signed = 0.0

    def step(self):
        """Whether there may be more to send at once."""
        before = self.tail.offset, self.tail.inode
        rows, anew = self.tail.poll()
        if anew:
            kept, self.aside = set_aside(self.run.folder, self.aside)
            self.skip_to = self.update = self.update if kept is None else min(kept, self.update)
            self.waiting.clear()
        rows = [row for row in rows if row.get("update", 0) > self.skip_to]
        for i in range(0, len(rows), MOST_ROWS):
            self.tracker.send(rows[i : i + MOST_ROWS])
            self.save()
        if rows:
            self.update = int(max(self.update, *(row.get("update", 0) for row in rows)))
        if (self.tail.offset, self.tail.inode) != before:
            self.waiting.append((time.monotonic() + self.tracker.settles, self.at()))
        self.save()
        return self.tail.behind

    def at(self):
        return {"offset": self.tail.offset, "inode": self.tail.inode, "update": self.update, "aside": self.aside}

    def save(self):
        settled = None
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            settled = self.waiting.pop(0)[1]
        if settled:
            self.position.save(settled)
        elif time.monotonic() - self.signed > SIGN_OF_LIFE:
            self.position.sign()
        else:
            return
        self.signed = time.monotonic()

    def finish(self):
        while self.step():
            pass
        self.step()  # the last row, which may have been left out before
        try:
            status = json.loads((pathlib.Path(self.run.folder) / "summary.json").read_text()).get("status", "")
        except (OSError, ValueError, AttributeError):
            status = ""
        self.tracker.close(status)
        self.position.save(self.at())


def say(message):
    print(message, file=sys.stderr, flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="flotilla_watch track", allow_abbrev=False)
    parser.add_argument("--tracker", required=True, choices=sorted(TRACKERS))
    parser.add_argument("--check", action="store_true", help="say what is missing, and end")
    parser.add_argument("--run-dir", default="")
    parser.add_argument("--project", default="flotilla")
    parser.add_argument("--group", default="")
    parser.add_argument("--tags", default="")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    if not options.check:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    if lacks := missing(options.tracker, sys.executable):
        say(lacks)
        return 2
    if options.check:
        return 0
    os.nice(10)  # its packages are loaded by now: niced, that took half a minute where training takes all cores
    run = Run(options)
    folder = pathlib.Path(run.folder) / "trackers"
    position = Position(folder / f"{options.tracker}.json")
    tracker = TRACKERS[options.tracker]()
    try:
        position.id = tracker.open(run, position.id)
        say(f"{options.tracker} knows the run as {position.id}")
        position.sign()
        car = SideCar(run, tracker, position)
        due = 0.0
        while not (folder / "over").exists():
            if time.monotonic() >= due and not car.step():
                due = time.monotonic() + POLL
            if time.monotonic() < due:
                time.sleep(LOOK)
        car.finish()
    except Exception as error:  # noqa: BLE001: whatever a tracker raises is its own affair
        say(f"{type(error).__name__}: {' '.join(str(error).split())[:600] or 'no reason given'}")
        sys.stderr.flush()
        os._exit(1)  # its threads may not want to end
    say(f"sent all of {car.tail.offset} bytes of metrics.jsonl")
    return 0
