"""flotilla.train: a run, started and watched from Python."""

import contextlib
import functools
import os
import pathlib
import queue
import re
import signal
import sys
import threading
import time

from flotilla import display, launch, own_env
from flotilla.checkpoint import WEIGHTS
from flotilla.errors import Error
from flotilla.flags import Flags
from flotilla.given_rank import count_processes
from flotilla.overrides import assignments
from flotilla.run import Run

_TICK = 0.1  # seconds
_TOLD = 12  # lines of an error
_PREEMPTED = 75
_ENDING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)  # for which the program saves, too

_taken = set()  # of these, by a run that goes on


def _give_back():
    while _taken:
        signal.signal(_taken.pop(), signal.SIG_DFL)


# What is forked meanwhile ends by them as it did before.
os.register_at_fork(after_in_child=_give_back)


class Training:
    """A run that has ended. `run_dir` is its folder, `run` a flotilla.Run."""

    def __init__(self, run_dir, env):
        self.run_dir = run_dir
        self.run = Run(run_dir)
        self._env = env

    @property
    def summary(self):
        """summary.json."""
        return self.run.summary or {}

    @property
    def status(self):
        """How it ended: "solved", "completed", "stopped" or "preempted"."""
        return self.summary.get("status", "unknown")

    @functools.cached_property
    def metrics(self):
        """As Run.metrics()."""
        return self.run.metrics()

    @functools.cached_property
    def policy(self):
        """The policy of its newest checkpoint, as flotilla.load has it. Needs torch."""
        env, close = self._env.example(self.run.config.env.options)
        try:
            return self.run.load(env=env)
        finally:
            close()

    def __repr__(self):
        return f"<flotilla.Training {os.fspath(self.run_dir)}: {self.status}>"


def train(config, env, *, steps, seed, learners, run_dir, resume, overrides, in_process, flags, progress, sections):
    """As flotilla.train."""
    if progress not in ("auto", "plain", "none"):
        raise Error(f'progress is {progress!r}; want "auto", "plain" or "none"')
    if learners is not None and (isinstance(learners, bool) or not isinstance(learners, int) or learners < 1):
        raise Error(f"learners is {learners!r}; want a whole number from 1 on")
    if not isinstance(config, (str, os.PathLike)):
        raise Error(f"config is a {type(config).__name__}; want a configuration's name or file, as in flotilla.train('cartpole_ppo')")
    config = os.fspath(config)
    name = pathlib.Path(config).name.removesuffix(".textproto")
    # The last word counts: the caller's own.
    sets = assignments({path: value for path, value in (("total_env_steps", steps), ("seed", seed)) if value is not None})
    sets += assignments(sections) + assignments(overrides or {})
    given = Flags(flags)
    dry = given.switch("--dry-run")
    served = own_env.of(env, in_process, config, sets, given)
    # Each has the one learner that its rank is of.
    processes = count_processes(os.environ) if learners is None and not given.name_topology else 0
    if processes > 1 and isinstance(served, own_env.Here):
        raise Error(f"{processes} processes train together, and what steps in this one plays for it alone; give what makes one")
    words = ["train", config, "--progress=none"]
    if resume == "latest":  # the program's word for it
        resume = True
    if resume:
        words.append("--resume=latest" if resume is True else f"--resume={os.fspath(resume)}")
    if run_dir is not None:
        folder = pathlib.Path(run_dir)
    elif resume is True:
        folder = _newest_folder(name)
    else:
        its_own = _run_of(resume) if resume else None
        if its_own and _begun(its_own):
            folder = its_own
        elif processes > 1:
            raise Error(f"{processes} processes share this run's folder; name it with run_dir, where all of them see it")
        else:
            folder = _new_folder(name)
    watch = None
    try:
        had = _learners_of(folder if resume is True else resume) if resume and learners is None and not processes else None
        learners = learners or had or 1
        if had is None and not processes:
            words.append(f"--nproc-per-node={learners}")
        sets = assignments(served.fields(folder, learners)) + sets
        words.append(f"--run-dir={folder}")
        words += [f"--set={text}" for text in sets] + given.words
        # The plan is what a dry run is for.
        watch = _Watch(words, folder, served, display.Words(name) if dry else display.make(progress, name))
        watch.run()
    finally:
        served.forget(folder)
        if run_dir is None and not _begun(folder):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()
        if watch and watch.ended_by:
            _end_by(watch.ended_by)
    return None if dry else Training(folder, served)


def _end_by(number):
    """As it would have ended at once, had nothing been saved first."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os.kill(os.getpid(), number)


def _begun(folder):
    return (folder / "config.textproto").exists()


def _new_folder(name):
    """As `flotilla train` calls one that nobody named: ours alone."""
    stem = pathlib.Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, n = stem, 1
    while True:
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            n += 1
            folder = stem.with_name(f"{stem.name}-{n}")
        except OSError as error:
            raise Error(f"cannot make the run's folder {folder}: {error.strerror}; name another with run_dir") from None


def _newest_folder(name):
    """The one that `flotilla train --resume` goes on with where none is named."""
    begun = []
    its_own = re.compile(rf"{re.escape(name)}-(\d{{8}}-\d{{6}}(-\d+)?|slurm\d+)")  # of "ppo-large" it is not "ppo"'s
    for folder in pathlib.Path("runs").glob("*"):
        if not its_own.fullmatch(folder.name):
            continue
        with contextlib.suppress(OSError):
            begun.append(((folder / "config.textproto").stat().st_mtime_ns, folder))
    if not begun:
        raise Error(f'resume: there is no run "runs/{name}-DATE-TIME" to go on with; name its folder with run_dir')
    return max(begun)[1]


def _run_of(path):
    """The folder of the run that is at `path`, or whose checkpoint is."""
    folder = pathlib.Path(os.path.abspath(path))
    return folder.parent.parent if (folder / WEIGHTS).exists() else folder


def _learners_of(path):
    """How many learners a node had of the run that is at `path`, or whose checkpoint is. The program keeps to that where
    it is told no number; None where no run has begun, of which the program would choose one itself."""
    try:
        found = re.search(r"learners_per_node:\s*(\d+)", (_run_of(path) / "topology.textproto").read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


class _Watch:
    """A run from its start to its end, in this thread."""

    def __init__(self, words, folder, served, shown):
        self._words, self._folder, self._served, self._shown = words, folder, served, shown
        self._interrupts = 0
        self.ended_by = 0  # the signal that is to end this process, now that the run has
        self._failure = ""  # of the environment, in this process
        self._lines = queue.SimpleQueue()
        self._progress = display.Progress(folder / "metrics.jsonl")
        self._total = 0

    def run(self):
        """Raises Error if it fails, KeyboardInterrupt, once it has stopped, if it was interrupted, and neither where a
        signal is to end this process."""
        with self._interruptible():
            self._launch = launch.Launch(self._words, lambda *line: self._lines.put(line))
            stop = lambda: None  # noqa: E731
            try:
                stop = self._served.serve(self._folder)
                code = self._follow()
            finally:  # whatever happened here, nothing is left running
                self._launch.end()
                stop()
        self._show(last=True)
        if self.ended_by:
            if code not in (0, _PREEMPTED) and not self._interrupts:
                self._say(self._failure or self._why(code))
            return
        if self._interrupts:
            folder = os.fspath(self._folder)
            raise KeyboardInterrupt(f"the run in {folder} was stopped; resume=True, run_dir={folder!r} goes on with it")
        if self._failure:
            raise Error(f"the environment cannot be played: {self._failure}")
        if code not in (0, _PREEMPTED):
            raise Error(self._why(code))
        for line in self._launch.complained:
            if not _is_warning(line):
                self._say(line)

    @contextlib.contextmanager
    def _interruptible(self):
        """Counts interrupts, instead of raising at any place, and notes the signal that would have ended this process,
        and the run with it. One that the caller has a handler for, or ignores, stays the caller's."""
        if threading.current_thread() is not threading.main_thread():
            yield  # where none come
            return

        def count(number, frame):
            self._interrupts += 1

        def note(number, frame):
            self.ended_by = self.ended_by or number

        before = signal.signal(signal.SIGINT, count)
        try:
            for number in _ENDING:
                if signal.getsignal(number) == signal.SIG_DFL:
                    _taken.add(number)
                    signal.signal(number, note)
            yield
        finally:
            _give_back()
            signal.signal(signal.SIGINT, before)

    def _follow(self):
        """Until the program has ended. Its exit code."""
        forwarded, ending = 0, False
        while (code := self._launch.wait(_TICK)) is None:
            while forwarded < self._interrupts:
                forwarded += 1
                self._launch.interrupt()
                if forwarded == 1:
                    self._say("stopping, once a checkpoint is saved; interrupt again not to wait for it")
            if self.ended_by and not ending:
                ending = True
                self._launch.send(self.ended_by)
                self._say(f"{signal.Signals(self.ended_by).name}: ending, once a checkpoint is saved")
            if not self._failure and (why := self._served.failure()):
                self._failure = why
                self._launch.interrupt()
            self._show()
        return code

    def _say(self, line):
        with self._shown_at_all():
            self._shown.say(line)

    @contextlib.contextmanager
    def _shown_at_all(self):
        """The terminal may be gone, which SIGHUP tells: that is no reason not to save."""
        try:
            yield
        except OSError:
            if not self.ended_by:
                raise

    def _show(self, last=False):
        with self._shown_at_all():
            self._show_news(last)

    def _show_news(self, last):
        while not self._lines.empty():
            complaint, line = self._lines.get()
            if _is_warning(line) if complaint else line.strip():
                self._shown.say(line)
        self._progress.poll()
        if not self._total and self._progress.row:
            with contextlib.suppress(Exception):  # without it, there is no bar
                self._total = self._run_config().total_env_steps
        if self._progress.row or not last:
            self._shown.show(self._progress, self._total, last)

    def _run_config(self):
        return Run(self._folder).config

    def _why(self, code):
        told = [line for line in self._launch.complained if line.strip() and not _is_warning(line)]
        told = told or [line for line in self._launch.said if line.strip()]
        told = [self._served.in_short(line.removeprefix("flotilla train: ")) for line in told[-_TOLD:]]
        if told and code > 0 and not _begun(self._folder):
            return "\n".join(told)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return "\n".join([f"the run in {self._folder} {how}", *(told or ["and said nothing"])])


def _is_warning(line):
    return line.startswith("flotilla train: warning:")
