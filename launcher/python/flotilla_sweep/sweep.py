"""The sweep itself: claims trials, runs them, tells what came of them."""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

from flotilla_sweep import proposals, report
from flotilla_sweep.journal import PASSING, Claim, Journal, JournalError, name_of, named, write_whole
from flotilla_sweep.members import Member, lives, out_of_reach
from flotilla_sweep.placement import make_slot, make_slots
from flotilla_sweep.plans import draw_trial, plan_of
from flotilla_sweep.state import Part, State
from flotilla_sweep.trial_run import AdoptedRun, TrialRun, UnknownMetric, environment, fork, forward_of, overrides, run_name, train_command

POLL = 0.05
LOOK = 0.5  # for claims of others that were given up
PAUSE = 1.0  # before what could not be written or started is tried again; more than LOOK
MOST_FAILURES = 3  # in a row on one launcher: that is the machine, not the values
EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_PREEMPTED, EXIT_INTERRUPTED = 0, 1, 2, 75, 130
OURS = {"lock", "base.textproto", "sweep.textproto", "journal.jsonl", "trials", "claims", "logs", "members", "optuna.log", "best.textproto", "front.svg"}
# What may differ when a sweep goes on: where and how wide it runs, and its words.
FREE = ("file", "text", "base", "base_path", "placement", "constant_schedule")


class Refused(Exception):
    """What is to be put right before anything starts, in one line."""


def say(message):
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno not in PASSING:  # it may go to the disk that is full
            raise


class Stopped(Exception):
    """Told to stop before anything was begun."""


class Sweep:
    def __init__(self, options):
        self.options = options
        self.sweep = json.loads(options.sweep)
        self.folder = pathlib.Path(options.sweep_dir)
        self.journal = Journal(self.folder)
        self.state = State(self.sweep)
        self.slots = make_slots(self.sweep["placement"], claims=self.folder / "claims")
        self.runs = {}  # by part
        self.over = {}  # results of those that are over, until they are written
        self.paused = 0.0  # until when, where something could not be written or started
        self.put_off = set()  # what was said of that
        self.told = 0  # results that were told
        self.failures = []  # errors, since something succeeded
        self.repeated = 0  # of them, of what had failed before
        self.waits = False  # for a place, and has said so
        self.at_work = Claim(self.folder / "claims" / "launchers")  # all of them hold it
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
        new = not (self.folder / "journal.jsonl").exists()
        if new:
            self.rehearse()
        for name in ("trials", "claims", "logs", "members"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not self.member.enter(lambda: self.signals):
            raise Stopped
        if stranger := out_of_reach(self.folder / "members", lambda: self.signals):
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
        self.plan = proposals.Proposals(self.sweep, self.folder) if self.sweep["method"] == "OPTUNA" else plan_of(self.sweep)
        # A host that cannot run trials is not to end them all.
        if not new and (self.state.failed_for_now() or not self.plan.finished(self.state)):
            self.rehearse()
        with self.journal.locked():
            self.refresh()
            self.take_back()
        self.told = len(self.state.results)

    def take_back(self):
        """What failed is to run again, where this launcher is the first at work: it was
        started anew, and may have been put right."""
        if self.at_work.take():
            failed = self.state.failed_for_now()
            for part in failed:
                self.begin(part, self.slots[0], again=True)
            if failed:
                names = [run_name(self.sweep, part) for part in failed]
                names[8:] = [f"{len(names) - 8} more"] if len(names) > 8 else []
                say(f"sweep: {', '.join(names)} failed, and {'are' if len(failed) > 1 else 'is'} tried again")
        self.at_work.share()

    def write_words(self):
        write_whole(self.folder / "base.textproto", self.sweep["base_text"])
        write_whole(self.folder / "sweep.textproto", self.sweep["text"])
        self.journal.append(event="sweep", sweep={name: value for name, value in self.sweep.items() if name not in FREE})
        self.refresh()

    def compare(self, before):
        """Goes on with what the folder has, if it is the same sweep."""
        before = before | {name: self.sweep[name] for name in FREE if name in self.sweep}
        more = before.get("trials", 0) < self.sweep["trials"] and self.sweep["method"] != "GRID" and "halving" not in before and "pbt" not in before
        goal = self.sweep["metric"]["goal"]
        was = before.get("metric", {}).get("goal", goal)
        if was != goal and (self.folder / "optuna.log").exists():
            raise Refused(f"{self.sweep['file']}: metric.goal is {goal}, and Optuna proposes what is to {was} in {self.folder}/optuna.log, for good; choose another --sweep-dir")
        for name in sorted(before.keys() | self.sweep.keys()):
            if before.get(name) == self.sweep.get(name) or (name == "trials" and more) or (name == "metric" and not self.state.scored()):
                continue
            raise Refused(
                f"{self.sweep['file']}: {name} was {brief(before.get(name))} when the sweep in {self.folder} began, and is {brief(self.sweep.get(name))} now; "
                f"go on with it as it was ({self.line()}), or choose another --sweep-dir"
            )
        if any(before.get(name) != self.sweep.get(name) for name in ("trials", "metric")):
            self.write_words()

    def line(self):
        """That goes on."""
        return f"flotilla sweep {shlex.quote(str(self.folder))}"

    def rehearse(self, slot=None):
        """Asks `flotilla train` whether the first trial can run here; in a folder that
        nobody makes, for its own may be there."""
        if self.signals:
            raise Stopped
        plan = plan_of(self.sweep)
        trial, part = draw_trial(self.sweep, 0), Part(len(plan.budgets) - 1, 0, 0)
        run_dir = self.folder / "trials" / "rehearsal"
        sets = overrides(self.sweep, plan, trial, part)
        command = train_command(self.options, self.sweep, self.sweep["base_path"], sets, run_dir, slot or self.slots[0])
        with named(command[0]):
            checked = subprocess.run([*command, "--dry-run"], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.signals:
            raise Stopped
        if checked.returncode != 0:
            values = " ".join(f"{field}={value}" for field, value in trial.values.items())
            lines = [line for line in checked.stderr.splitlines() if ": warning: " not in line] or ["nothing was said"]
            raise Refused(f"{self.sweep['file']}: trial 0 ({values}) cannot run: {lines[0].removeprefix('flotilla train: ')}")

    # ---- Under the lock

    def refresh(self):
        for event in self.journal.read():
            self.state.take(event)

    def free_slots(self):
        taken = [run.slot for run in self.runs.values()]
        return [slot for slot in self.slots if slot not in taken] if len(taken) < len(self.slots) else []

    def due(self):
        """Parts that are to run now and are none of our runs."""
        parts = [part for number, round in self.plan.due(self.state) for part in self.state.parts(number, round)]
        return [part for part in parts if part not in self.state.results and part not in self.runs]

    def claim(self):
        """The next run of all, or None: what trains on alone goes first, for it has its
        place, then what has begun and was left."""
        for part in self.due():
            if run := self.adopt(part):
                return run
        free = self.free_slots()
        slot = next((slot for slot in free if slot.take()), None)
        if free and slot is None:
            self.wait()
        if slot is None:
            return None
        run = None
        try:
            run = self.begin_in(slot)
        finally:
            if run is None:
                slot.release()
        return run

    def begin_in(self, slot):
        while True:
            for part in self.due():
                run = self.make_run(part, slot)
                if run.claim.take():
                    try:
                        self.begin(part, slot)
                    except OSError:
                        run.claim.release()  # whoever can write it may have it
                        raise
                    return run
            trial = self.plan.next_trial(self.state)
            if trial is None:
                return None
            self.add(trial)

    def wait(self):
        if self.waits or self.runs:
            return
        self.waits = True
        what = " and ".join(what for what in ("cores", "gpus") if self.sweep["placement"][what])
        say(f"sweep: other launchers on this host have the {what} that placement gives a trial: this one waits for them; for more at a time, give each launcher its own (taskset, CUDA_VISIBLE_DEVICES), or a trial fewer")

    def add(self, trial):
        if trial.parent is not None:
            names = [run_name(self.sweep, Part(0, number, 0)) for number in (trial.parent, trial.number)]
            fork(self.folder, self.sweep, *names)
        self.journal.append(event="trial", trial=trial.number, values=trial.values, parent=trial.parent, round=trial.round)
        self.refresh()

    def make_run(self, part, slot):
        claim = Claim(self.folder / "claims" / run_name(self.sweep, part))
        return TrialRun(self.options, self.sweep, self.plan, self.state.trials[part.trial], part, claim, slot)

    def adopt(self, part):
        """A run that trains on here though its sweep was killed; None if it is no such."""
        begun = self.state.begun.get(part)
        if begun is None or begun["host"] != os.uname().nodename or lives(self.folder / "members" / begun["by"]):
            return None
        slot = self.place_of(begun)
        if slot is None:
            return None
        run = self.make_run(part, slot)
        if run.claim.take():  # it has ended
            run.claim.release()
            return None
        self.begin(part, slot)
        return AdoptedRun(run)

    def place_of(self, begun):
        """The slot in which a run has begun. It has its cores and GPUs to itself still:
        whoever wants them finds their claims taken."""
        free = self.free_slots()
        cores, gpus = begun.get("cores"), begun.get("gpus")
        if not isinstance(cores, list) or not isinstance(gpus, list):  # nobody wrote it
            return free[0] if free else None
        same = [slot for slot in free if (slot.cores, slot.gpus) == (cores, gpus)]
        return same[0] if same else make_slot(self.sweep["placement"], cores, gpus, self.folder / "claims")

    def begin(self, part, slot, **more):
        """`again`: though it had ended; who does not know the word takes it for begun."""
        self.journal.append(
            event="begin", trial=part.trial, round=part.round, seed=part.seed, by=self.member.name, host=os.uname().nodename,
            cores=slot.cores, gpus=slot.gpus, **more,
        )  # fmt: skip
        self.refresh()

    def end(self, run, result):
        part = run.part
        with self.journal.locked():
            self.refresh()
            if part not in self.state.results:  # else the reports alone are tried again
                self.journal.append(
                    event="end", trial=part.trial, round=part.round, seed=part.seed, status=result.status, score=result.score,
                    steps=result.steps, seconds=round(result.seconds, 3), error=result.error, verdict=result.verdict,
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
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                signal.signal(number, self.stop)
        try:
            self.open()
            self.greet()
            while not self.step():
                time.sleep(POLL)
        except Stopped:
            say("flotilla sweep: told to stop before the sweep began")
            self.leave()
            return self.exit_code_of_signal()
        except BaseException:
            self.let_go()
            self.leave()
            raise
        return self.conclude()

    def leave(self):
        self.member.leave()
        self.at_work.release()

    def stop(self, number, _):
        self.signals.append(number)

    def pass_on(self):
        """Tells our runs what we were told: a second time, they end at once."""
        for part, run in list(self.runs.items()):
            for number in self.signals[run.signals :]:
                if not run.signal(forward_of(number)):
                    break
            if len(self.signals) > 1 and not run.signals:
                say(f"sweep: {run.name} trains on: no process of this host was found that could be told to stop")
                del self.runs[part]

    def greet(self):
        say(f"sweep: {self.folder}: {self.sweep['trials']} trials of {self.sweep['base']}, {len(self.state.results)} runs have ended")
        if len(self.plan.budgets) > 1:
            say(f"rounds: {', '.join(f'{budget:,}' for budget in self.plan.budgets)} {self.sweep['budget']['field']}")
            if not self.sweep["constant_schedule"]:
                say("note: optimizer.schedule follows the length of a run, which grows from round to round; CONSTANT compares best")

    def step(self):
        """Whether it is over."""
        self.pass_on()  # before a run that heard of it first is taken for lost
        finished = False
        if self.signals or time.monotonic() >= self.paused:
            self.paused = 0.0
            self.look_after_runs()
            finished = self.begin_more()
            if not self.paused:
                self.put_off.clear()
        self.tell_news()
        return (finished or self.ends()) and not self.runs

    @contextlib.contextmanager
    def patient(self, what):
        """What fails for now in here does not end the sweep, and `what` says so: it is
        tried again after PAUSE."""
        try:
            yield
        except OSError as error:
            if error.errno not in PASSING:
                raise
            self.paused = time.monotonic() + PAUSE
            then = "it is left to whoever goes on" if self.signals else "it is tried again until it works"
            message = f"sweep: {what} waits: {reason(error)}; {then}"
            if message not in self.put_off:
                self.put_off.add(message)
                say(message)

    def look_after_runs(self):
        for part, run in list(self.runs.items()):
            with self.patient(f"trial {run.name}"):
                self.look_after(part, run)
            if self.signals and part in self.over:
                # Its folder has the result: who goes on asks there again.
                self.release(part)

    def look_after(self, part, run):
        if part not in self.over:
            over, result = self.poll(run)
            if not over:
                return
            if result is not None and result.status == "refused":
                result = self.doubt(run, result)
            self.over[part] = result
        result = self.over[part]
        if result is not None:
            self.end(run, result)
            self.judge(part, result)
        self.release(part)

    def release(self, part):
        run = self.runs.pop(part)
        del self.over[part]
        run.claim.release()
        run.slot.release()

    def begin_more(self):
        """Whether there is nothing more to begin, ever."""
        finished = False
        if not self.ends() and len(self.runs) < len(self.slots) and self.news():
            with self.patient("what comes next"), self.journal.locked():
                self.refresh()
                finished = self.plan.finished(self.state)
                while not finished and (run := self.claim()):
                    self.runs[run.part] = run
                    if isinstance(run, TrialRun):
                        with self.patient(f"trial {run.name}"):
                            run.start()
                self.looked = (time.monotonic(), self.journal.offset)
        return finished

    def poll(self, run):
        """As TrialRun.poll. Errors: UnknownMetric, if no trial has shown that there is one."""
        try:
            return run.poll()
        except UnknownMetric as unknown:
            if not self.state.scored():
                raise
            return True, unknown.result

    def doubt(self, run, result):
        """A refused run's result. It may be the host's fault, not its values' (a GPU or a
        file is gone): then what could run when we began cannot either."""
        try:
            self.rehearse(run.slot)
        except Refused:
            result.status = "failed"
        except Stopped:
            return None  # whoever goes on begins it again
        return result

    def judge(self, part, result):
        """Counts failures in a row, but for those of values that no machine could train with."""
        if result.status not in ("failed", "refused"):
            self.failures, self.repeated = [], 0
        elif result.status == "failed" and not result.verdict:
            self.failures.append(result.error)
            self.repeated += part in self.state.again

    def ends(self):
        """Whether nothing more is begun here. What has failed before does not count: nobody
        would see the last of it."""
        return bool(self.signals) or len(self.failures) - self.repeated >= MOST_FAILURES

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

    def has_last_score(self):
        last = len(self.plan.budgets) - 1
        return any(self.state.score(trial, last) is not None for trial in self.state.trials)

    def settle(self):
        """Whether all is told of what there is."""
        with self.patient("the report"), self.journal.locked():
            self.refresh()
            if isinstance(self.plan, proposals.Proposals):
                self.plan.settle(self.state)
            self.write_reports()
            return True
        return False

    def conclude(self):
        while not (told := self.settle()) and not self.signals:
            time.sleep(PAUSE)
        with self.journal.locked():
            self.refresh()
            failed = self.state.failed_for_now()
            in_a_row = len(self.failures) >= MOST_FAILURES
            # A plan counts what failed as ended; where the machine was to blame, it is not over.
            finished = told and self.plan.finished(self.state) and not (failed and (in_a_row or not self.has_last_score()))
        self.leave()
        if self.options.json:
            print(report.as_json(self.state, self.sweep, self.folder, finished), end="", flush=True)
        else:
            print(report.table(self.state, self.sweep, self.plan), end="")
            if self.state.best() is not None:
                print(f"\n{self.folder / 'best.textproto'}\n{self.folder / 'front.svg'}")
            sys.stdout.flush()
        if not finished and self.signals:
            say(f"go on with: {self.line()}")
            return self.exit_code_of_signal()
        if not finished:
            if in_a_row:
                why, last = f"{len(self.failures)} trials in a row have failed here", self.failures[-1]
            else:
                why, last = "no trial has a score of the last round, and some have failed", self.state.results[failed[-1]].error
            say(
                f"flotilla sweep: {why}, the last with: {last}; "
                f"put right what they lack, and what has failed is tried again with: {self.line()}"
            )
            return EXIT_FAILED
        if self.state.best() is None:
            say("flotilla sweep: no trial has a score; the table says why, and logs/ has what their launchers said")
            return EXIT_FAILED
        return EXIT_DONE


def reason(error):
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)


def brief(value):
    text = "not there" if value is None else json.dumps(value)
    return text if len(text) < 200 else text[:197] + "..."


def main(arguments):
    parser = argparse.ArgumentParser(prog="flotilla_sweep", allow_abbrev=False)
    parser.add_argument("--flotilla", required=True)
    parser.add_argument("--sweep-dir", required=True)
    parser.add_argument("--sweep", required=True, help="as launcher/sweep_file.cc writes it")
    parser.add_argument("--json", action="store_true")
    sweep = Sweep(parser.parse_args(arguments))
    try:
        return sweep.run()
    except Refused as refusal:
        say(f"flotilla sweep: {refusal}")
        return EXIT_REFUSED
    except (JournalError, UnknownMetric) as error:
        say(f"flotilla sweep: {error}")
        return EXIT_FAILED
    except OSError as error:
        say(f"flotilla sweep: {reason(error)}")
        if sweep.state.begun_as is not None:
            say(f"go on with: {sweep.line()}")
        return EXIT_FAILED
