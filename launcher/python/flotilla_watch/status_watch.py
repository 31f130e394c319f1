"""What a run's coordinator says of it, from `flotilla status --watch --json`: it
knows addresses, certificates and tokens."""

import ipaddress
import json
import os
import subprocess
import threading
import urllib.parse

PAUSE = 2.0  # before it is asked again
LONGEST_LINE = 8 << 20
MOST_LEARNERS = 256
MOST_WORKERS = 64  # of a learner
LONGEST_TEXT = 400

# Nobody writes there: when we are gone, whatever ended us, our children notice.
_lifeline_read, _lifeline_write = os.pipe()
os.set_inheritable(_lifeline_read, True)


def start(command, stderr=subprocess.DEVNULL):
    """A program of ours that ends with us."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        pass_fds=(_lifeline_read,), env=os.environ | {"FLOTILLA_LIFELINE_FD": str(_lifeline_read)},
        start_new_session=True,
    )  # fmt: skip


def is_loopback(address):
    """Whether HOST:PORT is of this host alone."""
    try:
        host = urllib.parse.urlsplit("//" + address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def brief(value, depth=0):
    """Texts cut and lists bounded: a status is a stranger's until it is shown."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT] + "..."
    if depth > 6:
        return None
    if isinstance(value, dict):
        kept = {}
        for name, part in list(value.items())[:64]:
            if name in ("learner", "env_server") and isinstance(part, list):
                part = part[:MOST_LEARNERS]
            elif name == "env_worker" and isinstance(part, list):
                part = part[:MOST_WORKERS]
            kept[str(name)[:100]] = brief(part, depth + 1)
        return kept
    if isinstance(value, list):
        return [brief(part, depth + 1) for part in value[:1024]]
    return value


class StatusWatch:
    """Gives each status to `on_status`, and None whenever nobody answers, in a
    thread of its own, until Stop. `ways()` are the commands that may ask: where one
    ends without any status, the next has its turn, and once none of them got any,
    None comes with what the last one complained of."""

    def __init__(self, ways, on_status):
        self._ways = ways
        self._on_status = on_status
        self._stopped = threading.Event()
        self._process = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        with self._lock:
            self._stopped.set()
            if self._process is not None:
                self._process.kill()

    def _run(self):
        turn = failures = 0
        while not self._stopped.is_set():
            ways = self._ways()
            try:
                with self._lock:
                    if self._stopped.is_set():
                        return
                    self._process = start(ways[turn % len(ways)], stderr=subprocess.STDOUT)
            except OSError as error:  # the program may be missing for a moment, as while it is installed
                self._on_status(None, str(error))
                self._stopped.wait(PAUSE)
                continue
            answered, complaint = self._listen()
            self._process.wait()
            self._process.stdout.close()
            if not answered:
                turn += 1
            failures = 0 if answered else failures + 1
            self._on_status(None, complaint if failures >= len(ways) else "")
            self._stopped.wait(PAUSE)

    def _listen(self):
        """(whether there was a status, the last line that was not meant for a program)"""
        answered, complaint = False, ""
        while line := self._process.stdout.readline(LONGEST_LINE):
            try:
                status = json.loads(line)
            except (ValueError, RecursionError):
                complaint = brief(line.decode(errors="replace").strip())
                continue
            # A run that is over answers with its summary.
            if isinstance(status, dict) and "state" in status and "learner" in status:
                answered = True
                self._on_status(brief(status))
        return answered, complaint
