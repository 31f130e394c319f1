"""The launchers of a sweep, on one host or several. Each holds a file in SWEEP/members
while it lives, and counts in it: that is how others know it where its lock does not
reach them."""

import contextlib
import os
import secrets
import threading
import time

from flotilla_sweep.journal import Claim

POLL = 0.05
BEAT = 1.0
WATCH = 15.0  # a launcher that lives has counted on by then, also where a disk is busy


class Member:
    def __init__(self, folder):
        # Containers may have the host's name in common, and a pid too.
        self.claim = Claim(folder / f"{os.uname().nodename}-{os.getpid()}.{secrets.token_hex(4)}")
        self.name = self.claim.path.name
        self._left = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def enter(self, stopped=lambda: False):
        """Whether it is one of them now: not where it was told to stop."""
        while not self.claim.take():  # somebody looks whether it is free
            if stopped():
                return False
            time.sleep(POLL)
        self._beating.start()
        return True

    def _beat(self):
        count = 0
        while True:
            count += 1
            with contextlib.suppress(OSError):  # a full disk is told of by the journal
                os.pwrite(self.claim.descriptor, b"%d\n" % count, 0)
                os.fsync(self.claim.descriptor)  # or other hosts of a network file system do not see it
            if self._left.wait(BEAT):
                return

    def leave(self):
        if not self._beating.is_alive():
            return
        self._left.set()
        self._beating.join()
        self.claim.release()
        self.claim.path.unlink(missing_ok=True)


def lives(path):
    """Whether a launcher of this host has it, or one of another whose locks reach us."""
    claim = Claim(path)
    if not path.exists():
        return False
    if claim.take():
        claim.release()
        return False
    return True


def out_of_reach(folder, stopped=lambda: False):
    """The name of a launcher of another host that lives while its lock is free here, so
    that two hosts would run the same trials; "" if there is none. Blocks for WATCH where
    one has ended without a word, unless told to stop."""

    def counts():
        found = {}
        for path in folder.iterdir():
            if path.name.rsplit("-", 1)[0] != os.uname().nodename and not lives(path):
                with contextlib.suppress(OSError):
                    found[path.name] = path.read_text()
        return found

    before = counts()
    until = time.monotonic() + WATCH
    while before and time.monotonic() < until and not stopped():
        time.sleep(POLL)
        for name, count in counts().items():
            # Once more: it may have locked it between our look at that and at the count.
            if before.get(name, count) != count and (folder / name).exists() and not lives(folder / name):
                return name
    return ""
