"""Runs one command, bounded in time, on a few cores, and says what the machine did meanwhile."""
import contextlib
import ctypes
import dataclasses
import os
import resource
import signal
import subprocess
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 20


@dataclasses.dataclass
class Finished:
    output: str
    returncode: int
    capped: bool  # ended by us: out of time, or `until` said so
    other_cpu: float  # cores that everything else used meanwhile; well over 0: disturbed
    use: "Use" = None


def busy_seconds():
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:]]
    return (sum(v[:8]) - v[3] - v[4]) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(seconds, cores=0.3):
    """Waits until the machine has used under `cores` for 3 s; at most `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(3)
        if (busy_seconds() - before) / 3 < cores:
            return


def children_of(parent):
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as f:
                    if int(f.read().rsplit(")", 1)[1].split()[1]) == parent:
                        yield int(entry)
            except OSError:  # gone
                pass


def end_orphans():
    """Ends, by their ids, the descendants that a run left; they fall to us."""
    for _ in range(50):
        mine = list(children_of(os.getpid()))
        if not mine:
            return
        for pid in mine:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def descendants(process):
    """Of this process too: those that a run left behind fall to it."""
    try:
        tasks = os.listdir(f"/proc/{process}/task")
        below = []
        for task in tasks:
            with open(f"/proc/{process}/task/{task}/children") as f:
                below += map(int, f.read().split())
    except OSError:  # gone
        return
    for child in below:
        yield child
        yield from descendants(child)


def cpu_seconds(process):
    """With those of its children that it has waited for."""
    try:
        with open(f"/proc/{process}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:15])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def resident_bytes(process):
    """Of memory that several share, its share (PSS)."""
    try:
        with open(f"/proc/{process}/smaps_rollup") as f:
            return 1024 * next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


class Use:
    """What a run uses of processors and memory. Looks once a second, at memory, which takes longer, after 2, 4, 8..."""

    EVERY = 1.0

    def __init__(self):
        self.samples = []  # (time.time(), CPU seconds so far)
        self.bytes = 0  # the most that were resident
        self._began = time.monotonic()
        self._due, self._memory_due = 0.0, 2.0

    def look(self):
        seconds = time.monotonic() - self._began
        if seconds < self._due:
            return
        self._due = seconds + self.EVERY
        processes = list(descendants(os.getpid()))
        self.samples.append((time.time(), sum(map(cpu_seconds, processes))))
        if seconds >= self._memory_due:
            self._memory_due = 2 * seconds
            self.bytes = max(self.bytes, sum(map(resident_bytes, processes)))

    def cpu_between(self, began, ended):
        """CPU seconds a second from `began` to `ended`, of time.time(); None where too little was seen."""
        seen = [sample for sample in self.samples if began <= sample[0] <= ended]
        if len(seen) < 3:
            return None
        (first, before), (last, after) = seen[0], seen[-1]
        return (after - before) / (last - first)


def own_seconds():
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


@dataclasses.dataclass
class Others:
    cores: float = 0.0  # that everything but our children used


@contextlib.contextmanager
def others():
    """What everything else does to the machine meanwhile. Children have to be waited for inside."""
    found, busy, own, began = Others(), busy_seconds(), own_seconds(), time.monotonic()
    yield found
    used = busy_seconds() - busy - (own_seconds() - own)
    found.cores = max(0.0, used / (time.monotonic() - began))


def run(command, env, cap_s, cores, until=lambda pid: False, poll_s=0.25):
    """Runs `command` in a folder of its own on the first `cores` cores.

    After cap_s, or once `until(its process id)` is true, it is asked to end (SIGTERM), and killed
    GRACE_S later.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    with tempfile.TemporaryDirectory(prefix="bench.", ignore_cleanup_errors=True) as folder:
        log = os.path.join(folder, "output.log")
        use = Use()
        with others() as other, open(log, "wb") as out:
            child = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=out,
                                     stderr=subprocess.STDOUT, start_new_session=True,
                                     preexec_fn=lambda: os.sched_setaffinity(0, allowed))
            began, capped = time.monotonic(), False
            while not capped:
                try:
                    child.wait(poll_s)
                    break
                except subprocess.TimeoutExpired:
                    use.look()
                    capped = time.monotonic() - began > cap_s or until(child.pid)
            if capped:
                child.terminate()
                try:
                    child.wait(GRACE_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
            end_orphans()
        with open(log, errors="replace") as f:
            return Finished(f.read(), child.returncode, capped, other.cores, use)
