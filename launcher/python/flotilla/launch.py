"""The program `flotilla`, in the background."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import weakref

import flotilla_program
from flotilla.errors import Error

_VARIABLE = "FLOTILLA_BIN"
_MOST_KEPT = 200  # lines
_PATIENCE = 10  # seconds for a program whose lifeline is cut


def program():
    """Where the program is: what FLOTILLA_BIN names, it or its folder; else beside this package, in a build or an
    installation, or where pip put it; else in PATH. Raises Error."""
    given = os.environ.get(_VARIABLE, "")
    if given:
        path = pathlib.Path(given)
        path = path / "flotilla" if path.is_dir() else path
        if not os.access(path, os.X_OK):
            raise Error(f"{_VARIABLE} is {given}, where there is no program flotilla; name it, or the folder that has it")
        return str(path.absolute())
    beside = flotilla_program.folder() / "flotilla"
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("flotilla")
    if found is None:
        raise Error(f"there is no program flotilla: not {beside}, and none in PATH; name it in {_VARIABLE}")
    return os.path.abspath(found)


# Of this process. What it forks has their lifelines, too, and would keep them whole.
_launches = weakref.WeakSet()


def _let_go_of_all():
    for each in list(_launches):
        each.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)


class Launch:
    """`flotilla` with `words`. It cannot outlive this process, whatever ends that (services/base/lifeline.h). Its lines
    are given to `on_line`, on threads of their own."""

    def __init__(self, words, on_line):
        self._on_line = on_line
        self.said, self.complained = [], []  # lines of stdout and of stderr, the last ones
        # Nobody writes there: the only write end is ours.
        read, self._lifeline = os.pipe()
        _launches.add(self)
        env = flotilla_program.environment() | {"FLOTILLA_LIFELINE_FD": str(read)}
        try:
            # A session of its own: Ctrl-C in a terminal is ours to pass on.
            self._process = subprocess.Popen(
                [program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                pass_fds=(read,), start_new_session=True, text=True, errors="replace",
            )  # fmt: skip
        except BaseException as error:
            self.let_go()
            if isinstance(error, OSError):
                raise Error(f"cannot start {program()}: {error.strerror}") from None
            raise
        finally:
            os.close(read)
        pipes = ((self._process.stdout, self.said), (self._process.stderr, self.complained))
        self._readers = [threading.Thread(target=self._read, args=pipe, daemon=True) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe, kept):
        for line in pipe:
            kept.append(line.rstrip("\n"))
            del kept[:-_MOST_KEPT]
            self._on_line(kept is self.complained, kept[-1])

    def wait(self, seconds):
        """Its exit code, with all that it said; None if it still runs after `seconds`."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        for reader in self._readers:
            reader.join(5)
        return code

    def interrupt(self):
        """Once: save and stop. Twice: now."""
        self.send(signal.SIGINT)

    def send(self, number):
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def let_go(self):
        """Closes this process's end of the lifeline."""
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def end(self):
        """Kills it, and all it has started, if it still runs."""
        self.let_go()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            # Somebody else has the lifeline: what C code forked here. Its session is its own, and so is its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
