"""One run as the dashboard knows it: curves, marks, ranks, logs."""

import os
import pathlib
import re
import stat
import time
from bisect import bisect_left

from flotilla_watch.history import MOST_MARKS, Lanes, StatusMarks, mark_of_log, zone_of_log
from flotilla_watch.metrics_tail import MetricsTail
from flotilla_watch.series import Series

MOST_METRICS = 256
MOST_LOGS = 512
LOG_TAIL = 64 << 10
LOG_HISTORY = 4 << 20  # of the coordinator's log, for marks
CONFIG_BYTES = 256 << 10
NO_CURVES = {"global_step", "update", "wall_seconds"}
METRIC_NAME = re.compile(r"[\w./ :+-]{1,120}")
# Counters whose growth is a fault, and what it is called.
FAULT_COUNTERS = {"env/restarts": "env workers restarted", "env/failed_rows": "environments failed"}


class WatchedRun:
    """Not thread-safe: Feed guards it."""

    def __init__(self, number, name, path="", most_points=2000):
        self.id = str(number)
        self.name = name
        self.path = path
        self.most_points = most_points
        self.tail = MetricsTail(pathlib.Path(path) / "metrics.jsonl") if path else None
        # Of checkpoints, by flotilla evaluate --follow.
        self.followed_tail = MetricsTail(pathlib.Path(path) / "evaluations.jsonl") if path else None
        self.log_at = 0  # of coordinator.log
        self.log_inode = 0
        self.log_zone = None
        self.logs = []
        self.logs_version = 0
        self.status = None
        self.status_version = 0
        self.complaint = ""  # of who asks for its status, and gets none
        self.status_marks = StatusMarks(generations=not path)
        self.lanes = Lanes()
        self.too_many_metrics = False
        self.all_read = False  # the lines that were there when we came
        self.last_round = 0
        self.forget()

    def forget(self):
        """The curves, of a file that is another one now."""
        self.series = {}
        self.anew = getattr(self, "anew", 0) + 1
        self.marks = []
        self.dropped_marks = 0
        self.newest = (0, 0.0)  # step, seconds
        self.counters = {}
        self.clock_zero = None
        self.log_at = 0

    # ---- Curves

    def add_rows(self, rows):
        for row in rows:
            step, seconds = row["global_step"], row.get("wall_seconds", 0.0)
            self.newest = (step, seconds)
            for name, value in row.items():
                if name not in NO_CURVES:
                    self._add_point(name, step, seconds, value)
            for name, what in FAULT_COUNTERS.items():
                more = row.get(name, 0) - self.counters.get(name, 0)
                if more > 0 and not self.all_read and name in self.counters:
                    self.add_mark(self.clock_of(seconds), "fault", f"{more:g} {what}", None, (step, seconds))
                if name in row:
                    self.counters[name] = row[name]

    def _add_point(self, name, step, seconds, value):
        series = self.series.get(name)
        if series is None:
            if len(self.series) >= MOST_METRICS or not METRIC_NAME.fullmatch(name):
                self.too_many_metrics = True
                return
            series = self.series[name] = Series(self.most_points)
        series.add(step, seconds, value)

    def poll_followed(self):
        """Whether anything is new. As curves beside the run's own: eval/x of a
        checkpoint is follow/x."""
        rows, anew = self.followed_tail.poll()
        if anew:  # all curves begin again, these and the run's
            self.forget()
            self.tail = MetricsTail(self.tail.path)
        for row in rows:
            for name, value in row.items():
                group, _, rest = name.partition("/")
                if group == "eval":
                    self._add_point(f"follow/{rest}", row["global_step"], row.get("wall_seconds", 0.0), value)
        return bool(rows) or anew

    def poll_metrics(self):
        """Whether anything is new."""
        rows, anew = self.tail.poll()
        if anew:
            self.forget()
            self.followed_tail = MetricsTail(self.followed_tail.path)
        if self.clock_zero is None and rows and not self.tail.behind:
            self.set_clock(rows[-1].get("wall_seconds", 0.0))
        self.add_rows(rows)
        if not self.tail.behind:
            self.all_read = True
        return bool(rows) or anew

    # ---- What happened

    def set_clock(self, seconds):
        """The file was last written when it had come to `seconds`."""
        try:
            self.clock_zero = os.stat(self.tail.path).st_mtime - seconds
        except OSError:
            pass

    def clock_of(self, seconds):
        return time.time() if self.clock_zero is None else self.clock_zero + seconds

    def where(self, clock):
        """(step, seconds) of the run at a time of day."""
        if self.clock_zero is None:
            return self.newest
        seconds = clock - self.clock_zero
        if seconds > self.newest[1]:
            return self.newest
        longest = max(self.series.values(), key=len, default=None)
        if longest is None or not len(longest):
            return self.newest
        at = min(bisect_left(longest.seconds, seconds), len(longest) - 1)
        return longest.steps[at], max(0.0, seconds)

    def add_mark(self, clock, kind, text, rank=None, where=None):
        step, seconds = where or self.where(clock)
        self.marks.append([round(clock, 2), int(step), round(seconds, 2), kind, text[:400], rank])
        if len(self.marks) > MOST_MARKS:
            del self.marks[0]
            self.dropped_marks += 1

    def poll_coordinator_log(self):
        path = pathlib.Path(self.path) / "logs" / "coordinator.log"
        try:
            with open(path, "rb") as file:
                info = os.fstat(file.fileno())
                if info.st_ino != self.log_inode or info.st_size < self.log_at:
                    self.log_inode, self.log_at = info.st_ino, max(0, info.st_size - LOG_HISTORY)
                file.seek(self.log_at)
                data = file.read(LOG_HISTORY)
        except OSError:
            return False
        end = data.rfind(b"\n") + 1
        if not end and len(data) == LOG_HISTORY:
            end = len(data)
        lines = data[:end].decode(errors="replace").splitlines()
        if lines and self.log_at + len(data) >= info.st_size:
            self.log_zone = zone_of_log(lines[-1], info.st_mtime, self.log_zone)
        self.log_at += end
        any_new = False
        for line in lines:
            mark = mark_of_log(line, self.log_zone)
            if mark is not None:
                self.add_mark(*mark)
                any_new = True
        return any_new

    def take_status(self, status, now):
        for kind, text, rank in self.status_marks.compare(status):
            self.add_mark(now, kind, text, rank)
        self.status = status
        self.status_version += 1
        if status is None:
            return
        self.lanes.add(now, status.get("learner", []), status.get("generation"))
        if not self.path:
            self._take_numbers(status)

    def _take_numbers(self, status):
        """The curves of a run whose folder is elsewhere."""
        try:
            row = {
                "global_step": float(status.get("global_step", 0)),
                "wall_seconds": float(status.get("uptime_seconds", 0)),
                "charts/episodic_return": float(status.get("mean_return", 0)),
                "charts/SPS": float(status.get("steps_per_second", 0)),
                "env/restarts": float(status.get("env_worker_restarts", 0)),
            }
            evaluation = status.get("evaluation") or {}
            if int(evaluation.get("round", 0)) > self.last_round:
                self.last_round = int(evaluation["round"])
                row |= {f"eval/{name}": float(evaluation.get(name, 0)) for name in ("mean_return", "mean_length", "update")}
        except (TypeError, ValueError, OverflowError):
            return
        if row["global_step"] > self.newest[0]:
            self.add_rows([row])

    # ---- Files

    def poll_logs(self):
        found = []
        try:
            with os.scandir(pathlib.Path(self.path) / "logs") as entries:
                for entry in entries:
                    if len(found) < MOST_LOGS and entry.is_file(follow_symlinks=False):
                        found.append([entry.name, entry.stat(follow_symlinks=False).st_size])
        except OSError:
            pass
        found.sort()
        if found == self.logs:
            return False
        self.logs = found
        self.logs_version += 1
        return True

    def log_tail(self, name):
        """The end of a log that poll_logs has listed; None if there is none."""
        if not self.path or name not in {known for known, _ in self.logs}:
            return None
        return read_end(pathlib.Path(self.path) / "logs" / name, LOG_TAIL)

    def config(self):
        if not self.path:
            return None
        return read_end(pathlib.Path(self.path) / "config.textproto", CONFIG_BYTES)


def read_end(path, most):
    """The last `most` bytes of a regular file as text; None if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return None
        file.seek(max(0, info.st_size - most))
        data = file.read(most)
    if info.st_size > most:
        data = data[data.find(b"\n") + 1 :]
    return data.decode(errors="replace")
