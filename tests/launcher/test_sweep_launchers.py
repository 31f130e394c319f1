"""Launchers of a sweep beside and after one another, with a `flotilla train` that does as it is told."""

import argparse
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "launcher" / "python"), str(SOURCE / "tests" / "e2e")]
from flotilla_sweep import placement, plans, trial_run  # noqa: E402
from flotilla_sweep import sweep as program  # noqa: E402
from flotilla_sweep.journal import Claim  # noqa: E402
from flotilla_sweep.state import Part, State  # noqa: E402
from flotilla_sweep.sweep import Refused, Sweep  # noqa: E402
from harness import poll  # noqa: E402
from sweep_words import make_sweep  # noqa: E402


class Launchers:
    """Starts `flotilla sweep` on tmp_path/my sweep. `does` is what its trials do, in shell:
    run, the folder; trial, its name; dry, whether it is a rehearsal."""

    def __init__(self, folder):
        self.home, self.folder = folder, folder / "my sweep"
        self.flotilla = folder / "flotilla"
        self.does(":")

    def does(self, shell):
        new = self.home / "new"  # a shell reads on in the old one
        new.write_text(
            f"""#!/bin/sh
for word; do case $word in --run-dir=*) run=${{word#--run-dir=}};; --dry-run) dry=1;; esac; done
trial=${{run##*/}}
tell() {{ mkdir -p "$run"; echo "{{\\"charts/SPS\\": 1, $1}}" >> "$run/metrics.jsonl"; echo '{{"status": "completed", "mean_return": 7}}' > "$run/summary.json"; }}
fail() {{ mkdir -p "$run"; echo '{{"status": "failed", "error": "'"$1"'"}}' > "$run/summary.json"; echo "flotilla train: $1" >&2; exit "$2"; }}
home={self.home}
if [ "$dry" ]; then [ ! -e "$run" ] || exit 2; fi
{shell}
""")
        new.chmod(0o755)
        new.rename(self.flotilla)

    def words(self, **more):
        return make_sweep(file="sweep.textproto", text="text", base="cartpole_fast", base_path="base", base_text="seed: 1", constant_schedule=True, **{"trials": 1} | more)

    def sweep(self, **more):
        return Sweep(argparse.Namespace(flotilla=str(self.flotilla), sweep_dir=str(self.folder), sweep=json.dumps(self.words(**more)), json=False))

    def start(self, folder=None, prefix=(), words=(), **more):
        code = f"import sys; sys.path.insert(0, {str(SOURCE / 'launcher' / 'python')!r}); from flotilla_sweep import sweep; sys.exit(sweep.main(sys.argv[1:]))"
        command = [*prefix, sys.executable, "-c", code, f"--flotilla={self.flotilla}", f"--sweep-dir={folder or self.folder}", "--sweep=" + json.dumps(self.words(**more)), *words]
        return subprocess.Popen(command, cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, **more):
        """(exit code, what it said)."""
        process = self.start(**more)
        said = process.communicate(timeout=60)[1]
        return process.returncode, said

    def events(self, kind):
        path = self.folder / "journal.jsonl"
        return [event for event in map(json.loads, path.read_text().splitlines()) if event["event"] == kind] if path.exists() else []


@pytest.fixture
def launchers(tmp_path):
    launchers = Launchers(tmp_path)
    yield launchers
    (tmp_path / "go").touch()  # what waits for it ends


WAIT = 'until [ -e "$home/go" ]; do sleep 0.02; done; '
RETURN = {"name": "charts/episodic_return", "goal": "MAXIMIZE", "lines": 1}


def test_a_trial_without_an_episode_has_no_score_and_the_others_have(launchers):
    launchers.does("""case $trial in 0000) tell '"losses/entropy": 1';; *) tell '"losses/entropy": 1, "charts/episodic_return": 5';; esac""")
    code, said = launchers.run(trials=2, metric=RETURN)
    assert code == 0 and "0000 completed: no score" in said and "there is no charts/episodic_return: no episode has ended" in said
    assert [event["score"] for event in launchers.events("end")] == [None, 5]
    # A typo is told of at once, and is none where a trial has it.
    launchers.folder = launchers.home / "typo"
    code, said = launchers.run(trials=2, metric=RETURN | {"name": "losses/entorpy"})
    assert code == 1 and said.endswith('metrics.jsonl; did you mean "losses/entropy"?\n') and launchers.events("end") == []
    launchers.folder = launchers.home / "other"
    launchers.does("""case $trial in 0000) tell '"losses/mine": 4';; *) tell '"losses/entropy": 1';; esac""")
    code, said = launchers.run(trials=2, metric=RETURN | {"name": "losses/mine"})
    assert code == 0 and "0001 completed: no score" in said and [event["score"] for event in launchers.events("end")] == [4, None]


def test_a_host_that_cannot_run_trials_is_refused_wherever_the_sweep_is(launchers):
    trains = WAIT.join(('[ "$dry" ] || { touch "$home/up"; ', """ tell '"x": 1'; }"""))
    launchers.does(trains)
    first = launchers.start(trials=2)
    poll(lambda: (launchers.home / "up").exists(), "it is at work")
    launchers.does('fail "no module named grpc" 2')
    code, said = launchers.run(trials=2)
    assert code == 2 and said.endswith("cannot run: no module named grpc\n") and len(launchers.events("begin")) == 1
    launchers.does(trains)
    (launchers.home / "go").touch()
    assert first.wait(60) == 0 and not list((launchers.folder / "members").iterdir())
    # What it came to is told anywhere.
    launchers.does('fail "no module named grpc" 2')
    assert launchers.run(trials=2)[0] == 0


def test_what_failed_of_its_machine_is_tried_again_and_does_not_end_the_sweep(launchers):
    launchers.does('[ "$dry" ] || fail "no space left on device" 1')
    code, said = launchers.run(trials=6)
    assert code == 1 and "3 trials in a row have failed here, the last with: flotilla train: no space left on device" in said
    assert f"is tried again with: flotilla sweep '{launchers.folder}'" in said and len(launchers.events("end")) == 3
    # Not enough yet: those do not count twice, so that there is an end.
    code, said = launchers.run(trials=6)
    assert code == 1 and "0000, 0001, 0002 failed, and are tried again" in said and len(launchers.events("end")) == 9
    before = (launchers.folder / "journal.jsonl").read_bytes()
    launchers.does("""[ "$dry" ] || tell '"x": 1'""")
    beside = Claim(launchers.folder / "claims" / "launchers")
    beside.share()  # as one at work does
    code, said = launchers.run(trials=6)
    assert code == 1 and "are tried again" not in said and len(launchers.events("end")) == 9
    assert "no trial has a score of the last round, and some have failed, the last with: flotilla train: no space left on device" in said
    beside.release()
    code, said = launchers.run(trials=6)
    assert code == 0 and (launchers.folder / "journal.jsonl").read_bytes().startswith(before)
    assert sorted(event["trial"] for event in launchers.events("end") if event["status"] == "completed") == list(range(6))
    assert "tried again" not in launchers.run(trials=6)[1] and len(launchers.events("end")) == 15


@pytest.mark.parametrize(
    "fails, kind, runs",
    [
        ("0002*|0003*|0004*", {"trials": 5}, 5),
        ("*=600*", {"trials": 2, "pbt": {"interval": 300, "quantile": 0.5, "perturb": 1.2, "resample": 0.0}}, 6),
        ("*=900*", {"trials": 3, "halving": {"first": 300, "factor": 3}}, 4),
    ],
    ids=["flat", "pbt", "halving"],
)
def test_a_sweep_that_its_machine_has_ended_is_not_done(launchers, fails, kind, runs):
    launchers.does(f"""[ "$dry" ] || case "$trial $*" in {fails}) fail "no space left on device" 1;; *) tell '"x": 1';; esac""")
    for words in ([], ["--json"]):  # and is no more so the second time
        process = launchers.start(words=words, **kind)
        told, said = process.communicate(timeout=60)
        assert process.returncode == 1 and "the last with: flotilla train: no space left on device; put right" in said
        assert f"is tried again with: flotilla sweep '{launchers.folder}'" in said
    assert json.loads(told)["status"] == "unfinished"
    launchers.does("""[ "$dry" ] || tell '"x": 1'""")
    assert launchers.run(**kind)[0] == 0
    assert [event["status"] for event in launchers.events("end")].count("completed") == runs


def test_a_trial_that_failed_among_others_does_not_keep_a_sweep_from_its_end(launchers):
    launchers.does("""[ "$dry" ] || case $trial in 0001) fail "no space left on device" 1;; *) tell '"x": 1';; esac""")
    assert launchers.run(trials=3)[0] == 0


def test_what_its_host_has_refused_is_tried_again_and_what_its_values_have_is_not(launchers):
    refuse = 'echo "flotilla train: there is no GPU" >&2; exit 2'
    launchers.does(f"""[ ! -e "$home/gone" ] || {{ {refuse}; }}; [ "$dry" ] || {{ tell '"x": 1'; touch "$home/gone"; }}""")
    code, said = launchers.run(trials=6)
    assert code == 1 and "3 trials in a row have failed here, the last with: flotilla train: there is no GPU" in said
    assert [event["status"] for event in launchers.events("end")] == ["completed", "failed", "failed", "failed"]
    launchers.does(f"""[ "$dry" ] || case $trial in 0005) tell '"x": 1';; *) {refuse};; esac""")
    code, said = launchers.run(trials=6)
    assert code == 0 and "0001, 0002, 0003 failed, and are tried again" in said
    assert [event["status"] for event in launchers.events("end")][4:] == ["refused"] * 4 + ["completed"]
    assert "tried again" not in launchers.run(trials=6)[1] and len(launchers.events("end")) == 9


def test_what_failed_of_its_values_has_failed(launchers):
    launchers.does("""case "$dry$trial" in 1*) ;; 0005) tell '"x": 1';; *) fail "the gradient is not finite (norm nan) after 7 gradient steps" 1;; esac""")
    assert launchers.run(trials=6)[0] == 0 and len(launchers.events("end")) == 6
    code, said = launchers.run(trials=6)
    assert code == 0 and "tried again" not in said and len(launchers.events("end")) == 6


def test_what_failed_stays_so_where_others_have_gone_on():
    state = State(make_sweep(trials=2))
    for trial in range(2):
        state.take({"event": "trial", "trial": trial, "values": {}})
        state.take({"event": "end", "trial": trial, "round": 0, "seed": 0, "status": ["failed", "completed"][trial], "score": None, "steps": 0, "seconds": 0, "error": ""})
    assert state.failed_for_now() == [Part(0, 0, 0)]
    begin = {"event": "begin", "seed": 0, "by": "me", "host": "here"}
    again = State(state.sweep)
    again.results, again.trials = dict(state.results), state.trials
    again.take(begin | {"trial": 0, "round": 0, "again": True})
    assert again.failed_for_now() == [] and list(again.results) == [Part(0, 1, 0)] and not again.ended(0, 0)
    state.take(begin | {"trial": 1, "round": 1})
    assert state.failed_for_now() == []


def test_a_sighup_that_is_ignored_stays_so(launchers):
    launchers.does(WAIT.join(('[ "$dry" ] || { ', """ tell '"x": 1'; }""")))
    launcher = launchers.start(prefix=["sh", "-c", """trap '' HUP; exec "$0" "$@" """])  # nohup
    poll(lambda: launchers.events("begin"), "it is at work")
    launcher.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.wait(1)
    (launchers.home / "go").touch()
    assert launcher.wait(60) == 0
    launchers.folder = launchers.home / "other"
    (launchers.home / "go").unlink()
    launchers.does('[ "$dry" ] || { ' + WAIT + "exit 75; }")
    launcher = launchers.start()
    poll(lambda: launchers.events("begin"), "it is at work")
    launcher.send_signal(signal.SIGHUP)
    assert launcher.wait(60) == 75


@pytest.mark.parametrize("known", [True, False])
def test_who_trains_on_alone_is_told_to_stop_however_its_folder_is_spelled(launchers, known):
    lock = 'echo "pid $$ on $(uname -n)" > "$run/.lock"' if known else ":"
    launchers.does('[ "$dry" ] || { mkdir -p "$run"; ' + lock + '; touch "$home/up"; trap "exit 75" TERM; ' + WAIT + "}")
    first = launchers.start(folder="my sweep")
    poll(lambda: (launchers.home / "up").exists(), "it is at work")
    first.kill()
    first.wait()
    second = launchers.start()
    poll(lambda: len(launchers.events("begin")) == 2, "it is at work")
    second.terminate()
    if not known:  # one is for it, and waits until it can be told
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(0.5)
        second.terminate()
    assert second.wait(60) == 75 and launchers.events("end") == []
    assert ("0000 trains on: no process of this host was found" in second.stderr.read()) != known


def test_one_of_another_folder_is_told_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    works = "import sys; print(flush=True); sys.stdin.read()"  # once it says so, it has its command line
    trains = subprocess.Popen([sys.executable, "-c", works, "train", "--run-dir=../b/./"], cwd=tmp_path / "a", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    trains.stdout.readline()
    for folder in ("a", "b"):
        (tmp_path / folder / ".lock").write_text(f"pid {trains.pid} on {os.uname().nodename}\n")
    assert trial_run.launcher_of(tmp_path / "a" / ".." / "b") == trains.pid and trial_run.launcher_of(tmp_path / "a") is None
    trains.communicate()
    assert trial_run.launcher_of(tmp_path / "b") is None


OWN = {"parallel": 2, "learners": 1, "gpus": 1, "cores": 2, "uuids": ["GPU-a", "GPU-b"]}


def on_four_cores(sweep):
    sweep.slots = placement.make_slots(sweep.sweep["placement"], [0, 1, 2, 3], sweep.folder / "claims")
    sweep.plan = plans.plan_of(sweep.sweep)
    for name in ("claims", "members", "logs"):
        (sweep.folder / name).mkdir(parents=True, exist_ok=True)
    return sweep


def claimed(sweep):
    with sweep.journal.locked():
        sweep.refresh()
        run = sweep.claim()
    if run is not None:
        sweep.runs[run.part] = run
    return run


@pytest.mark.parametrize("theirs, its", [(([2, 3], [1]), 1), (([1, 2], [0]), None)])
def test_a_run_that_trains_on_has_its_cores_and_gpus_to_itself(launchers, theirs, its):
    dead = on_four_cores(launchers.sweep(trials=3, placement=OWN))
    run = claimed(dead)
    assert isinstance(run, trial_run.TrialRun) and run.slot is dead.slots[0]
    begun = launchers.events("begin")[0]
    assert (begun["cores"], begun["gpus"]) == ([0, 1], [0])
    # As if it had begun elsewhere, with what its processes hold of that.
    run.slot.release()
    there = placement.make_slot(OWN, *theirs, dead.folder / "claims")
    assert there.take()
    heirs = [claim.descriptor for claim in (run.claim, *there.claims)]
    heir = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=heirs)
    there.release()
    run.claim.release()
    path = launchers.folder / "journal.jsonl"
    path.write_text(path.read_text().replace('"cores": [0, 1], "gpus": [0]', f'"cores": {theirs[0]}, "gpus": {theirs[1]}'))

    sweep = on_four_cores(launchers.sweep(trials=3, placement=OWN))
    adopted, other = claimed(sweep), claimed(sweep)
    assert isinstance(adopted, trial_run.AdoptedRun) and (adopted.slot.cores, adopted.slot.gpus) == theirs
    assert (adopted.slot in sweep.slots) == (its is not None) and adopted.poll() == (False, None)
    if its is None:  # it has a part of each
        assert other is None
    else:
        assert isinstance(other, trial_run.TrialRun) and other.slot is sweep.slots[0]
    heir.communicate()
    assert claimed(sweep) is None or its is None  # two at a time


def test_launchers_on_a_host_leave_each_other_cores_and_gpus(launchers, capsys):
    first, second, third = (on_four_cores(launchers.sweep(trials=4, placement=OWN)) for _ in range(3))
    for sweep in (first, second, third):
        sweep.member.enter()
    one = claimed(first)
    two = claimed(second)
    assert (one.slot.cores, two.slot.cores, two.slot.gpus) == ([0, 1], [2, 3], [1])
    assert claimed(third) is None and claimed(first) is None and claimed(third) is None
    said = capsys.readouterr().err
    assert said.count("other launchers on this host have the cores and gpus that placement gives a trial") == 1
    two.slot.release()
    assert claimed(third).slot.cores == [2, 3]
    # What is nobody's own is shared.
    assert all(slot.take() for slot in placement.make_slots(OWN | {"cores": 0, "gpus": 0}, [0, 1], first.folder / "claims"))
    for sweep in (first, second, third):
        sweep.leave()


class Disk:
    """Where os.fsync of the files `full` fails (name and last event of the journal), as often as it says."""

    def __init__(self, monkeypatch, file, event=None, times=1, error=errno.ENOSPC):
        self.file, self.event, self.times, self.error = file, event, times, error
        self.failed = 0
        self.then = lambda: None  # after each failure
        self.signalled = []
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(signal, "signal", lambda *_: None)  # the tests' own stay
        monkeypatch.setattr(program, "PAUSE", 0.1)
        monkeypatch.setattr(program, "LOOK", 0.05)
        monkeypatch.setattr(trial_run.TrialRun, "signal", lambda run, number: self.signalled.append(run.name) or True)

    def fsync(self, descriptor):
        path = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.failed >= self.times or self.file not in path.name:
            return
        if self.event and json.loads(path.read_bytes().splitlines()[-1])["event"] != self.event:
            return
        self.failed += 1
        self.then()
        raise OSError(self.error, os.strerror(self.error))


@pytest.mark.parametrize(
    "file, event, what, error",
    [
        ("journal", "end", "trial 0000", errno.ENOSPC),
        ("journal", "begin", "what comes next", errno.EDQUOT),
        ("journal", "trial", "what comes next", errno.ENOSPC),
        ("front.svg", None, "trial 0000", errno.ENOSPC),
        ("best.textproto", None, "trial 0000", errno.EDQUOT),
    ],
)
def test_a_full_disk_does_not_end_a_sweep(launchers, monkeypatch, capsys, file, event, what, error):
    launchers.does("""[ "$dry" ] || { tell '"x": 1'; touch "$run/config.textproto"; }""")
    disk = Disk(monkeypatch, file, event, times=3, error=error)
    sweep = launchers.sweep(trials=3)
    assert sweep.run() == 0 and disk.failed == 3 and disk.signalled == []
    said = capsys.readouterr().err
    path = launchers.folder / ("journal.jsonl" if event else file)
    assert said.count(f"sweep: {what} waits: {path}: {os.strerror(error)}; it is tried again until it works\n") == 1 and said.count(" waits: ") == 1
    for kind in ("trial", "begin", "end"):  # each once
        assert [event["trial"] for event in launchers.events(kind)] == [0, 1, 2]
    assert {event["status"] for event in launchers.events("end")} == {"completed"}
    assert "Trial 0 " in (launchers.folder / "best.textproto").read_text() and "3 of 3 trials" in (launchers.folder / "front.svg").read_text()


def test_a_full_disk_keeps_nobody_from_stopping(launchers, monkeypatch, capsys):
    launchers.does("""[ "$dry" ] || tell '"x": 1'""")
    disk = Disk(monkeypatch, "journal", "end", times=sys.maxsize)
    sweep = launchers.sweep(trials=2)
    disk.then = lambda: sweep.stop(signal.SIGTERM, None) if disk.failed == 2 else None
    assert sweep.run() == 75 and disk.failed >= 2 and launchers.events("end") == []
    said = capsys.readouterr().err
    assert "journal.jsonl: No space left on device; it is tried again" in said and said.endswith(f"go on with: flotilla sweep '{launchers.folder}'\n")
    disk.times = 0
    assert launchers.sweep(trials=2).run() == 0
    assert [event["trial"] for event in launchers.events("end")] == [0, 1]


def test_a_report_that_waits_at_the_end_keeps_nobody_from_stopping(launchers, monkeypatch, capsys):
    launchers.does("""[ "$dry" ] || tell '"x": 1'""")
    disk = Disk(monkeypatch, "front.svg", times=0)
    assert launchers.sweep().run() == 0
    disk.times = sys.maxsize
    sweep = launchers.sweep()
    disk.then = lambda: sweep.stop(signal.SIGINT, None) if disk.failed == 3 else None
    assert sweep.run() == 130
    said = capsys.readouterr().err
    assert f"sweep: the report waits: {launchers.folder}/front.svg: No space left" in said and "go on with: " in said


def test_a_disk_that_is_broken_ends_a_sweep_and_is_named(launchers, monkeypatch, capsys):
    launchers.does("""[ "$dry" ] || tell '"x": 1'""")
    Disk(monkeypatch, "journal", "end", error=errno.EIO)
    options = [f"--flotilla={launchers.flotilla}", f"--sweep-dir={launchers.folder}", "--sweep=" + json.dumps(launchers.words())]
    assert program.main(options) == 1
    assert capsys.readouterr().err.endswith(
        f"flotilla sweep: {launchers.folder}/journal.jsonl: Input/output error\ngo on with: flotilla sweep '{launchers.folder}'\n"
    )


def test_a_trial_that_cannot_be_started_for_now_is_started_later(launchers, monkeypatch, capsys):
    launchers.does("""[ "$dry" ] || tell '"x": 1'""")
    disk = Disk(monkeypatch, "nothing")
    popen, left = subprocess.Popen, [2]

    def busy(command, **more):
        if "--dry-run" not in command and left[0]:
            left[0] -= 1
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return popen(command, **more)

    monkeypatch.setattr(subprocess, "Popen", busy)
    sweep = launchers.sweep(trials=2)
    assert sweep.run() == 0 and disk.signalled == []
    said = capsys.readouterr().err
    assert said.count(f"sweep: trial 0000 waits: {launchers.flotilla}: {os.strerror(errno.EAGAIN)}; ") == 1 and said.count(" waits: ") == 1
    assert [event["trial"] for event in launchers.events("begin")] == [0, 1] == [event["trial"] for event in launchers.events("end")]
    # Who is told to stop does not wait for it.
    launchers.folder = launchers.home / "other"
    sweep, left[0] = launchers.sweep(trials=2), sys.maxsize
    monkeypatch.undo()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **more: sweep.runs and sweep.stop(signal.SIGTERM, None) or busy(*words, **more))
    assert sweep.run() == 75 and launchers.events("end") == [] and len(launchers.events("begin")) == 1


def test_a_sweep_that_is_another_is_told_what_it_was_and_how_to_go_on(launchers):
    sweep = launchers.sweep(seed=8)
    with pytest.raises(Refused) as refused:
        sweep.compare(launchers.words(seed=4, halving={"first": 1, "factor": 3}))
    assert str(refused.value) == (
        f'sweep.textproto: halving was {{"first": 1, "factor": 3}} when the sweep in {sweep.folder} began, and is not there now; '
        f"go on with it as it was (flotilla sweep '{sweep.folder}'), or choose another --sweep-dir"
    )
    with pytest.raises(Refused, match="seed was 4 when .* began, and is 8 now"):
        sweep.compare(launchers.words(seed=4))
    # Optuna keeps the goal that it began with.
    better = launchers.words(method="OPTUNA") | {"metric": RETURN | {"goal": "MINIMIZE"}}
    sweep.folder.mkdir()
    (sweep.folder / "optuna.log").touch()
    with pytest.raises(Refused, match="metric.goal is MAXIMIZE, and Optuna proposes what is to MINIMIZE"):
        launchers.sweep(method="OPTUNA").compare(better)
