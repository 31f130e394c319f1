"""`flotilla status --watch` on a terminal: what a person sees, presses and gets back."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import pyte
import pytest

from harness import BIN, TIMEOUT, coordinator_pb2

LONG = ("--nproc-per-node", 2, "--set", "total_env_steps=1000000000")
LEFT = b"\x1b[?25h\x1b[?1049l"  # the cursor, and the screen of before


class Terminal:
    """One that a person looks at, with a program in it."""

    def __init__(self, sandbox, *words, columns=110, rows=24):
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.code = None
        ours, its = pty.openpty()
        self.fd, self.tty = ours, its
        self.resize(columns, rows)
        self.before = termios.tcgetattr(its)
        env = sandbox.env | {"TERM": "xterm", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(its, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(its, fd)
            os.chdir(sandbox.folder)
            os.execve(BIN / "flotilla", ["flotilla", *map(str, words)], env)

    def resize(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def _read(self, seconds):
        """A part of what is there; whether there was any."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        data = os.read(self.fd, 65536)
        self.raw += data
        self._stream.feed(data)
        return True

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def await_text(self, condition, what):
        """The screen, once `condition` (or that text) holds of it."""
        wanted = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + TIMEOUT
        while True:
            text = self.text()
            if wanted(text):
                return text
            assert time.monotonic() < deadline, f"no {what} in\n{text}"
            self._read(0.1)

    def wait(self):
        """The exit code, or minus a signal; the terminal is as it was before."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < deadline, f"it goes on:\n{self.text()}"
        while self._read(0.2):
            pass
        assert termios.tcgetattr(self.tty) == self.before
        begin, end = self.raw.rfind(b"\x1b[?1049h"), self.raw.rfind(LEFT)
        assert begin >= 0 and end > begin, self.raw[-200:]
        os.close(self.fd)
        os.close(self.tty)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture(scope="module")
def job(shared_sandbox):
    running = shared_sandbox.train(shared_sandbox.config("cartpole_ppo"), *LONG)
    running.await_update(3)
    return running


def updates(text):
    words = text.split()
    return int(words[words.index("update") + 1])


def shows(*words):
    """Whether a screen has all of them: what is read of one may be a part of what was drawn."""
    return lambda text: all(word in text for word in words)


def test_what_a_person_sees_and_presses(shared_sandbox, job):
    terminal = Terminal(shared_sandbox, "status", "--watch", "run")
    text = terminal.await_text(shows("+ rank 1", "log of rank 0", "q quit  s sort (rank)"), "learners")
    assert "run run  active  generation 1  world 2" in text
    assert terminal.screen.cursor.hidden
    seen = updates(text)
    text = terminal.await_text(lambda t: "return" in t and updates(t) >= seen + 5 and "▁" in t and "█" in t, "curves")
    # The workers of the learner that is chosen.
    others, its = (learner.env_worker[0].id for learner in job.status().learner)
    terminal.press("\x1b[B\r")
    text = terminal.await_text(shows("- rank 1", its, "log of rank 1"), "an expanded learner")
    lines = [line.strip().split("  ")[0] for line in text.splitlines()]
    assert its in lines and others not in lines
    terminal.press("s")
    terminal.await_text("s sort (slowest)", "another order")
    # A window of another size is filled at once, and no more than that.
    terminal.resize(50, 10)
    text = terminal.await_text(lambda t: t.splitlines()[-1].startswith("q quit"), "a small screen")
    assert len(text.splitlines()) == 10
    terminal.press("q")
    assert terminal.wait() == 0
    assert job.process.poll() is None


@pytest.mark.parametrize("end", ["interrupt", "terminate", "quit", "crash", "hang_up"])
def test_the_terminal_is_given_back_on_every_way_out(shared_sandbox, job, end):
    terminal = Terminal(shared_sandbox, "status", "--watch", "run")
    terminal.await_text("+ rank 1", "learners")
    assert termios.tcgetattr(terminal.tty) != terminal.before
    codes = {"interrupt": 130, "terminate": 75, "quit": -signal.SIGQUIT, "crash": -signal.SIGSEGV, "hang_up": 75}
    if end == "interrupt":
        terminal.press("\x03")
    else:
        number = {"terminate": signal.SIGTERM, "quit": signal.SIGQUIT, "crash": signal.SIGSEGV, "hang_up": signal.SIGHUP}[end]
        os.kill(terminal.pid, number)
    assert terminal.wait() == codes[end]


def test_another_coordinator_is_waited_for(shared_sandbox, job):
    terminal = Terminal(shared_sandbox, "status", "--watch", "run")
    terminal.await_text("+ rank 1", "learners")
    epoch = job.status().epoch
    (pid,) = [pid for pid, words in shared_sandbox.processes().items() if "flotilla-coordinator" in words]
    # One that stands still says nothing, and breaks no connection.
    os.kill(pid, signal.SIGSTOP)
    terminal.await_text("has not answered for", "silence")
    os.kill(pid, signal.SIGCONT)
    terminal.await_text(lambda t: "has not answered for" not in t, "its return")
    os.kill(pid, signal.SIGKILL)
    job.await_status(lambda s: s.epoch != epoch and s.state == coordinator_pb2.ACTIVE, "another coordinator")
    seen = job.status().update
    terminal.await_text(lambda t: "rank 1" in t and updates(t) > seen + 2, "more updates")
    terminal.press("q")
    assert terminal.wait() == 0


def test_where_there_is_no_terminal_it_is_plain(shared_sandbox, job):
    terminal = Terminal(shared_sandbox, "status", "run")
    pid, status = os.waitpid(terminal.pid, 0)
    terminal._read(1)
    assert os.waitstatus_to_exitcode(status) == 0 and b"\x1b" not in terminal.raw and b"rank 1" in terminal.raw


# The last: it ends the run.
def test_the_run_is_stopped_once_that_is_meant(shared_sandbox, job):
    terminal = Terminal(shared_sandbox, "status", "--watch", "run")
    terminal.await_text("+ rank 1", "learners")
    terminal.press("S")
    terminal.await_text("save a checkpoint and stop the run?", "a question")
    terminal.press("n")
    terminal.await_text("q quit", "the keys")
    assert not job.status().stop
    terminal.press("S")
    terminal.await_text("save a checkpoint and stop the run?", "a question")
    terminal.press("y")
    assert terminal.wait() == 0
    assert job.succeeds()["status"] == "stopped"
    # What was there last stays on the screen of before, in plain text.
    said = terminal.raw[terminal.raw.rfind(LEFT) + len(LEFT) :].decode()
    assert "closed" in said or "is over" in said
