"""All that a page is told, and to whom what was told already."""

import itertools
import json
import os
import pathlib
import subprocess
import threading
import time

from flotilla_watch.games import Games
from flotilla_watch.history import MOST_SEGMENTS
from flotilla_watch.status_watch import StatusWatch, is_loopback, start
from flotilla_watch.watched_run import WatchedRun, read_end

MOST_RUNS = 64
MOST_WATCHES = 16
POLL = 2.0
LIST_PAUSE = 2.0
LIST_ANYWAY = 20.0  # a run that was killed writes nothing
MOST_FOLDERS = 4000  # that are looked at for changes
DEEPEST = 6  # folders below the one that was named, as `flotilla runs` looks
LIST_TIMEOUT = 120
MOST_LIST_BYTES = 64 << 20


def traces(folders):
    """What changes when a run comes, goes or ends; None where that is too much to
    look at."""
    found = []
    for folder in folders:
        top = os.path.normpath(folder).count(os.sep)
        for path, below, files in os.walk(folder, followlinks=True):
            if len(found) >= MOST_FOLDERS:
                return None
            # A run's own folders are none of ours.
            if "config.textproto" in files or os.path.normpath(path).count(os.sep) - top >= DEEPEST:
                below.clear()
            try:
                found.append((path, os.stat(path).st_mtime_ns, _changed_at(os.path.join(path, "summary.json"))))
            except OSError:
                found.append((path, 0, 0))
    return found


def _changed_at(path):
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class Feed:
    """Follows runs in threads of its own. Thread-safe."""

    def __init__(self, flotilla, folders, addresses, credential_flags):
        self._flotilla = flotilla
        self._folders = folders
        self._flags = credential_flags
        self.games = Games(flotilla, credential_flags)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._version = 0
        self._closed = False
        self._runs = {}  # by path or address
        self._ids = itertools.count()  # of runs that have gone, none is given again
        self._table = []
        self._listed_notes = []  # of the list, and with those of who does not answer:
        self._notes = []
        self._runs_version = 0
        self._watches = {}  # by path or address
        self._family = None
        for address in addresses:
            run = self._runs[address] = WatchedRun(next(self._ids), address)
            self._watch(run, ["--coordinator", address])
        # What no list of folders has.
        self._of_addresses = [{"id": run.id, "run": run.name, "remote": True, "status": "running", "notes": []} for run in self._runs.values()]
        self._table = self._of_addresses
        if folders:
            self._looked = traces(folders)
            self._list_runs()
            self._poll_files()
            threading.Thread(target=self._follow_list, daemon=True).start()
            threading.Thread(target=self._follow_files, daemon=True).start()

    def close(self):
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            watches = list(self._watches.values())
        for watch in watches:
            watch.stop()

    # ---- What there is

    def _follow_list(self):
        looked, listed = self._looked, time.monotonic()
        while not self._closed:
            time.sleep(LIST_PAUSE)
            now, began = traces(self._folders), time.monotonic()
            if now is not None and now == looked and began - listed < LIST_ANYWAY:
                continue  # whoever trains here needs the processor
            self._list_runs()
            looked, listed = now, time.monotonic()
            time.sleep(4 * (listed - began))

    def _list_runs(self):
        listed = None
        try:
            process = start([self._flotilla, "runs", "--json", *self._folders])
            said, _ = process.communicate(timeout=LIST_TIMEOUT)
            if process.returncode == 0 and len(said) < MOST_LIST_BYTES:
                listed = json.loads(said)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        except (OSError, ValueError, RecursionError):
            pass  # the program itself may be missing for a moment, as while it is installed
        if not isinstance(listed, list):
            with self._lock:
                self._set_table(self._table, ["`flotilla runs` does not answer: what is shown of the runs may be old"])
            return
        with self._lock:
            self._take_list(listed)

    def _take_list(self, listed):
        table, notes, others = list(self._of_addresses), [], set()
        readable = [entry for entry in listed if entry.get("status") != "unreadable"]
        for entry in listed:
            if entry.get("status") == "unreadable":
                notes += [f"{text}; {entry['run']} is left out" for text in entry.get("notes", [])[:1]]
        if self._family is None and readable:
            self._family = readable[0].get("env_id")
        shown = self._chosen([entry for entry in readable if entry.get("env_id") == self._family])
        # What was deleted, or makes room for others, goes. An unreadable one may be read again.
        kept = shown | {entry["run"] for entry in listed if entry.get("status") == "unreadable"}
        gone = [run.path for run in self._runs.values() if run.path and run.path not in kept]
        for path in gone:
            del self._runs[path]
            if path in self._watches:
                self._watches.pop(path).stop()
        for entry in readable:
            if entry.get("env_id") != self._family:
                others.add(f"{entry['run']} is of {entry.get('env_id')}, and is left out: one page is of one environment, here {self._family}")
                continue
            path = entry["run"]
            if path not in shown:
                others.add(f"{path} is left out: a page shows {MOST_RUNS} runs at most")
                continue
            run = self._runs.get(path)
            if run is None:
                most = max(200, min(2000, 32000 // max(1, len(readable))))
                run = self._runs[path] = WatchedRun(next(self._ids), path, path, most)
            notes += entry.get("notes", [])
            table.append(entry | {"id": run.id})
            if entry.get("status") == "running" and path not in self._watches and len(self._watches) < MOST_WATCHES:
                self._watch(run, ["--run-dir", path])
            elif entry.get("status") != "running" and path in self._watches:
                self._watches.pop(path).stop()
                run.complaint = ""
        there = {entry["run"] for entry in listed}
        notes += [f"{path} is not there any more" for path in gone if path not in there]
        left_out = sorted(others)
        notes += left_out[:8] + ([f"and {len(left_out) - 8} more are left out"] if len(left_out) > 8 else [])
        notes += [f"{run.name} has more metrics than are shown, or some with odd names" for run in self._runs.values() if run.too_many_metrics]
        self._set_table(table, notes)

    def _chosen(self, entries):
        """The paths of those that a page has room for: what is running, and then what began or ended last."""
        room = max(0, MOST_RUNS - len(self._of_addresses))

        def rank(entry):
            changed = (_changed_at(os.path.join(entry["run"], name)) for name in ("config.textproto", "summary.json"))
            return entry.get("status") == "running", max(changed)

        if len(entries) > room:
            entries = sorted(entries, key=rank, reverse=True)
        return {entry["run"] for entry in entries[:room]}

    def _set_table(self, table, listed_notes):
        self._listed_notes = listed_notes
        notes = listed_notes + [f"nothing is heard of {run.name}: {run.complaint}" for run in self._runs.values() if run.complaint]
        if (table, notes) == (self._table, self._notes):
            return
        self._table, self._notes = table, notes
        self._runs_version += 1
        self._tell()

    def _watch(self, run, where):
        name = run.path or run.name
        plain = [self._flotilla, "status", "--watch", "--json", *where]
        given = plain + self._flags

        def ways():
            """With TLS, and where none but this host reaches the coordinator, without: the flags may be for the page
            alone. Their token stays with TLS then; a run's own is in its folder."""
            address = read_end(pathlib.Path(run.path) / "coordinator.address", 300) if run.path else None
            has_tls = any(flag.startswith("--tls-") for flag in self._flags)
            return [given, plain] if has_tls and is_loopback((address or "").strip()) else [given]

        def on_status(status, complaint=""):
            with self._lock:
                run.take_status(status, time.time())
                complaint = complaint if name in self._watches else ""
                if complaint != run.complaint:
                    run.complaint = complaint
                    self._set_table(self._table, self._listed_notes)
                self._tell()

        self._watches[name] = StatusWatch(ways, on_status)

    def _follow_files(self):
        while not self._closed:
            if not self._poll_files():
                time.sleep(POLL)

    def _poll_files(self):
        """Whether there is more to read at once."""
        behind = False
        with self._lock:
            runs = [run for run in self._runs.values() if run.path]
        for run in runs:
            with self._lock:
                new = run.poll_metrics()
                new |= run.poll_followed()
                behind |= run.tail.behind or run.followed_tail.behind
                if run.all_read:  # marks of a log stand where the curves are
                    new |= run.poll_coordinator_log()
                new |= run.poll_logs()
                if new:
                    self._tell()
        return behind

    # ---- What it is told

    def _tell(self):
        self._version += 1
        self._changed.notify_all()

    def await_change(self, seen, timeout):
        """The version after `seen`, or that again after `timeout`; None once
        closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._version != seen, timeout)
            return None if self._closed else self._version

    def run(self, run_id):
        """A run's log or configuration may be read without the lock."""
        with self._lock:
            return next((run for run in self._runs.values() if run.id == run_id), None)

    def changes(self, cursor, groups):
        """[(event, data)] that the page with this cursor does not know yet; the
        cursor, {} at first, remembers. Curves: of these groups of metrics."""
        with self._lock:
            told = []
            if cursor.get("runs") != self._runs_version:
                cursor["runs"] = self._runs_version
                known = [run.id for run in self._runs.values()]
                for gone in cursor.keys() - {"runs", *known}:
                    del cursor[gone]
                table = {"runs": self._table, "known": known, "notes": self._notes, "env_id": self._family}
                told.append(("runs", table))
            for run in self._runs.values():
                told += _changes_of(run, cursor.setdefault(run.id, {}), groups)
            return told


def _changes_of(run, cursor, groups):
    told = []
    anew = cursor.get("anew") != run.anew
    if anew:
        cursor.clear()
        cursor["anew"] = run.anew
    series = {}
    for name, one in run.series.items():
        if name.split("/", 1)[0] not in groups:
            continue
        seen, remade = cursor.get(("series", name), (0, 0))
        if remade != one.remade:
            seen = 0
        if seen < len(one):
            series[name] = {"from": seen, "points": one.since(seen)}
        cursor["series", name] = (len(one), one.remade)
    names = len(run.series)
    if anew or series or cursor.get("names") != names:
        cursor["names"] = names
        known = sorted({name.split("/", 1)[0] for name in run.series})
        told.append(("points", {"run": run.id, "anew": anew, "series": series, "groups": known}))
    marks_end = run.dropped_marks + len(run.marks)
    if cursor.get("marks") != marks_end:
        begin = max(cursor.get("marks", 0), run.dropped_marks)
        cursor["marks"] = marks_end
        told.append(("marks", {"run": run.id, "marks": run.marks[begin - run.dropped_marks :], "anew": anew}))
    if cursor.get("status") != run.status_version:
        cursor["status"] = run.status_version
        told.append(("status", {"run": run.id, "at": time.time(), "status": run.status}))
        told.append(("lanes", {"run": run.id, "most": MOST_SEGMENTS, "lanes": run.lanes.since(cursor.setdefault("lanes", {}))}))
    if cursor.get("logs") != run.logs_version:
        cursor["logs"] = run.logs_version
        told.append(("logs", {"run": run.id, "files": run.logs, "folder": str(pathlib.Path(run.path) / "logs") if run.path else ""}))
    return told
