"""flotilla sweep with real trials: killed, shared, interrupted, halved, forked, and
refused before anything starts."""

import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from harness import BIN, TIMEOUT, guide, poll, read_jsonl, summary, training_lines

# The same trial comes to the same score: it ends by steps alone, and nothing is
# evaluated beside it.
SAME = """
base: "cartpole_fast"
set: "evaluation.every_updates=1000000"
set: "evaluation.stop_return=1e9"
metric { name: "charts/episodic_return" }
parameter { field: "optimizer.learning_rate" log_uniform { low: 3e-4 high: 1e-2 } }
parameter { field: "ppo.epochs" choice { value: "1" value: "4" value: "8" } }
"""
SHORT = SAME + "budget { steps: 20000 }\n"


@pytest.fixture
def sweeping(sandbox):
    """Starts `flotilla sweep` in the background."""

    def start(text, *words, name="sweep", prefix=()):
        (sandbox.folder / f"{name}.textproto").write_text(text)
        return sandbox.serve("flotilla", "sweep", f"{name}.textproto", *words, prefix=prefix)

    return start


def events(folder, kind):
    journal = folder / "journal.jsonl"
    return [event for event in read_jsonl(journal) if event["event"] == kind] if journal.exists() else []


def said(sandbox):
    return (sandbox.folder / "flotilla.log").read_text()


def done(sandbox, process, timeout=2 * TIMEOUT):
    assert process.wait(timeout) == 0, said(sandbox)
    sandbox.await_no_process()


def result(sandbox, folder):
    """What a sweep that is over says again."""
    told = sandbox.run("sweep", folder, "--json")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def scores(told):
    return {trial["trial"]: trial["score"] for trial in told["trials"]}


def test_killed_twice_it_ends_with_the_same_best_trial(sandbox, sweeping):
    text = SHORT + "trials: 16 placement { parallel: 2 }\n"
    done(sandbox, sweeping(text, name="undisturbed"))
    undisturbed = result(sandbox, "sweeps/undisturbed")
    folder = sandbox.folder / "sweeps" / "killed"

    # Alone: its trials train on, and are waited for.
    first = sweeping(text, name="killed")
    poll(lambda: len(events(folder, "end")) >= 3 and len(events(folder, "begin")) > len(events(folder, "end")), "three trials have ended")
    first.kill()
    first.wait()
    # With all it has started, in the middle of a line.
    second = sweeping(text, name="killed")
    poll(lambda: len(events(folder, "end")) >= 8 and len(events(folder, "begin")) > len(events(folder, "end")), "eight trials have ended")
    second.kill()
    second.wait()
    sandbox.signal_all(signal.SIGKILL)
    sandbox.await_no_process()
    with open(folder / "journal.jsonl", "a") as journal:
        journal.write('{"event": "end", "trial": 15, "sco')
    done(sandbox, sweeping(text, name="killed"))

    killed = result(sandbox, "sweeps/killed")
    assert killed["status"] == "done" and killed["best"] == undisturbed["best"] and len(killed["trials"]) == 16
    assert scores(killed) == scores(undisturbed) and len(set(scores(killed).values())) > 10
    ended = [event["trial"] for event in events(folder, "end")]
    assert sorted(ended) == list(range(16))  # each once
    assert not [log for log in (folder / "logs").iterdir() if "is in use by" in log.read_text()]
    assert all(status == "completed" for status in {trial["status"] for trial in killed["trials"]})

    # Its best configuration is one, and is the best trial's.
    best = next(trial for trial in killed["trials"] if trial["trial"] == killed["best"])
    assert best is killed["trials"][0] and best["score"] == max(scores(killed).values())
    again = sandbox.train("sweeps/killed/best.textproto", run_dir="again").succeeds()
    assert again["global_steps"] == best["steps"]
    assert training_lines(sandbox.folder / "again")[-1]["charts/episodic_return"] == best["score"]
    picture = ElementTree.parse(folder / "front.svg")
    assert len(picture.findall(".//{*}circle")) == 32
    table = sandbox.run("sweep", "sweeps/killed").stdout.splitlines()
    assert table[0].split() == ["trial", "charts/episodic_return", "optimizer.learning_rate", "ppo.epochs", "steps", "time", "status"]
    assert table[1].split()[:2] == [str(killed["best"]), "*"] and len(table) == 1 + 16 + 3


def test_several_share_a_sweep(sandbox, sweeping):
    text = SHORT + "trials: 8 seeds: 2\n"
    cores = sorted(os.sched_getaffinity(0))
    sweeps = [sweeping(text, prefix=["taskset", "-c", str(cores[i % len(cores)])]) for i in range(2)]
    folder = sandbox.folder / "sweeps" / "sweep"

    def both_have_begun():
        assert all(sweep.poll() is None for sweep in sweeps), said(sandbox)
        return len({event["by"] for event in events(folder, "begin")}) == 2

    poll(both_have_begun, "both have begun a trial")
    for sweep in sweeps:
        assert sweep.wait(2 * TIMEOUT) == 0, said(sandbox)
    begun = [(event["trial"], event["seed"]) for event in events(folder, "begin")]
    assert sorted(begun) == [(trial, seed) for trial in range(8) for seed in range(2)]
    told = result(sandbox, "sweeps/sweep")
    for trial in told["trials"]:
        runs = [summary(folder / run["run"]) for run in trial["runs"]]
        assert [run["seed"] for run in runs] == [1, 2]
        assert trial["score"] == pytest.approx(sum(run["score"] for run in trial["runs"]) / 2)


def test_trials_have_their_cores_and_ctrl_c_saves_and_says_how_to_go_on(sandbox, sweeping):
    text = SAME + "budget { steps: 4000000 } trials: 2 placement { parallel: 2 }\n"
    folder = sandbox.folder / "sweeps" / "sweep"
    first = sweeping(text)
    poll(lambda: all((folder / "trials" / name / "metrics.jsonl").exists() and training_lines(folder / "trials" / name) for name in ("0000", "0001")), "both train")
    # Each on cores of its own.
    usable = sorted(os.sched_getaffinity(0))
    half = len(usable) // 2
    if half:
        learners = {pid: command for pid, command in sandbox.processes().items() if "flotilla-learner" in command}
        masks = {re.search(r"trials/(\d+)", command)[1]: sorted(os.sched_getaffinity(pid)) for pid, command in learners.items()}
        assert masks == {"0000": usable[:half], "0001": usable[half : 2 * half]}
    first.send_signal(signal.SIGINT)
    assert first.wait(TIMEOUT) == 130, said(sandbox)
    sandbox.await_no_process()
    assert events(folder, "end") == [] and "go on with: flotilla sweep sweeps/sweep\n" in said(sandbox)
    saved = {name: summary(folder / "trials" / name) for name in ("0000", "0001")}
    assert all(run["status"] == "stopped" and (folder / "trials" / name / "checkpoints" / "latest").exists() for name, run in saved.items())
    again = sandbox.run("sweep", "sweeps/sweep", timeout=2 * TIMEOUT)
    assert again.returncode == 0, again.stderr
    for name in saved:
        lines = training_lines(folder / "trials" / name)
        assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))
        assert summary(folder / "trials" / name)["global_steps"] >= 4000000


def test_a_trial_that_cannot_run_is_told_of_and_the_others_go_on(sandbox, sweeping):
    text = SHORT.replace("ppo.epochs", "ppo.minibatches").replace('"8"', '"3"') + "trials: 3 seed: 2\n"
    done(sandbox, sweeping(text))
    told = result(sandbox, "sweeps/sweep")
    refused = [trial for trial in told["trials"] if trial["values"]["ppo.minibatches"] == "3"]
    assert len(refused) == 1
    assert all(trial["status"] == "refused" and trial["score"] is None and "ppo.minibatches is 3" in trial["runs"][0]["error"] for trial in refused)
    assert told["trials"][-1] == refused[0] and told["best"] == told["trials"][0]["trial"]


def test_halving_resumes_the_best_from_their_checkpoints(sandbox, sweeping):
    done(sandbox, sweeping(SAME + "budget { updates: 36 } trials: 4 halving { first: 9 factor: 2 } placement { parallel: 2 }\n"))
    folder = sandbox.folder / "sweeps" / "sweep"
    told = result(sandbox, "sweeps/sweep")
    assert sorted(trial["round"] for trial in told["trials"]) == [0, 0, 1, 2]
    for trial in told["trials"]:
        lines = training_lines(folder / trial["runs"][0]["run"])
        assert [line["update"] for line in lines] == list(range(1, 9 * 2 ** trial["round"] + 1))
        assert [line["charts/episodic_return"] for line in lines if line["update"] in (9, 18, 36)] == [one["score"] for one in trial["rounds"]]
    first = sorted(told["trials"], key=lambda trial: -trial["rounds"][0]["score"])
    assert {trial["trial"] for trial in first[:2]} == {trial["trial"] for trial in told["trials"] if trial["round"] > 0}
    assert told["best"] == next(trial["trial"] for trial in told["trials"] if trial["round"] == 2)
    assert "learning_rate" in said(sandbox) and "CONSTANT compares best" in said(sandbox)


def test_pbt_forks_begin_as_their_parents_were_and_keep_equal_parameters(sandbox, sweeping):
    text = SAME + 'set: "optimizer.schedule=CONSTANT" budget { updates: 24 } trials: 4 pbt { interval: 8 } placement { learners: 2 }\n'
    folder = sandbox.folder / "sweeps" / "sweep"
    first = sweeping(text)
    # Killed where there are forks.
    poll(lambda: [event for event in events(folder, "begin") if event["trial"] == 4], "a fork has begun")
    first.kill()
    first.wait()
    done(sandbox, sweeping(text))
    told = result(sandbox, "sweeps/sweep")
    forks = [trial for trial in told["trials"] if trial["parent"] is not None]
    assert len(forks) == 2 and "CONSTANT compares best" not in said(sandbox)
    by_number = {trial["trial"]: trial for trial in told["trials"]}
    for fork in forks:
        parent, run = by_number[fork["parent"]], folder / fork["runs"][0]["run"]
        assert fork["values"] != parent["values"]
        begun = min((path for path in (run / "checkpoints").glob("step_*")), key=lambda path: int(path.name[5:]))
        same = folder / parent["runs"][0]["run"] / "checkpoints" / begun.name
        assert (begun / "weights.safetensors").read_bytes() == (same / "weights.safetensors").read_bytes()
        lines = training_lines(run)
        assert lines[0]["update"] in (9, 17) and lines[-1]["update"] == 24
        assert lines[0]["global_step"] > int(begun.name[5:])
    for trial in told["trials"]:
        last = summary(folder / trial["runs"][0]["run"])
        assert len(last["parameters_sha256"]) == 2 and len(set(last["parameters_sha256"])) == 1
    assert sum(trial["round"] == 2 for trial in told["trials"]) == 4


def test_optuna_is_told_what_trials_came_to(sandbox, sweeping):
    text = SHORT + "method: OPTUNA trials: 6\n"
    folder = sandbox.folder / "sweeps" / "sweep"
    first = sweeping(text)
    poll(lambda: len(events(folder, "end")) >= 2, "two trials have ended")
    first.kill()
    first.wait()
    done(sandbox, sweeping(text))
    told = result(sandbox, "sweeps/sweep")
    study = optuna.load_study(study_name="flotilla", storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / "optuna.log"))))
    assert {trial.number: trial.value for trial in study.trials} == scores(told) and len(study.trials) == 6
    assert study.best_trial.number == told["best"]
    for trial in study.trials:
        config = (folder / "trials" / f"{trial.number:04d}" / "config.textproto").read_text()
        assert f"epochs: {trial.params['ppo.epochs']}\n" in config
        assert float(re.search(r"learning_rate: (\S+)", config)[1]) == trial.params["optimizer.learning_rate"]
    # Where it is not installed.
    bare = sandbox.folder / "bare"
    subprocess.run(["python3", "-m", "venv", "--without-pip", bare], check=True)
    lacks = sandbox.run("sweep", "sweep.textproto", "--sweep-dir=sweeps/other", env={"FLOTILLA_PYTHON": str(bare / "bin" / "python")})
    assert lacks.returncode == 2 and "-m pip install optuna" in lacks.stderr and len(lacks.stderr.splitlines()) == 1
    assert not (sandbox.folder / "sweeps" / "other").exists()


ONE = 'parameter { field: "ppo.epochs" choice { value: "4" } }'


@pytest.mark.parametrize(
    "text, says",
    [
        (SHORT + 'parameter { field: "ppo.epoch" integer { low: 1 high: 4 } }', 'sweep.textproto:8:1: parameter ppo.epoch: there is no field "ppo.epoch"; did you mean "ppo.epochs"?'),
        (SHORT + 'parameter { field: "ppo.discount" uniform { low: 0.9 high: 1.1 } }', "parameter ppo.discount: ppo.discount is 1.1; it must be from 0 to 1"),
        (SHORT + 'parameter { field: "env.num_envs" uniform { low: 1 high: 4 } }', "uniform is of real numbers, and the field's type is int32; use integer or choice"),
        (SHORT + 'parameter { field: "env.num_envs" integer { low: 4 high: 4 } }', "the space is empty: low is 4 and high 4; expected low below high"),
        (SHORT + 'parameter { field: "optimizer.type" choice { value: "ADAN" } }', 'did you mean "ADAM"?'),
        (SHORT + 'parameter { field: "optimizer.type" choice { } }', "the space is empty: choice has no value"),
        (SHORT + 'parameter { field: "ppo.epochs" integer { low: 1 high: 4 } }', "parameter ppo.epochs: the field is given twice"),
        (SHORT + 'parameter { field: "dqn.n_step" integer { low: 1 high: 4 } }', "the configuration's algorithm is ppo, not dqn"),
        (SHORT + "trails: 8", 'trails: there is no field "trails"; did you mean "trials"?'),
        (SHORT + "trials: 0", "trials is 0; it must be at least 1"),
        (SHORT + "method: GRID trials: 8", "a grid has as many as it has points"),
        ('base: "cartpole_fast"', "the space is empty: there is no parameter"),
        ('base: "cartpole_fats" ' + ONE, 'there is no configuration "cartpole_fats"; did you mean "cartpole_fast"?'),
        (f'base: "cartpole_fast" metric {{ name: "eval_mean_retrun" }} {ONE}', 'there is no metric "eval_mean_retrun"; did you mean "eval_mean_return"?'),
        (f'base: "cartpole_fast" metric {{ name: "loss/entropy" }} {ONE}', 'there is no metric "loss/entropy"; did you mean "losses"?'),
        (f'base: "cartpole_ppo" set: "evaluation.every_updates=0" metric {{ name: "eval_mean_return" }} {ONE}', "evaluation.every_updates is 0: there is no evaluation"),
        ('base: "cartpole_fast" method: GRID parameter { field: "ppo.minibatches" choice { value: "4" value: "3" } }', "the grid's point ppo.minibatches=3: ppo.minibatches is 3, which does not divide"),
        (f'base: "cartpole_fast" set: "env.id=CartPol-v1" {ONE}', 'trial 0 (ppo.epochs=4) cannot run: --set env.id=CartPol-v1: env.id is "CartPol-v1"'),
        (f'base: "cartpole_fast" placement {{ cores: 500 }} {ONE}', "1 trials at a time of 500 cores each take 500, and this process may use"),
        (f'base: "cartpole_fast" pbt {{ interval: 9000 }} {ONE.replace("ppo.epochs", "optimizer.type")}', "a run that goes on cannot change it; search it without pbt"),
        (SHORT + "pbt { interval: 20000 }", "pbt.interval is 20000; expected less than the budget, 20000 steps"),
        (SHORT + "method: OPTUNA halving { first: 10 }", "method OPTUNA learns from trials that have ended"),
    ],
)  # fmt: skip
def test_bad_sweeps_are_one_line_before_anything_starts(sandbox, text, says):
    (sandbox.folder / "sweep.textproto").write_text(text.lstrip())
    refused = sandbox.run("sweep", "sweep.textproto")
    assert refused.returncode == 2 and refused.stderr.startswith("flotilla sweep: ") and says in refused.stderr
    assert len(refused.stderr.splitlines()) == 1 and refused.stdout == "" and not (sandbox.folder / "sweeps").exists()


def test_parallel_is_checked_in_place_of_the_files(sandbox):
    (sandbox.folder / "sweep.textproto").write_text(SHORT + "placement { cores: 1 parallel: 1 }")
    refused = sandbox.run("sweep", "sweep.textproto", "--parallel=5000")
    assert refused.returncode == 2 and "5000 trials at a time of 1 cores each take 5000" in refused.stderr and "lower --parallel" in refused.stderr
    assert not (sandbox.folder / "sweeps").exists()


def test_another_sweep_in_the_folder_is_refused_and_a_longer_one_goes_on(sandbox, sweeping):
    (sandbox.folder / "runs").mkdir()
    (sandbox.folder / "runs" / "mine").write_text("")
    text = SHORT + "trials: 1\n"
    done(sandbox, sweeping(text))
    strange = sandbox.run("sweep", "sweep.textproto", "--sweep-dir=runs")
    assert strange.returncode == 2 and "runs is no sweep's folder: it has mine in it" in strange.stderr
    (sandbox.folder / "sweep.textproto").write_text(text + "seed: 9\n")
    other = sandbox.run("sweep", "sweep.textproto")
    assert other.returncode == 2 and "seed was 1 when the sweep in sweeps/sweep began" in other.stderr and len(other.stderr.splitlines()) == 1
    done(sandbox, sweeping(text.replace("trials: 1", "trials: 2")))
    assert [event["trial"] for event in events(sandbox.folder / "sweeps" / "sweep", "end")] == [0, 1]
    unknown = sandbox.run("sweep", "sweep.textproto", "--sweep-dir=sweeps/unknown")
    assert unknown.returncode == 0
    (sandbox.folder / "sweep.textproto").write_text(text.replace("episodic_return", "episodic_retrun"))
    unknown = sandbox.run("sweep", "sweep.textproto", "--sweep-dir=sweeps/typo")
    assert unknown.returncode == 1 and 'did you mean "charts/episodic_return"?' in unknown.stderr
    # Put right, it goes on with what has been trained.
    (sandbox.folder / "sweep.textproto").write_text(text)
    assert sandbox.run("sweep", "sweep.textproto", "--sweep-dir=sweeps/typo").returncode == 0


def test_the_readme_is_true(sandbox):
    section = guide("launcher", "Search")
    text, commands = re.findall(r"(?ms)^```\n(.*?)^```$", section)
    (sandbox.folder / "lr.textproto").write_text(text)
    (sandbox.folder / "build").mkdir()
    (sandbox.folder / "build" / "bin").symlink_to(BIN)
    for command in commands.splitlines():
        told = subprocess.run(
            ["bash", "-c", command], cwd=sandbox.folder, env=sandbox.env, timeout=2 * TIMEOUT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert told.returncode == 0, f"{command}\n{told.stdout}{told.stderr}"
    assert summary(sandbox.folder / "runs" / "best")["global_steps"] > 0
    assert all((sandbox.folder / "sweeps" / "lr" / name).exists() for name in ("best.textproto", "front.svg", "journal.jsonl", "trials/0000/summary.json"))
