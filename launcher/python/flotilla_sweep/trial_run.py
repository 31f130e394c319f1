"""One run of a trial: `flotilla train` in the background, and what came of it."""

import collections
import contextlib
import difflib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from flotilla_sweep.journal import named, sync_folder
from flotilla_sweep.state import Result

MOST_ATTEMPTS = 3  # of a run that somebody else ends
METRICS_TAIL = 4 << 20  # of metrics.jsonl, which is read first

# What a run may lack though its like have it: see why_absent.
OF_EPISODES = ("charts/episodic_return", "charts/episodic_length")
OF_EVALUATIONS = ("eval/mean_return", "eval/mean_length", "eval/update")
OF_AGENTS = "agents/return_([0-9]+|sum)"
OF_HOSTS = "system/(cpu_percent|memory_bytes|gpu_percent|gpu_memory_bytes)(/rank_[0-9]+)?"


class UnknownMetric(Exception):
    """The metric is none that trials have, in one line. `result` is the run's, without it."""


def run_name(sweep, part):
    seed = f"-{part.seed + 1}" if sweep["seeds"] > 1 else ""
    return f"{part.trial:04d}{seed}"


def overrides(sweep, plan, trial, part):
    """What the run overrides in the base, as --set takes it."""
    sets = list(sweep["set"])
    sets.append(f"{sweep['budget']['field']}={plan.budgets[part.round]}")
    sets += [f"{field}={value}" for field, value in trial.values.items()]
    if sweep["seeds"] > 1:
        sets.append(f"seed={sweep['base_seed'] + part.seed}")
    return sets


def environment():
    """What a run sees of ours: a job of Slurm's is the sweep's, to put back into the queue."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}


def train_command(options, sweep, base, sets, run_dir, slot):
    words = [options.flotilla, "train", str(base), f"--run-dir={run_dir}", "--standalone", f"--nproc-per-node={sweep['placement']['learners']}"]
    if slot.gpus:
        words.append("--device-ids=" + ",".join(map(str, slot.gpus)))
    return words + [f"--set={text}" for text in sets]


class TrialRun:
    """A run that this process has claimed. `claim` goes to the run's processes too, so
    that nobody begins it again before the last of them is gone."""

    def __init__(self, options, sweep, plan, trial, part, claim, slot):
        self.options, self.sweep, self.plan, self.trial, self.part = options, sweep, plan, trial, part
        self.claim, self.slot = claim, slot
        self.folder = pathlib.Path(options.sweep_dir)
        self.name = run_name(sweep, part)
        self.run_dir = self.folder / "trials" / self.name
        self.log = self.folder / "logs" / f"{self.name}.log"
        self.attempts = 0
        self.process = None
        self.signals = 0  # that it was sent

    def start(self):
        sets = overrides(self.sweep, self.plan, self.trial, self.part)
        command = train_command(self.options, self.sweep, self.folder / "base.textproto", sets, self.run_dir, self.slot)
        # What has begun goes on, what has ended says so at once.
        command += ["--resume=latest", "--progress=none"]
        usable = os.sched_getaffinity(0)
        with open(self.log, "ab") as log:
            # Of this thread, and what it starts. Who was adopted may have had others' cores.
            os.sched_setaffinity(0, usable.intersection(self.slot.cores) or usable)
            try:
                # A group of its own: Ctrl-C is ours to pass on.
                with named(command[0]):
                    self.process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                        env=environment(), pass_fds=[claim.descriptor for claim in (self.claim, *self.slot.claims)],
                    )  # fmt: skip
            finally:
                os.sched_setaffinity(0, usable)
        self.attempts += 1

    def signal(self, number):
        """Whether it was told, or is over."""
        self.signals += 1
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
        return True

    def poll(self):
        """(whether it is over, its result; None if it was saved and is to go on)."""
        if self.process is None:  # it could not be started
            if self.signals:
                return True, None
            self.start()
        code = self.process.poll()
        if code is None:
            return False, None
        if code == 0:
            return True, self.result()
        if code in (1, 2):
            summary = read_summary(self.run_dir) if code == 1 else {}
            result = Result("refused" if code == 2 else "failed", **size_of(summary), error=last_line(self.log))
            result.verdict = code == 1 and is_verdict(f"{result.error} {summary.get('error')}")
            return True, result
        if self.signals:
            return True, None
        if self.attempts < MOST_ATTEMPTS:
            self.start()
            return False, None
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
        return True, Result("failed", error=f"it was ended from outside {MOST_ATTEMPTS} times, the last time with {why}")

    def result(self):
        summary = read_summary(self.run_dir)
        result = Result(str(summary.get("status", "unknown")), **size_of(summary))
        try:
            result.score, result.error = metric_of(self.sweep["metric"], self.run_dir, summary)
        except UnknownMetric as unknown:
            result.error = str(unknown)
            unknown.result = result
            raise
        return result


class AdoptedRun:
    """A run of a sweep process that is no more, which trains on: we wait for its end,
    and then for what `flotilla train --resume` makes of it."""

    def __init__(self, run):
        self.run = run
        self.part, self.slot, self.name = run.part, run.slot, run.name
        self.stopping = False

    def poll(self):
        if self.run.process is None:
            if not self.run.claim.take():
                return False, None
            if self.stopping:
                return True, None
            if not self.slot.take():  # somebody was faster
                return False, None
            self.run.start()
        return self.run.poll()

    def signal(self, number):
        """Whether it was told."""
        if self.run.process is not None:
            return self.run.signal(number)
        self.stopping = True
        pid = launcher_of(self.run.run_dir)
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        self.run.signals += 1
        return True

    @property
    def claim(self):
        return self.run.claim

    @property
    def signals(self):
        return self.run.signals


def launcher_of(run_dir):
    """The process on this host that holds a run's folder; None if there is none."""
    try:
        words = (run_dir / ".lock").read_text().split()
        pid = int(words[1])
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        (named,) = [word.removeprefix(b"--run-dir=") for word in command if word.startswith(b"--run-dir=")]
        # As it was spelled there.
        same = os.path.samefile(os.path.join(f"/proc/{pid}/cwd", os.fsdecode(named)), run_dir)
    except (OSError, ValueError, IndexError):
        return None
    return pid if same and words[3:] == [os.uname().nodename] else None


def last_line(log):
    """What a launcher said last that is no continuation of it."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith("flotilla train: ") and line != "flotilla train: the run failed"]
    failed = [after for line, after in zip(lines, lines[1:]) if line == "flotilla train: the run failed"]
    return ((failed or told or [line for line in lines if line] or ["nothing was said"])[-1])[:600]


def is_verdict(error):
    """Whether a run failed of what it was told to try: its numbers went out of range
    (learner/algo/gradient_step.cc, learner/rollout/rollout_numbers.cc)."""
    return re.search(r"\bfinite\b", error) is not None


def read_summary(run_dir):
    try:
        summary = json.loads((run_dir / "summary.json").read_text())
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}


def size_of(summary):
    return {"steps": int(finite(summary.get("global_steps")) or 0), "seconds": finite(summary.get("wall_seconds")) or 0.0}


def finite(value):
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def metric_rows(run_dir, most):
    """Those of the file's last `most` bytes, one at a time: there may be many."""
    with contextlib.suppress(OSError), open(run_dir / "metrics.jsonl", "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        if size > most:
            file.readline()  # the end of one
        for line in file:
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    yield row


def read_metric(name, lines, run_dir, most):
    """(names of metrics that there are, or None if there is no row; the newest `lines`
    finite values of `name`; the newest of all)."""
    there, values, newest = None, collections.deque(maxlen=lines), None
    for row in metric_rows(run_dir, most):
        there = set() if there is None else there
        there.update(known for known in row if "/" in known)
        newest = row.get(name, newest)
        if (value := finite(row.get(name))) is not None:
            values.append(value)
    return there, values, newest


def why_absent(name, there):
    """Why a run that has the metrics `there` lacks another that its like may have; "" if
    none has it (learner/training: run_metrics.cc, evaluation_rounds.cc, self_play.cc,
    system_usage.h)."""
    if name in OF_EPISODES or name.startswith("metrics/"):
        return "" if OF_EPISODES[0] in there else "no episode has ended"
    if re.fullmatch(OF_AGENTS, name):
        return "" if "agents/return_sum" in there else "an agent has ended no episode"
    if name.startswith("eval/"):
        # Environments have metrics of their own, whose names only an evaluation tells.
        typo = name not in OF_EVALUATIONS and difflib.get_close_matches(name[5:], [known[5:] for known in OF_EVALUATIONS], 1, 0.8)
        return "" if typo or OF_EVALUATIONS[0] in there else "nothing was evaluated"
    if name == "selfplay/win_rate":
        return "no game has ended" if "selfplay/games" in there else ""
    return "its host did not tell" if re.fullmatch(OF_HOSTS, name) else ""


def metric_of(metric, run_dir, summary):
    """(the run's number, ""), or (None, why there is no finite one). Errors: UnknownMetric."""
    name = metric["name"]
    none = (None, f"{name} has no finite value")
    if "/" not in name:
        value = finite(summary.get("eval_mean_return" if name == "score" else name))
        if name == "score" and value is None:
            value = finite(summary.get("mean_return"))
        return none if value is None else (value, "")
    there, values, newest = read_metric(name, metric["lines"], run_dir, METRICS_TAIL)
    if len(values) < metric["lines"]:  # they may lie further back, as those of evaluations do
        there, values, newest = read_metric(name, metric["lines"], run_dir, sys.maxsize)
    if there is None:
        return none
    if name not in there:
        if why := why_absent(name, there):
            return None, f"there is no {name}: {why}"
        near = difflib.get_close_matches(name, sorted(there.union(OF_EPISODES, OF_EVALUATIONS)), 1, 0.5)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise UnknownMetric(f'there is no metric "{name}" in {run_dir / "metrics.jsonl"}{hint}')
    # NaN at the end is no score, whatever was before.
    if not values or newest is None:
        return none
    return math.fsum(values) / len(values), ""


def fork(folder, sweep, parent, child):
    """Makes the folder of a run that goes on from the newest checkpoint of another.
    `parent` and `child` are names of runs. What was begun and not finished is made
    anew."""
    source, target = folder / "trials" / parent, folder / "trials" / child
    if target.exists():
        return
    making = folder / "trials" / f".{child}"
    shutil.rmtree(making, ignore_errors=True)
    try:
        with named(making):
            copy_run(source, making)
            os.rename(making, target)
            sync_folder(target.parent)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)  # a disk that is full has room for others again
        raise


def copy_run(source, making):
    """What a run goes on from, on the disk."""
    checkpoint = (source / "checkpoints" / "latest").resolve(strict=True)
    (making / "checkpoints").mkdir(parents=True)
    copy_tree(checkpoint, making / "checkpoints" / checkpoint.name)
    (making / "checkpoints" / "latest").symlink_to(checkpoint.name)
    for replay in replays_of(checkpoint):
        copy_tree(replay, making / "checkpoints" / replay.parent.name / replay.name)
    for name in ("config.textproto", "topology.textproto", "network.pt", "network.so", "algorithm.so"):
        if (source / name).exists():
            shutil.copy2(source / name, making / name)
    for path in making.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def copy_tree(source, target):
    """As shutil.copytree, whose errors do not tell a full disk from others."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        (copy_tree if path.is_dir() else shutil.copy2)(path, target / path.name)


def replays_of(checkpoint):
    """The folders of each learner's replay that a run which goes on from it reads, if
    there are any (learner/checkpoint/replay_files.h): the newest that is no later."""
    newest = {}  # by learner: (step, folder)
    for replay in checkpoint.parent.glob("replay_[0-9]*/rank_*"):
        step = number_of(replay.parent.name)
        if step <= number_of(checkpoint.name):
            newest[replay.name] = max(newest.get(replay.name, (-1, None)), (step, replay))
    return [replay for _, replay in newest.values()]


def number_of(name):
    return int(name.rpartition("_")[2])


def forward_of(number):
    """What a run is told where we were told `number`."""
    return number if number in (signal.SIGINT, signal.SIGTERM) else signal.SIGTERM
