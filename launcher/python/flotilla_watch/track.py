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

POLL = 1.0
SIGN_OF_LIFE = 5.0
MOST_ROWS = 500  # in one send
SET_ASIDE = re.compile(r"metrics\.jsonl\.(?:after_update_(\d+)|before_starting_over)")


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

    def __init__(self, path):
        self.path = path
        self.id = ""
        self.offset = self.inode = 0
        self.update = -1  # of the last row that was sent
        try:
            kept = json.loads(path.read_text())
            self.id, self.offset, self.inode, self.update = str(kept["id"]), int(kept["offset"]), int(kept["inode"]), int(kept["update"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        try:
            self.written = path.stat().st_mtime
        except OSError:
            self.written = 0.0

    def save(self, offset, inode, update):
        self.offset, self.inode, self.update = offset, inode, update
        self.path.parent.mkdir(exist_ok=True)
        aside = self.path.with_suffix(".json.new")
        aside.write_text(json.dumps({"id": self.id, "offset": offset, "inode": inode, "update": update}) + "\n")
        os.replace(aside, self.path)
        self.written = time.time()

    def sign(self):
        """That its writer lives."""
        self.save(self.offset, self.inode, self.update)


def kept_until(folder, update, since):
    """The last update whose rows still count, where the metrics are a new file: a
    resumed run has set the lines after a checkpoint's aside since then."""
    for entry in os.scandir(folder):
        found = SET_ASIDE.match(entry.name)
        if found and entry.stat().st_mtime >= since - 1:
            update = min(update, int(found[1]) if found[1] else -1)
    return update


class SideCar:
    def __init__(self, run, tracker, position):
        self.run, self.tracker, self.position = run, tracker, position
        self.tail = MetricsTail(pathlib.Path(run.folder) / "metrics.jsonl", position.offset, position.inode)
        self.update = position.update
        self.skip_to = -1
        self.waiting = []  # (when it has settled, offset, inode, update)
        self.signed = 0.0

    def step(self):
        """Whether there may be more to send at once."""
        offset, inode = self.tail.offset, self.tail.inode
        rows, anew = self.tail.poll()
        if anew:
            self.skip_to = self.update = kept_until(self.run.folder, self.update, self.position.written)
            self.waiting.clear()
        rows = [row for row in rows if row.get("update", 0) > self.skip_to]
        for i in range(0, len(rows), MOST_ROWS):
            self.tracker.send(rows[i : i + MOST_ROWS])
            self.save()
        if rows:
            self.update = int(max(self.update, *(row.get("update", 0) for row in rows)))
        if (self.tail.offset, self.tail.inode) != (offset, inode):
            self.waiting.append((time.monotonic() + self.tracker.settles, self.tail.offset, self.tail.inode, self.update))
        self.save()
        return self.tail.behind

    def save(self):
        settled = None
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            settled = self.waiting.pop(0)[1:]
        if settled:
            self.position.save(*settled)
        elif time.monotonic() - self.signed > SIGN_OF_LIFE:
            self.position.sign()
        else:
            return
        self.signed = time.monotonic()

    def finish(self):
        while self.step():
            pass
        try:
            status = json.loads((pathlib.Path(self.run.folder) / "summary.json").read_text()).get("status", "")
        except (OSError, ValueError, AttributeError):
            status = ""
        self.tracker.close(status)
        self.position.save(self.tail.offset, self.tail.inode, self.update)


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
    os.nice(5)
    run = Run(options)
    folder = pathlib.Path(run.folder) / "trackers"
    position = Position(folder / f"{options.tracker}.json")
    tracker = TRACKERS[options.tracker]()
    try:
        position.id = tracker.open(run, position.id)
        say(f"{options.tracker} knows the run as {position.id}")
        position.sign()
        car = SideCar(run, tracker, position)
        while not (folder / "over").exists():
            if not car.step():
                time.sleep(POLL)
        car.finish()
    except Exception as error:  # noqa: BLE001: whatever a tracker raises is its own affair
        say(f"{type(error).__name__}: {' '.join(str(error).split())[:600] or 'no reason given'}")
        sys.stderr.flush()
        os._exit(1)  # its threads may not want to end
    say(f"sent all of {car.tail.offset} bytes of metrics.jsonl")
    return 0
