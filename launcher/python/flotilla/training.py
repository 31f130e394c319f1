"""flotilla.train: a run, started and watched from Python."""

import contextlib
import functools
import os
import pathlib
import queue
import signal
import threading
import time

from flotilla import display, launch, own_env
from flotilla.errors import Error
from flotilla.overrides import assignments
from flotilla.run import Run

_TICK = 0.1  # seconds
_TOLD = 12  # lines of an error
_PREEMPTED = 75


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
        env, close = self._env.example()
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
    if isinstance(learners, bool) or not isinstance(learners, int) or learners < 1:
        raise Error(f"learners is {learners!r}; want a whole number from 1 on")
    if not isinstance(config, (str, os.PathLike)):
        raise Error(f"config is a {type(config).__name__}; want a configuration's name or file, as in flotilla.train('cartpole_ppo')")
    config = os.fspath(config)
    name = pathlib.Path(config).name.removesuffix(".textproto")
    served = own_env.of(env, in_process)
    words = ["train", config, f"--nproc-per-node={learners}", "--progress=none"]
    if resume:
        words.append("--resume=latest" if resume is True else f"--resume={os.fspath(resume)}")
    # The last word counts: the caller's own.
    sets = assignments({path: value for path, value in (("total_env_steps", steps), ("seed", seed)) if value is not None})
    sets += assignments(sections) + assignments(overrides or {})
    folder = _new_folder(name) if run_dir is None else pathlib.Path(run_dir)
    try:
        sets = assignments(served.fields(folder, learners)) + sets
        words.append(f"--run-dir={folder}")
        words += [f"--set={text}" for text in sets] + [str(flag) for flag in flags]
        _Watch(words, folder, served, display.make(progress, name)).run()
    finally:
        if not _begun(folder):
            served.forget(folder)
            if run_dir is None:
                with contextlib.suppress(OSError):  # not empty
                    folder.rmdir()
    return Training(folder, served)


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


class _Watch:
    """A run from its start to its end, in this thread."""

    def __init__(self, words, folder, served, shown):
        self._words, self._folder, self._served, self._shown = words, folder, served, shown
        self._interrupts = 0
        self._lines = queue.SimpleQueue()
        self._progress = display.Progress(folder / "metrics.jsonl")
        self._total = 0

    def run(self):
        """Raises Error if it fails, KeyboardInterrupt, once it has stopped, if it was interrupted."""
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
        if self._interrupts:
            raise KeyboardInterrupt(f"the run in {self._folder} was stopped; resume=True goes on with it")
        if code not in (0, _PREEMPTED):
            raise Error(self._why(code))
        for line in self._launch.complained:
            if not _is_warning(line):
                self._shown.say(line)

    @contextlib.contextmanager
    def _interruptible(self):
        """Counts interrupts, instead of raising at any place."""
        if threading.current_thread() is not threading.main_thread():
            yield  # where none come
            return

        def count(number, frame):
            self._interrupts += 1

        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _follow(self):
        """Until the program has ended. Its exit code."""
        forwarded = 0
        while (code := self._launch.wait(_TICK)) is None:
            while forwarded < self._interrupts:
                forwarded += 1
                self._launch.interrupt()
                if forwarded == 1:
                    self._shown.say("stopping, once a checkpoint is saved; interrupt again not to wait for it")
            self._show()
        return code

    def _show(self, last=False):
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
