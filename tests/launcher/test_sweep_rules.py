"""What `flotilla sweep` decides, without a run: values, journal, rounds, claims."""

import argparse
import collections
import errno
import fcntl
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "launcher" / "python"))
from flotilla_sweep import front, members, placement, plans, proposals, report, space, trial_run  # noqa: E402
from flotilla_sweep.journal import Claim, Journal, JournalError  # noqa: E402
from flotilla_sweep.state import Part, State  # noqa: E402
from flotilla_sweep.sweep import Sweep  # noqa: E402
from sweep_words import CLIP, ENVS, RATE, SPACE, TYPE, make_sweep  # noqa: E402

@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Nobody cuts the power here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def full(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ---- Values


def test_what_is_drawn_is_in_the_space_and_covers_it():
    drawn = [space.sample(make_sweep(), trial) for trial in range(2000)]
    rates = sorted(float(values[RATE["field"]]) for values in drawn)
    assert 1e-4 <= rates[0] < 1.2e-4 and 0.85e-2 < rates[-1] <= 1e-2
    assert rates[1000] == pytest.approx(1e-3, rel=0.2)  # as many below as above in factors
    clips = sorted(float(values[CLIP["field"]]) for values in drawn)
    assert -0.5 <= clips[0] and clips[-1] <= 0.5 and clips[1000] == pytest.approx(0, abs=0.05)
    envs = collections.Counter(values[ENVS["field"]] for values in drawn)
    assert sorted(map(int, envs)) == list(range(8, 65, 8)) and min(envs.values()) > 180
    assert min(collections.Counter(values[TYPE["field"]] for values in drawn).values()) > 550


def test_what_is_drawn_follows_from_seed_trial_and_field_alone():
    here = space.sample(make_sweep(), 7)
    assert space.sample(make_sweep(parameters=SPACE[::-1], trials=99), 7) == here
    assert space.sample(make_sweep(seed=2), 7) != here != space.sample(make_sweep(), 8)
    # Whatever Python and machine: a sweep may go on elsewhere.
    assert here == {"optimizer.learning_rate": "0.000224595", "ppo.clip_ratio": "-0.378029", "env.num_envs": "16", "optimizer.type": "ADAM"}


def test_a_grid_is_every_point_once():
    sweep = make_sweep(parameters=[TYPE, {"field": "ppo.epochs", "kind": "integer", "low": 1, "high": 3, "step": 2, "values": ["1", "3"]}])
    points = [space.grid_point(sweep, trial) for trial in range(6)]
    assert [tuple(point.values()) for point in points] == [(kind, epochs) for kind in TYPE["values"] for epochs in ("1", "3")]
    assert list(points[0]) == ["optimizer.type", "ppo.epochs"]


def test_a_fork_differs_from_its_parent_and_stays_in_the_space():
    never = make_sweep(pbt={"interval": 1, "quantile": 0.25, "perturb": 1.2, "resample": 0.0})
    parent = {"optimizer.learning_rate": "0.001", "ppo.clip_ratio": "-0.5", "env.num_envs": "8", "optimizer.type": "ADAM"}
    seen = collections.defaultdict(set)
    for trial in range(60):
        for field, value in space.perturb(never, parent, trial).items():
            seen[field].add(value)
    assert seen["optimizer.learning_rate"] == {"0.0012", "0.000833333"}
    assert seen["ppo.clip_ratio"] == {"-0.5", "-0.416667"}
    assert seen["env.num_envs"] == {"8", "16"} and seen["optimizer.type"] == {"ADAM", "RMSPROP"}
    always = make_sweep(pbt=never["pbt"] | {"resample": 1.0})
    assert space.perturb(always, parent, 3) == space.sample(always, 3)


# ---- The journal, killed anywhere


def loss(trial, budget):
    """What a trial would come to, exactly: learning curves that cross."""
    rate = float(trial.values[RATE["field"]])
    return round(math.log(budget) * (1 - abs(math.log10(rate) + 3)) + float(trial.values[CLIP["field"]]) * 3, 6)


class Killed(Exception):
    pass


class Writer(Journal):
    """Is killed after so many bytes."""

    def __init__(self, folder, bytes_left=None):
        super().__init__(folder)
        self.bytes_left = bytes_left

    def append(self, **event):
        before = self.path.stat().st_size if self.path.exists() else 0
        super().append(**event)
        if self.bytes_left is None:
            return
        written = self.path.stat().st_size - before
        if written > self.bytes_left:
            os.truncate(self.path, self.path.stat().st_size - (written - self.bytes_left))
            raise Killed
        self.bytes_left -= written


def go_on(folder, sweep, bytes_left=None, plan=None, chance=None, begun=None):
    """A sweep without runs: claims one part after the other, `chance` says which."""
    journal, state, plan = Writer(folder, bytes_left), State(sweep), plan or plans.plan_of(sweep)
    with journal.locked():
        while True:
            for event in journal.read():
                state.take(event)
            if plan.finished(state):
                return state
            if due := [part for trial, round in plan.due(state) for part in state.parts(trial, round) if part not in state.results]:
                part = chance.choice(due) if chance else due[0]
                if begun is not None:
                    begun.append(part)
                where = {"trial": part.trial, "round": part.round, "seed": part.seed}
                journal.append(event="begin", by="me", host="here", **where)
                score = loss(state.trials[part.trial], plan.budgets[part.round]) + part.seed
                journal.append(event="end", status="completed", score=score, steps=plan.budgets[part.round], seconds=1.0, error="", **where)
            else:
                trial = plan.next_trial(state)
                journal.append(event="trial", trial=trial.number, values=trial.values, parent=trial.parent, round=trial.round)


KINDS = {
    "random": {"seeds": 2},
    "grid": {"method": "GRID", "parameters": [RATE | {"values": ["1e-4", "1e-3"]}, CLIP | {"values": ["0.1", "0.2", "0.3"]}], "trials": 6},
    "halving": {"halving": {"first": 100, "factor": 3}},
    "pbt": {"pbt": {"interval": 300, "quantile": 0.25, "perturb": 1.2, "resample": 0.25}, "trials": 6},
}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_byte_it_comes_to_the_same(tmp_path, kind):
    sweep = make_sweep(**KINDS[kind])
    (tmp_path / "whole").mkdir()
    whole = go_on(tmp_path / "whole", sweep)
    size = (tmp_path / "whole" / "journal.jsonl").stat().st_size
    assert whole.best() is not None
    ends = [at + 1 for at, byte in enumerate((tmp_path / "whole" / "journal.jsonl").read_bytes()) if byte == 10]
    for at in sorted({*ends, *(end - 1 for end in ends), *range(0, size, 97)} - {size}):
        folder = tmp_path / str(at)
        folder.mkdir()
        with pytest.raises(Killed):
            go_on(folder, sweep, bytes_left=at)
        begun = []
        again = go_on(folder, sweep, begun=begun)
        assert again.results == whole.results and again.trials == whole.trials and again.best() == whole.best()
        assert len(begun) == len(set(begun))  # nothing twice
        lines = (folder / "journal.jsonl").read_text().splitlines()
        assert all(json.loads(line)["event"] in ("trial", "begin", "end") for line in lines)


@pytest.mark.parametrize("line", ["hello", "7", "{}", "[" * 99999, '{"event":"begin","trial":1}', '{"event":"trial","trial":"1","values":{}}', "\xff"])
def test_a_line_that_is_none_is_named(tmp_path, line):
    (tmp_path / "journal.jsonl").write_text('{"event":"sweep","sweep":{}}\n' + line + "\n", encoding="latin-1")
    with pytest.raises(JournalError, match=r"journal.jsonl:2: that is no event"):
        Journal(tmp_path).read()


def test_a_journal_is_read_by_others_as_it_grows(tmp_path):
    one, other = Journal(tmp_path), Journal(tmp_path)
    with one.locked():
        one.append(event="trial", trial=0, values={})
    assert [event["trial"] for event in other.read()] == [0] and other.read() == []
    with open(tmp_path / "journal.jsonl", "a") as file:
        file.write('{"event":"tri')
    assert other.read() == []
    with one.locked():
        one.append(event="trial", trial=1, values={})
    assert [event["trial"] for event in other.read()] == [1]


def test_a_line_that_could_not_be_written_is_not_there(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    with journal.locked():
        journal.append(event="trial", trial=0, values={})
        before = journal.path.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError) as error:
            journal.append(event="trial", trial=1, values={})
        assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(journal.path)) and journal.path.read_bytes() == before
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        journal.append(event="trial", trial=2, values={})
    assert [event["trial"] for event in journal.read()] == [0, 2]


def test_a_claim_lasts_as_long_as_anyone_who_has_it(tmp_path):
    first, second = Claim(tmp_path / "0000"), Claim(tmp_path / "0000")
    assert first.take() and first.take() and not second.take()
    heir = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=(first.descriptor,))
    first.release()
    assert not second.take()
    heir.communicate()
    assert second.take()


def test_a_sweep_may_begin_beside_one_that_begins_or_was_killed_as_it_began(tmp_path, monkeypatch):
    words = make_sweep(file="sweep.textproto", text="trials: 9", base="cartpole_fast", base_path="base", base_text="seed: 1")

    def make(flotilla="true"):
        return Sweep(argparse.Namespace(flotilla=str(flotilla), sweep_dir=str(tmp_path / "sweep"), sweep=json.dumps(words)))

    def opened():
        sweep = make()
        try:
            sweep.open()
        finally:
            sweep.member.leave()
        return sweep

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    renamed = []
    replace = os.replace

    def begin_beside(source, target):
        """Whoever comes in the middle of a file that is being written waits for the lock."""
        renamed.append(source.name)
        beside = make()
        monkeypatch.setattr(beside.member, "enter", kill)
        with pytest.raises(Killed):
            beside.open()
        replace(source, target)

    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(Killed):
        opened()
    monkeypatch.setattr(os, "replace", begin_beside)
    assert opened().state.begun_as["trials"] == 9 and len(renamed) == 2

    # Somebody begins the first trial while we rehearse it: its folder is not ours to ask for.
    taken = tmp_path / "flotilla"
    taken.write_text(f"#!/bin/sh\nmkdir -p {tmp_path}/sweep/trials/0000\n[ ! -e ${{3#--run-dir=}} ] || {{ echo it holds a run already >&2; exit 2; }}\n")
    taken.chmod(0o755)
    make(taken).rehearse()
    make(taken).rehearse()


# ---- Rounds, against slow loops


@pytest.mark.parametrize("goal", ["MAXIMIZE", "MINIMIZE"])
@pytest.mark.parametrize("trials, first, factor, budget", [(9, 100, 3, 900), (16, 100, 2, 1000), (5, 10, 4, 30), (2, 1, 2, 3)])
def test_halving_promotes_the_best_whatever_the_order_of_ends(tmp_path, goal, trials, first, factor, budget):
    sweep = make_sweep(trials=trials, halving={"first": first, "factor": factor}, budget={"field": "total_updates", "value": budget})
    sweep["metric"]["goal"] = goal
    expected, alive, steps = {}, [plans.draw_trial(sweep, n) for n in range(trials)], first
    for round in range(99):
        steps = min(steps, budget)
        for trial in alive:
            expected[Part(round, trial.number, 0)] = loss(trial, steps)
        alive = sorted(alive, key=lambda t: loss(t, steps) * (-1 if goal == "MAXIMIZE" else 1))[: max(1, len(alive) // factor)]
        if steps == budget:
            break
        steps *= factor
    for order in range(3):
        folder = tmp_path / str(order)
        folder.mkdir()
        state = go_on(folder, sweep, chance=random.Random(order))
        assert {part: result.score for part, result in state.results.items()} == expected
        assert state.best() == alive[0].number
        assert len(state.results) == plans.plan_of(sweep).total()


def test_what_failed_is_not_promoted(tmp_path):
    sweep = make_sweep(trials=4, halving={"first": 100, "factor": 2}, budget={"field": "total_env_steps", "value": 200})
    state, plan = State(sweep), plans.plan_of(sweep)
    for trial in range(4):
        state.take({"event": "trial", "trial": trial, "values": {}})
        state.take({"event": "end", "trial": trial, "round": 0, "seed": 0, "status": "failed", "score": 3.0 if trial == 2 else None, "steps": 0, "seconds": 0, "error": "x"})
    assert plan.survivors(state, 1) == [2] and plan.due(state) == [(2, 1)] and not plan.finished(state)
    state.results[Part(0, 2, 0)].score = None
    assert plan.due(state) == [] and plan.finished(state) and state.best() is None


@pytest.mark.parametrize("trials, quantile, interval", [(8, 0.25, 100), (5, 0.4, 250), (2, 0.5, 450), (12, 0.1, 60)])
def test_pbt_replaces_the_worst_by_forks_of_the_best_whatever_the_order_of_ends(tmp_path, trials, quantile, interval):
    sweep = make_sweep(trials=trials, pbt={"interval": interval, "quantile": quantile, "perturb": 1.2, "resample": 0.25})
    steps, everyone = 0, [plans.draw_trial(sweep, n) for n in range(trials)]
    members, expected, round = list(everyone), {}, 0
    while steps < 900:
        steps = min(steps + interval, 900)
        for trial in members:
            expected[Part(round, trial.number, 0)] = loss(trial, steps)
        members.sort(key=lambda t: -loss(t, steps))
        count = max(1, int(trials * quantile))
        top, bottom = members[:count], members[-count:]
        members = members[:-count]
        for loser in bottom if steps < 900 else []:
            parent = top[int(space.unit(sweep["seed"], "parent", round, loser.number) * count)]
            fork = plans.Trial(len(everyone), space.perturb(sweep, parent.values, len(everyone)), parent.number, round + 1)
            everyone.append(fork)
            members.append(fork)
        round += 1
    for order in range(3):
        folder = tmp_path / str(order)
        folder.mkdir()
        state = go_on(folder, sweep, chance=random.Random(order))
        assert {part: result.score for part, result in state.results.items()} == expected
        assert [state.trials[trial.number] for trial in everyone] == everyone
        assert len(state.results) == plans.plan_of(sweep).total()


def test_a_population_of_equals_is_left_alone_and_the_failed_are_replaced(tmp_path):
    sweep = make_sweep(trials=4, pbt={"interval": 300, "quantile": 0.5, "perturb": 1.2, "resample": 0.0})
    plan = plans.plan_of(sweep)

    def population(scores):
        state = State(sweep)
        for trial, score in enumerate(scores):
            state.take({"event": "trial", "trial": trial, "values": space.sample(sweep, trial)})
            state.take({"event": "end", "trial": trial, "round": 0, "seed": 0, "status": "completed", "score": score, "steps": 0, "seconds": 0, "error": ""})
        rounds = list(plan.rounds(state))
        return rounds[1][0], [fork.parent for fork in rounds[1][1]]

    assert population([1.0] * 4) == ([0, 1, 2, 3], [])
    assert population([1.0, None, 1.0, None]) in [([0, 2, 4, 5], parents) for parents in ([0, 0], [0, 2], [2, 0], [2, 2])]
    assert population([None] * 4) == ([], [])


def test_forks_wait_for_nobody_and_nobody_goes_before_them():
    """A parent that trained on first would overwrite what they are to begin with."""
    sweep = make_sweep(trials=4, pbt={"interval": 300, "quantile": 0.25, "perturb": 1.2, "resample": 0.0})
    state, plan = State(sweep), plans.plan_of(sweep)
    for trial in range(4):
        state.take({"event": "trial", "trial": trial, "values": space.sample(sweep, trial)})
        state.take({"event": "end", "trial": trial, "round": 0, "seed": 0, "status": "completed", "score": float(trial), "steps": 0, "seconds": 0, "error": ""})
    assert plan.due(state) == []
    child = plan.next_trial(state)
    assert (child.number, child.parent, child.round) == (4, 3, 1)
    state.take({"event": "trial", "trial": 4, "values": child.values, "parent": 3, "round": 1})
    assert plan.next_trial(state) is None and plan.due(state) == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_a_fork_is_made_once_and_whole(tmp_path):
    run = tmp_path / "trials" / "0003"
    for step in ("step_1", "step_2"):
        (run / "checkpoints" / step).mkdir(parents=True)
        (run / "checkpoints" / step / "weights.safetensors").write_text(step)
    (run / "checkpoints" / "latest").symlink_to("step_2")
    (run / "config.textproto").write_text("seed: 1")
    (tmp_path / "trials" / ".0007" / "checkpoints").mkdir(parents=True)  # of one that was killed
    trial_run.fork(tmp_path, {}, "0003", "0007")
    made = tmp_path / "trials" / "0007"
    assert sorted(str(path.relative_to(made)) for path in made.rglob("*")) == [
        "checkpoints", "checkpoints/latest", "checkpoints/step_2", "checkpoints/step_2/weights.safetensors", "config.textproto",
    ]  # fmt: skip
    assert (made / "checkpoints" / "latest" / "weights.safetensors").read_text() == "step_2"
    (run / "checkpoints" / "step_2" / "weights.safetensors").write_text("later")
    trial_run.fork(tmp_path, {}, "0003", "0007")
    assert (made / "checkpoints" / "latest" / "weights.safetensors").read_text() == "step_2"


def test_a_fork_that_finds_no_room_leaves_it_to_others(tmp_path, monkeypatch):
    checkpoints = tmp_path / "trials" / "0003" / "checkpoints"
    (checkpoints / "step_2" / "more").mkdir(parents=True)
    (checkpoints / "step_2" / "more" / "weights.safetensors").write_text("2")
    (checkpoints / "latest").symlink_to("step_2")
    copy = shutil.copy2
    for name, fails in (("fsync", full), ("copy2", lambda *_: full(0))):
        monkeypatch.setattr(os if name == "fsync" else shutil, name, fails)
        with pytest.raises(OSError) as error:
            trial_run.fork(tmp_path, {}, "0003", "0007")
        assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path / "trials" / ".0007"))
        assert os.listdir(tmp_path / "trials") == ["0003"]
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(shutil, "copy2", copy)
    trial_run.fork(tmp_path, {}, "0003", "0007")
    assert (tmp_path / "trials" / "0007" / "checkpoints" / "latest" / "more" / "weights.safetensors").read_text() == "2"


def test_a_fork_has_what_its_parent_replays(tmp_path):
    checkpoints = tmp_path / "trials" / "0003" / "checkpoints"
    (checkpoints / "step_000000000020").mkdir(parents=True)
    (checkpoints / "latest").symlink_to("step_000000000020")
    for saved in ("10/rank_0", "10/rank_1", "20/rank_0", "20/.aside_rank_1.7", "30/rank_0"):
        step, rank = saved.split("/")
        folder = checkpoints / f"replay_{step:0>12}" / rank
        folder.mkdir(parents=True)
        (folder / "replay.safetensors").write_text(saved)
    trial_run.fork(tmp_path, {}, "0003", "0007")
    made = tmp_path / "trials" / "0007" / "checkpoints"
    # Of each learner the newest that is no later than the checkpoint.
    assert {str(path.relative_to(made)): path.read_text() for path in made.rglob("*.safetensors")} == {
        "replay_000000000020/rank_0/replay.safetensors": "20/rank_0", "replay_000000000010/rank_1/replay.safetensors": "10/rank_1",
    }  # fmt: skip


# ---- Optuna


def test_optuna_is_asked_and_told_once_killed_anywhere(tmp_path):
    sweep = make_sweep(method="OPTUNA", trials=14)
    (tmp_path / "whole").mkdir()
    whole = go_on(tmp_path / "whole", sweep, plan=proposals.Proposals(sweep, tmp_path / "whole"))
    lines = (tmp_path / "whole" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for at in range(0, len(lines), 5):
        folder = tmp_path / str(at)
        folder.mkdir()
        # Before the line is whole: what it says may have been asked for.
        with pytest.raises(Killed):
            go_on(folder, sweep, bytes_left=len(b"".join(lines[: at + 1])) - 1, plan=proposals.Proposals(sweep, folder))
        with open(folder / "optuna.log", "a") as file:
            file.write('{"op_code": 4, "wor')
        again = go_on(folder, sweep, plan=proposals.Proposals(sweep, folder))
        assert again.trials == whole.trials and again.results == whole.results
    plan = proposals.Proposals(sweep, tmp_path / "whole")
    plan.settle(whole)

    import optuna
    from optuna.storages.journal import JournalFileBackend

    study = optuna.load_study(study_name="flotilla", storage=optuna.storages.JournalStorage(JournalFileBackend(str(tmp_path / "whole" / "optuna.log"))))
    assert [trial.value for trial in study.trials] == [whole.results[Part(0, trial, 0)].score for trial in range(14)]
    assert study.best_trial.number == whole.best()
    for trial in study.trials:
        assert {field: value if isinstance(value, str) else repr(value) for field, value in trial.params.items()} == whole.trials[trial.number].values
    # It has learned: a sampler that is told nothing would go on as RANDOM does.
    late = [loss(whole.trials[trial], 900) for trial in range(10, 14)]
    assert sum(late) / 4 > sum(loss(whole.trials[trial], 900) for trial in range(10)) / 10


def test_a_sequence_has_other_points_for_other_trials_before_there_is_a_score(tmp_path):
    sweep = make_sweep(method="OPTUNA", sampler="QMC", parameters=[RATE])
    state, plan = State(sweep), proposals.Proposals(sweep, tmp_path)
    for number in range(5):
        trial = plan.next_trial(state)
        state.take({"event": "trial", "trial": number, "values": trial.values})
        state.take({"event": "end", "trial": number, "round": 0, "seed": 0, "status": "completed", "score": None, "steps": 0, "seconds": 0, "error": ""})
    assert len({trial.values[RATE["field"]] for trial in state.trials.values()}) == 5


def test_optuna_hears_what_a_trial_came_to_that_was_tried_again(tmp_path):
    sweep = make_sweep(method="OPTUNA")
    state, plan = State(sweep), proposals.Proposals(sweep, tmp_path)
    ends = [("failed", {}), ("failed", {"verdict": True}), ("refused", {}), ("completed", {})]
    where = {"round": 0, "seed": 0}
    for number, (status, more) in enumerate(ends):
        state.take({"event": "trial", "trial": number, "values": plan.next_trial(state).values})
        state.take({"event": "end", "trial": number, "status": status, "score": None, "steps": 0, "seconds": 0, "error": ""} | where | more)

    def told():
        plan.settle(state)
        return [(trial.state.name, trial.value) for trial in plan.study(0).trials]

    assert told() == [("RUNNING", None)] + [("FAIL", None)] * 3
    state.take({"event": "begin", "trial": 0, "by": "me", "host": "here", "again": True} | where)
    assert told()[0] == ("RUNNING", None)
    state.take({"event": "end", "trial": 0, "status": "completed", "score": 3.0, "steps": 9, "seconds": 1, "error": ""} | where)
    assert told() == [("COMPLETE", 3.0)] + [("FAIL", None)] * 3


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(proposals.importlib.util, "find_spec", lambda name: None)
    said = proposals.missing(make_sweep(sampler="CMA_ES"))
    assert "takes optuna and cmaes" in said and "-m pip install optuna cmaes" in said and "\n" not in said


# ---- Hosts


def test_who_counts_on_though_his_lock_is_free_is_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "WATCH", 0.5)
    monkeypatch.setattr(members, "BEAT", 0.01)
    ours = members.Member(tmp_path)
    ours.enter()
    ours.leave()  # nothing of it is left
    assert not list(tmp_path.iterdir())
    (tmp_path / f"{os.uname().nodename}-1").write_text("7\n")  # of this host, whose locks reach us
    (tmp_path / "node1-17").write_text("7\n")  # ended without a word
    assert members.out_of_reach(tmp_path) == ""

    theirs = members.Member(tmp_path)
    theirs.claim.path = tmp_path / "node-2-18"
    theirs.enter()
    assert members.lives(theirs.claim.path) and members.out_of_reach(tmp_path) == ""
    monkeypatch.setattr(members, "WATCH", 30)  # a disk may be busy
    fcntl.flock(theirs.claim.descriptor, fcntl.LOCK_UN)  # as it is where locks end at the host
    assert members.out_of_reach(tmp_path) == "node-2-18"
    theirs.leave()


def test_who_locks_while_he_is_looked_at_is_in_reach(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "WATCH", 0.5)
    (tmp_path / "node1-17").write_text("")  # made, and not locked yet
    asked = []

    def lives(path):
        asked.append(path)
        if len(asked) == 2:  # right after this look
            path.write_text("1\n")
        return len(asked) > 2

    monkeypatch.setattr(members, "lives", lives)
    assert members.out_of_reach(tmp_path) == ""


def test_launchers_in_containers_of_one_name_are_two(tmp_path):
    one, other = members.Member(tmp_path), members.Member(tmp_path)  # of the same pid
    assert one.name != other.name and one.name.rsplit("-", 1)[0] == os.uname().nodename
    taken = Claim(one.claim.path)
    assert taken.take() and not one.enter(lambda: True)
    taken.release()
    assert one.enter() and other.enter()
    one.leave()
    other.leave()


# ---- Scores, places, pictures


def test_a_metric_is_found_however_far_back_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_run, "METRICS_TAIL", 100)
    rows = [{"eval/mean_return": i} for i in range(4)] + [{"charts/a": i} for i in range(20)] + [{"eval/mean_return": 4}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def metric(name, lines):
        return trial_run.metric_of({"name": name, "lines": lines}, tmp_path, {})

    assert metric("eval/mean_return", 1) == (4, "") and metric("charts/a", 2) == (18.5, "")
    assert metric("eval/mean_return", 4) == (2.5, "") and metric("eval/mean_return", 99) == (2, "")
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    assert metric("eval/mean_return", 2) == (2.5, "")


def test_a_metric_is_a_number_of_the_run(tmp_path):
    def metric(name, lines=1, summary=None):
        return trial_run.metric_of({"name": name, "lines": lines}, tmp_path, summary or {})[0]

    assert metric("score", summary={"eval_mean_return": 3, "mean_return": 2}) == 3
    assert metric("score", summary={"mean_return": 2}) == 2 and metric("score") is None
    assert metric("wall_seconds", summary={"wall_seconds": 1.5}) == 1.5
    rows = [{"global_step": i, "charts/a": i, "losses/b": None if i == 9 else 1.0} for i in range(10)] + [{"eval/c": 7}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"charts/a": 99')
    assert metric("charts/a") == 9 and metric("charts/a", 4) == 7.5 and metric("eval/c") == 7
    assert metric("losses/b") is None  # it ended as NaN
    with pytest.raises(trial_run.UnknownMetric, match='did you mean "charts/a"'):
        metric("charts/aa")


EPISODES = {"charts/episodic_return", "charts/episodic_length", "metrics/goals"}
EVALUATED = {"eval/mean_return", "eval/mean_length", "eval/update", "eval/goals"}


@pytest.mark.parametrize(
    "name, there, why",
    [
        ("charts/episodic_length", set(), "no episode has ended"),
        ("charts/episodic_lenght", set(), ""),
        ("metrics/goals", set(), "no episode has ended"),
        ("metrics/gaols", EPISODES, ""),
        ("eval/mean_return", EPISODES, "nothing was evaluated"),
        ("eval/mean_retrun", EPISODES, ""),
        ("eval/goals", EPISODES, "nothing was evaluated"),
        ("eval/gaols", EVALUATED, ""),
        ("agents/return_1", {"agents/return_0"}, "an agent has ended no episode"),
        ("agents/return_7", {"agents/return_0", "agents/return_sum"}, ""),
        ("agents/retrun_sum", set(), ""),
        ("selfplay/win_rate", {"selfplay/games"}, "no game has ended"),
        ("selfplay/win_rate", set(), ""),
        ("system/gpu_percent/rank_0", set(), "its host did not tell"),
        ("losses/valeu_loss", set(), ""),
    ],
)
def test_a_run_may_lack_what_its_like_have(name, there, why):
    assert trial_run.why_absent(name, there) == why


def test_cores_are_trials_own_where_there_are_enough():
    def cores(usable, **how):
        return [slot.cores for slot in placement.make_slots({"parallel": 1, "gpus": 0, "cores": 0} | how, usable)]

    assert cores([0, 1, 2, 3, 8]) == [[0, 1, 2, 3, 8]]
    assert cores([0, 1, 2, 3, 8], parallel=2) == [[0, 1], [2, 3]]
    assert cores([0, 1, 2, 3], parallel=3, cores=1) == [[0], [1], [2]]
    assert cores([4, 6], parallel=3) == [[4], [6], [4]]
    assert [slot.gpus for slot in placement.make_slots({"parallel": 2, "gpus": 2, "cores": 0}, [0])] == [[0, 1], [2, 3]]


def test_the_front_is_what_nothing_beats_at_less():
    points = [{"trial": n, "score": score, "steps": steps, "seconds": 1.0, "label": "a<b"} for n, (score, steps) in enumerate([(1, 10), (5, 30), (4, 40), (5, 50), (6, 60), (2, 10)])]
    assert [p["trial"] for p in front.pareto(points, "steps", True)] == [5, 1, 4]
    assert [p["trial"] for p in front.pareto(points, "steps", False)] == [0]
    picture = ElementTree.fromstring(front.front_svg(points, make_sweep()["metric"], 4, "x"))
    assert len(picture.findall(".//{*}circle")) == 12 and "trial 4: 6, 60 steps" in "".join(picture.itertext())
    ElementTree.fromstring(front.front_svg(points[:1], make_sweep()["metric"], 0, "x"))


def test_the_table_has_the_best_first_and_what_failed_last():
    sweep = make_sweep(trials=3, parameters=[CLIP])
    state = State(sweep)
    for trial, score in enumerate([1.25, None, 480.0]):
        state.take({"event": "trial", "trial": trial, "values": {CLIP["field"]: f"0.{trial}"}})
        state.take({"event": "end", "trial": trial, "round": 0, "seed": 0, "status": "completed" if score else "failed", "score": score, "steps": 900, "seconds": 2.0, "error": ""})
    rows = [line.split() for line in report.table(state, sweep, plans.plan_of(sweep)).splitlines()]
    assert rows[0] == ["trial", "score", "ppo.clip_ratio", "steps", "time", "status"]
    assert rows[1:] == [["2", "*", "480", "0.2", "900", "2.0", "s", "completed"], ["0", "1.25", "0.0", "900", "2.0", "s", "completed"], ["1", "0.1", "900", "2.0", "s", "failed"]]


def test_every_field_of_a_sweep_says_what_it_means():
    """Its readers have the file alone."""
    lines = (SOURCE / "proto" / "flotilla" / "v1" / "sweep.proto").read_text().splitlines()
    fields = [at for at, line in enumerate(lines) if " = " in line and line.endswith(";") and line.startswith("  ") and "//" not in line]
    assert len(fields) > 30
    assert [lines[at] for at in fields if not lines[at - 1].strip().startswith("//")] == []
