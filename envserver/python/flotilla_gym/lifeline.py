"""A child cannot outlive its parent: the child's half, as in services/base/lifeline.h."""

import os
import signal
import stat
import threading

_VARIABLE = "FLOTILLA_LIFELINE_FD"


def start_watch():
    """Watches the pipe that the variable names, if it does. Returns whether there is a parent to obey."""
    text = os.environ.pop(_VARIABLE, "")
    try:
        fd = int(text)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
    except (ValueError, OSError):
        return False
    os.set_inheritable(fd, False)
    threading.Thread(target=_watch, args=(fd,), daemon=True).start()
    return True


def _watch(fd):
    while os.read(fd, 1):
        pass
    if os.getpgrp() == os.getpid():
        os.kill(0, signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)
