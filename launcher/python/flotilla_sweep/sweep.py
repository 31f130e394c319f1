"""The sweep itself: claims trials, runs them, tells what came of them."""

import argparse
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

from flotilla_sweep import proposals, report
from flotilla_sweep.journal import Claim, Journal, JournalError, name_of, write_whole
from flotilla_sweep.members import Member, lives, out_of_reach
from flotilla_sweep.placement import make_slots
from flotilla_sweep.plans import draw_trial, plan_of
from flotilla_sweep.state import Part, State
from flotilla_sweep.trial_run import AdoptedRun, TrialRun, UnknownMetric, environment, fork, forward_of, overrides, run_name, train_command

POLL = 0.05
LOOK = 0.5  # for claims of others that were given up
EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_PREEMPTED, EXIT_INTERRUPTED = 0, 1, 2, 75, 130
OURS = {"lock", "base.textproto", "sweep.textproto", "journal.jsonl", "trials", "claims", "logs", "members", "optuna.log", "best.textproto", "front.svg"}
# What may differ when a sweep goes on: where and how wide it runs, and its words.
FREE = ("file", "text", "base", "base_path", "placement", "constant_schedule")


class Refused(Exception):
    """What is to be put right before anything starts, in one line."""


def say(message):
    print(message, file=sys.stderr, flush=True)


class Stopped(Exception):
    """Told to stop before anything was begun."""


class Sweep:
    def __init__(self, options):
        self.options = options
        self.sweep = json.loads(options.sweep)
        self.folder = pathlib.Path(options.sweep_dir)
        self.journal = Journal(self.folder)
        self.state = State(self.sweep)
        self.slots = make_slots(self.sweep["placement"])
        self.runs = {}  # by slot number
        self.told = 0  # results that were told
        self.signals = []  # what we were told
        self.looked = (0.0, -1)  # when, and at how much of the journal
        self.member = Member(self.folder / "members")

    # ---- The folder

    def open(self):
        """Finds or makes the sweep on the disk."""
        if self.sweep["method"] == "OPTUNA" and (lacks := proposals.missing(self.sweep)):
            raise Refused(lacks)
        if self.folder.exists() and not (self.folder / "journal.jsonl").exists():
            strange = sorted(name for name in os.listdir(self.folder) if name_of(name) not in OURS)
            if strange:
                raise Refused(f"{self.folder} is no sweep's folder: it has {strange[0]} in it; choose another --sweep-dir")
        if not self.has_begun():
            self.rehearse()
        for name in ("trials", "claims", "logs", "members"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.member.enter()
        if stranger := out_of_reach(self.folder / "members"):
            raise Refused(
                f"{self.folder}: the file system keeps locks to each host: {stranger} is at work there, and its lock is free here, so both would run the "
                "same trials; choose a --sweep-dir whose locks reach all hosts (NFS 4; Lustre mounted with flock)"
            )
        if self.signals:
            raise Stopped
        with self.journal.locked():
            self.refresh()
            if self.state.begun_as is None:
                self.write_words()
            else:
                self.compare(self.state.begun_as)
        self.told = len(self.state.results)
        self.plan = proposals.Proposals(self.sweep, self.folder) if self.sweep["method"] == "OPTUNA" else plan_of(self.sweep)

    def write_words(self):
        write_whole(self.folder / "base.textproto", self.sweep["base_text"])
        write_whole(self.folder / "sweep.textproto", self.sweep["text"])
        self.journal.append(event="sweep", sweep={name: value for name, value in self.sweep.items() if name not in FREE})
        self.refresh()

    def compare(self, before):
        """Goes on with what the folder has, if it is the same sweep."""
        before = before | {name: self.sweep[name] for name in FREE if name in self.sweep}
        more = before.get("trials", 0) < self.sweep["trials"] and self.sweep["method"] != "GRID" and "halving" not in before and "pbt" not in before
        scored = any(result.score is not None for result in self.state.results.values())
        for name in sorted(before.keys() | self.sweep.keys()):
            if before.get(name) == self.sweep.get(name) or (name == "trials" and more) or (name == "metric" and not scored):
                continue
            raise Refused(
                f"{self.sweep['file']}: {name} {brief(before.get(name))} when the sweep in {self.folder} began, and is not any more ({brief(self.sweep.get(name))}); "
                f"go on with it as it was (flotilla sweep {self.folder}), or choose another --sweep-dir"
            )
        if any(before.get(name) != self.sweep.get(name) for name in ("trials", "metric")):
            self.write_words()

    def has_begun(self):
        return self.folder.exists() and any(event["event"] == "begin" for event in Journal(self.folder).read())

    def rehearse(self):
        """Asks `flotilla train` whether the first trial can run. Where somebody has begun
        it meanwhile, it can, and its folder is taken."""
        plan = plan_of(self.sweep)
        trial, part = draw_trial(self.sweep, 0), Part(len(plan.budgets) - 1, 0, 0)
        run_dir = self.folder / "trials" / run_name(self.sweep, part)
        command = train_command(self.options, self.sweep, self.sweep["base_path"], overrides(self.sweep, plan, trial, part), run_dir, self.slots[0])
        checked = subprocess.run([*command, "--dry-run"], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.signals:
            raise Stopped
        if checked.returncode != 0 and not self.has_begun():
            values = " ".join(f"{field}={value}" for field, value in trial.values.items())
            lines = [line for line in checked.stderr.splitlines() if ": warning: " not in line] or ["nothing was said"]
            raise Refused(f"{self.sweep['file']}: trial 0 ({values}) cannot run: {lines[0].removeprefix('flotilla train: ')}")

    # ---- Under the lock

    def refresh(self):
        for event in self.journal.read():
            self.state.take(event)

    def free_slot(self):
        return next((slot for slot in self.slots if slot.number not in self.runs), None)

    def claim(self, slot):
        """The next run of all, or None: what has begun and was left goes first."""
        while True:
            ours = {run.part for run in self.runs.values()}
            for number, round in self.plan.due(self.state):
                for part in self.state.parts(number, round):
                    if part in self.state.results or part in ours:
                        continue
                    if run := self.try_claim(part, slot):
                        return run
            trial = self.plan.next_trial(self.state)
            if trial is None:
                return None
            self.add(trial)

    def add(self, trial):
        if trial.parent is not None:
            names = [run_name(self.sweep, Part(0, number, 0)) for number in (trial.parent, trial.number)]
            fork(self.folder, self.sweep, *names)
        self.journal.append(event="trial", trial=trial.number, values=trial.values, parent=trial.parent, round=trial.round)
        self.refresh()

    def try_claim(self, part, slot):
        name = run_name(self.sweep, part)
        claim = Claim(self.folder / "claims" / name)
        run = TrialRun(self.options, self.sweep, self.plan, self.state.trials[part.trial], part, claim, slot)
        if claim.take():
            self.begin(part)
            return run
        begun = self.state.begun.get(part)
        host = os.uname().nodename
        if begun is None or begun["host"] != host or lives(self.folder / "members" / begun["by"]):
            return None
        # Its sweep was killed and it trains on, in one of our places.
        self.begin(part)
        return AdoptedRun(run)

    def begin(self, part):
        self.journal.append(event="begin", trial=part.trial, round=part.round, seed=part.seed, by=self.member.name, host=os.uname().nodename)
        self.refresh()

    def end(self, run, result):
        part = run.part
        with self.journal.locked():
            self.refresh()
            self.journal.append(
                event="end", trial=part.trial, round=part.round, seed=part.seed, status=result.status, score=result.score,
                steps=result.steps, seconds=round(result.seconds, 3), error=result.error,
            )  # fmt: skip
            self.refresh()
            self.write_reports()

    def write_reports(self):
        report.write_best(self.state, self.sweep, self.folder)
        report.write_front(self.state, self.sweep, self.folder)

    # ---- The loop

    def run(self):
        """The exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self.stop)
        try:
            self.open()
            self.greet()
            while not self.step():
                time.sleep(POLL)
        except Stopped:
            say("flotilla sweep: told to stop before the sweep began")
            self.member.leave()
            return self.exit_code_of_signal()
        except BaseException:
            self.let_go()
            self.member.leave()
            raise
        return self.conclude()

    def stop(self, number, _):
        self.signals.append(number)

    def pass_on(self):
        """Tells our runs what we were told: a second time, they end at once."""
        for run in self.runs.values():
            for number in self.signals[run.signals :]:
                run.signal(forward_of(number))

    def greet(self):
        say(f"sweep: {self.folder}: {self.sweep['trials']} trials of {self.sweep['base']}, {len(self.state.results)} runs have ended")
        if len(self.plan.budgets) > 1:
            say(f"rounds: {', '.join(f'{budget:,}' for budget in self.plan.budgets)} {self.sweep['budget']['field']}")
            if not self.sweep["constant_schedule"]:
                say("note: optimizer.schedule follows the length of a run, which grows from round to round; CONSTANT compares best")

    def step(self):
        """Whether it is over."""
        self.pass_on()  # before a run that heard of it first is taken for lost
        for number, run in list(self.runs.items()):
            over, result = run.poll()
            if not over:
                continue
            if result is not None:
                self.end(run, result)
            run.claim.release()
            del self.runs[number]
        finished = False
        if not self.signals and self.free_slot() and self.news():
            with self.journal.locked():
                self.refresh()
                finished = self.plan.finished(self.state)
                while not finished and (slot := self.free_slot()) and (run := self.claim(slot)):
                    self.runs[slot.number] = run
                    if isinstance(run, TrialRun):
                        run.start()
            self.looked = (time.monotonic(), self.journal.offset)
        self.tell_news()
        if self.signals:
            return not self.runs
        return finished and not self.runs

    def news(self):
        """Whether there may be something to claim: rules are asked for no less."""
        when, offset = self.looked
        return self.journal.size() != offset or time.monotonic() > when + LOOK

    def tell_news(self):
        results = list(self.state.results.items())
        for at in range(self.told, len(results)):
            part, result = results[at]
            self.told = at + 1
            values = " ".join(f"{field}={value}" for field, value in self.state.trials[part.trial].values.items())
            score = "no score" if result.score is None else f"{self.sweep['metric']['name']} {report.number(result.score)}"
            why = f": {result.error}" if result.error else ""
            best = self.state.best()
            leads = "" if best is None else f"; best: trial {best}"
            say(f"{run_name(self.sweep, part)} {result.status}: {score}, {result.steps:,} steps, {result.seconds:.1f} s, {values}{why} ({at + 1} of {self.plan.total() * self.sweep['seeds']}{leads})")

    def let_go(self):
        """Ends our runs, which save: nobody would hear of them."""
        for run in self.runs.values():
            run.signal(signal.SIGTERM)

    def exit_code_of_signal(self):
        return EXIT_INTERRUPTED if self.signals[0] == signal.SIGINT else EXIT_PREEMPTED

    def conclude(self):
        with self.journal.locked():
            self.refresh()
            if isinstance(self.plan, proposals.Proposals):
                self.plan.settle(self.state)
            self.write_reports()
            finished = self.plan.finished(self.state)
        self.member.leave()
        if self.options.json:
            print(report.as_json(self.state, self.sweep, self.folder, finished), end="", flush=True)
        else:
            print(report.table(self.state, self.sweep, self.plan), end="")
            if self.state.best() is not None:
                print(f"\n{self.folder / 'best.textproto'}\n{self.folder / 'front.svg'}")
            sys.stdout.flush()
        if not finished:
            say(f"go on with: flotilla sweep {shlex.quote(str(self.folder))}")
            return self.exit_code_of_signal()
        if self.state.best() is None:
            say("flotilla sweep: no trial has a score; the table says why, and logs/ has what their launchers said")
            return EXIT_FAILED
        return EXIT_DONE


def brief(value):
    text = "was not there" if value is None else "was " + json.dumps(value)
    return text if len(text) < 200 else text[:197] + "..."


def main(arguments):
    parser = argparse.ArgumentParser(prog="flotilla_sweep", allow_abbrev=False)
    parser.add_argument("--flotilla", required=True)
    parser.add_argument("--sweep-dir", required=True)
    parser.add_argument("--sweep", required=True, help="as launcher/sweep_file.cc writes it")
    parser.add_argument("--json", action="store_true")
    try:
        return Sweep(parser.parse_args(arguments)).run()
    except Refused as refusal:
        say(f"flotilla sweep: {refusal}")
        return EXIT_REFUSED
    except (JournalError, UnknownMetric) as error:
        say(f"flotilla sweep: {error}")
        return EXIT_FAILED
    except OSError as error:
        say(f"flotilla sweep: {error.filename or ''}: {error.strerror or error}")
        return EXIT_FAILED
