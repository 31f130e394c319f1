"""What a sweep knows, on disk: a line of JSON for each event, in SWEEP/journal.jsonl.

A line is on the disk before what it says is relied upon. A line that was cut off (the
end of its writer, or of the power) was never relied upon: it is removed by whoever
writes next. Everything is read and written under SWEEP/lock, so that several processes
may share a sweep.
"""

import contextlib
import errno
import fcntl
import json
import os
import re


# What passes without us: a full disk, a quota that is used up, too many processes, no memory.
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM)
NUMBERS = {"trial": int, "round": int, "seed": int}
# What each kind of event has at least.
EVENTS = {
    "sweep": {"sweep": dict},
    "trial": {"trial": int, "values": dict},
    "begin": NUMBERS | {"by": str, "host": str},
    "end": NUMBERS | {"status": str, "score": (int, float, type(None)), "steps": int, "seconds": (int, float), "error": str},
}


class JournalError(Exception):
    """What is wrong with the journal, in one line."""


class Journal:
    """Not thread-safe."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "journal.jsonl"
        self.offset = 0  # of the first byte that was not returned yet
        self.lines = 0
        self._locked = False

    @contextlib.contextmanager
    def locked(self):
        """Alone with the journal; blocks while others are."""
        with open(self.folder / "lock", "ab") as lock:
            flock(lock.fileno(), fcntl.LOCK_EX, lock.name)
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    def size(self):
        """Of what there is by now, lines that are being written too."""
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def read(self):
        """The events since the last call."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        data = data[: data.rfind(b"\n") + 1]
        self.offset += len(data)
        return [self._parse(line) for line in data.splitlines()]

    def _parse(self, line):
        self.lines += 1
        try:
            event = json.loads(line)
            if not all(isinstance(event[name], kind) for name, kind in EVENTS[event["event"]].items()):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise JournalError(f"{self.path}:{self.lines}: that is no event of a sweep; remove the line, or begin anew with another --sweep-dir") from None
        return event

    def append(self, **event):
        """On the disk when it returns, and not there where it fails. Under locked() alone."""
        assert self._locked
        new = not self.path.exists()
        with named(self.path):
            # Without a buffer, which would be written once more as the file is closed.
            with open(self.path, "ab+", buffering=0) as file:
                self._cut(file)
                size = file.seek(0, os.SEEK_END)
                try:
                    left = json.dumps(event).encode() + b"\n"
                    while left:
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())
                except OSError:
                    # Nobody is to rely on it, nor find it twice where it is tried again.
                    with contextlib.suppress(OSError):
                        file.truncate(size)
                    raise
            if new:
                sync_folder(self.folder)

    def _cut(self, file):
        """Removes a line without an end."""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if size and file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def sync_folder(folder):
    """Makes names in it last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path, text):
    """All of it or what was there before."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with named(path):
        try:
            with open(new, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except OSError:
            new.unlink(missing_ok=True)  # half of it takes room, too
            raise


@contextlib.contextmanager
def named(path):
    """Errors name what was written, which those of a write do not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), error.filename2 or error.filename or str(path)) from None


def name_of(name):
    """What a file is, or is about to be: write_whole may be at it, or was killed there."""
    being_written = re.fullmatch(r"\.(.+)\.\d+", name)
    return being_written[1] if being_written else name


def flock(descriptor, how, path):
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        raise
    except OSError as error:  # such as a share without a lock service
        raise OSError(error.errno, error.strerror, str(path)) from None


class Claim:
    """One of several processes has it, until it and all that have inherited it are
    gone, however they end."""

    def __init__(self, path):
        self.path = path
        self.descriptor = -1

    def take(self):
        """Whether it is ours now."""
        if self.descriptor >= 0:
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, self.path)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self.descriptor = descriptor
        return True

    def share(self):
        """Holds it beside others, so that nobody takes it."""
        if self.descriptor < 0:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        flock(self.descriptor, fcntl.LOCK_SH, self.path)

    def release(self):
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1
