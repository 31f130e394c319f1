"""What `flotilla set` changes in flight: everywhere from the same update on, and in a resumed run again."""

import contextlib
import json
import os
import re
import signal

import grpc
import pytest

from harness import TIMEOUT, coordinator_pb2, guide, poll, training_lines

LONG = ("--nproc-per-node", 2, "--set", "total_env_steps=1000000000")


def change(sandbox, *words):
    """What is said, and the update from which on it holds."""
    done = sandbox.run("set", *words)
    assert done.returncode == 0, done.stderr
    return int(re.fullmatch(r"change \d+: .*, from update (\d+) on\n", done.stdout)[1])


def resume(job, *words):
    """Goes on with its run, at another coordinator."""
    (job.run_dir / "coordinator.address").unlink()
    return job.sandbox.train("--resume", *words)


def refused(sandbox, *words):
    done = sandbox.run("set", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def checkpoints(run_dir):
    """By update."""
    found = {}
    for folder in (run_dir / "checkpoints").glob("step_*"):
        with contextlib.suppress(FileNotFoundError):  # the run has just removed it
            found[int(json.loads((folder / "progress.json").read_text())["update"])] = folder
    return found


def test_a_change_holds_for_all_learners_from_one_update_on_and_is_repeated(sandbox):
    job = sandbox.train(sandbox.config("cartpole_fast"), *LONG, "--set", "checkpoint.every_updates=20", "--set", "checkpoint.keep=1000",
                        "--set", "optimizer.schedule=CONSTANT")  # fmt: skip
    # What is resumed twice from one checkpoint plays the same environments.
    job.await_update(3)
    assert sandbox.run("stop", "run").returncode == 0
    began = job.succeeds()["updates"]
    job = resume(job)
    job.await_update(began + 2)
    first = change(sandbox, "run", "optimizer.learning_rate=1e-4", "ppo.epochs=2")
    second = change(sandbox, "run", "ppo.entropy_cost=0.5")
    assert began + 2 < first < second
    # The run's length is one of the things that change.
    step = 2 * 64 * 32
    last = second + 1000
    third = change(sandbox, "run", f"total_env_steps={last * step}")
    assert third < last
    result = job.succeeds(2 * TIMEOUT)
    assert result["status"] == "completed" and result["updates"] == last, job.diagnosis()
    assert result["change"] == [
        {"update": first, "set": ["optimizer.learning_rate=1e-4", "ppo.epochs=2"]},
        {"update": second, "set": ["ppo.entropy_cost=0.5"]},
        {"update": third, "set": [f"total_env_steps={last * step}"]},
    ]
    (digest,) = set(result["parameters_sha256"])
    lines = training_lines(job.run_dir)
    rates = {line["update"]: line["charts/learning_rate"] for line in lines}
    before = rates[1]
    assert before != 1e-4
    assert rates == {u: before if u < first else 1e-4 for u in range(1, last + 1)}
    assert {line["update"]: line.get("changes/ppo.entropy_cost") for line in lines} == {
        u: None if u < second else 0.5 for u in range(1, last + 1)
    }
    # The run's own says what it began with, a checkpoint what held for what follows it.
    saved = checkpoints(job.run_dir)
    assert "epochs: 2" not in (job.run_dir / "config.textproto").read_text()
    for update, folder in saved.items():
        assert ("epochs: 2" in (folder / "config.textproto").read_text()) == (update + 1 >= first), update
    # From before the changes they are made again, and all comes out the same.
    again = resume(job, saved[began])
    repeated = again.succeeds(2 * TIMEOUT)
    assert f"resume: ppo.entropy_cost=0.5 holds from update {second} on, as `flotilla set` had it" in again.output()
    assert set(repeated["parameters_sha256"]) == {digest}
    assert repeated["change"] == result["change"] and repeated["updates"] == last
    # Unless a flag says otherwise by now, be it what the run began with.
    for cost in ("0.25", "0"):
        other = resume(job, saved[began], "--set", f"ppo.entropy_cost={cost}")
        differs = other.succeeds(2 * TIMEOUT)
        assert [c["set"] for c in differs["change"]] == [c["set"] for c in result["change"] if c["set"] != ["ppo.entropy_cost=0.5"]]
        assert set(differs["parameters_sha256"]) != {digest}


def test_what_cannot_change_is_refused_by_name(sandbox):
    job = sandbox.train(sandbox.config("cartpole_fast"), *LONG)
    job.await_update(2)
    assert "env.num_envs cannot change in flight: stop the run and `flotilla train --resume RUN --set" in refused(
        sandbox, "run", "env.num_envs=8")  # fmt: skip
    assert "model.hidden cannot change within a run" in refused(sandbox, "run", "model.hidden=[8]")
    assert "optimizer.learning_rate" in refused(sandbox, "run", "optimizer.learning_rat=1")
    assert "optimizer.learning_rate is -1" in refused(sandbox, "run", "optimizer.learning_rate=-1")
    assert "nothing is to be changed" in refused(sandbox, "run")
    # What only the learners know: another algorithm runs.
    assert "dqn" in refused(sandbox, "run", "dqn.huber=true")
    # Of several, all or none.
    assert "dqn" in refused(sandbox, "run", "ppo.epochs=2", "dqn.huber=true")
    # However much is quoted, every rank goes on being heard.
    assert "is ppo, not custom" in refused(sandbox, "run", "custom.options.x=" + 990 * "y")
    job.await_update(job.status().update + 3)
    assert job.status().generation == 1
    # Nobody needs the command to ask.
    request = coordinator_pb2.SetRequest(override=["ppo.epochs=2"], timeout_ms=1000)
    with pytest.raises(grpc.RpcError) as stranger:
        job.coordinator().Set(request, timeout=10)
    assert stranger.value.code() == grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.RpcError) as wrong:
        request.override[0] = "env.num_envs=8"
        job.coordinator().Set(request, timeout=10, metadata=job.metadata())
    assert wrong.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    shown = sandbox.run("status", "run").stdout
    assert "change 1: dqn.huber=true, refused: " in shown
    assert job.status().change[0].override == ["dqn.huber=true"]
    assert sandbox.run("stop", "run").returncode == 0
    assert job.succeeds()["change"] == []
    over = sandbox.run("set", "run", "ppo.epochs=2")
    # Its port is free again, or another test's run has it by now.
    assert over.returncode == 1 and re.search("is the run still going|the run in run is over", over.stderr), over.stderr


@pytest.mark.parametrize("victim", ["learner", "coordinator", "run"])
def test_a_change_outlives_whoever_is_lost(sandbox, victim):
    job = sandbox.train(sandbox.config("cartpole_fast"), *LONG, "--set", "optimizer.schedule=CONSTANT", "--set", "checkpoint.every_updates=5")
    job.await_update(5)
    begin = change(sandbox, "run", "optimizer.learning_rate=1e-4")
    job.await_update(begin + 2)
    if victim == "learner":
        os.kill(job.status().learner[0].pid, signal.SIGKILL)
        job.await_status(lambda s: s.generation >= 2 and s.state == coordinator_pb2.ACTIVE, "another generation")
    elif victim == "coordinator":
        epoch = job.status().epoch
        (pid,) = [pid for pid, words in sandbox.processes().items() if "flotilla-coordinator" in words]
        os.kill(pid, signal.SIGKILL)
        job.await_status(lambda s: s.epoch != epoch and s.state == coordinator_pb2.ACTIVE, "another coordinator")
    else:
        poll(lambda: any(u >= begin for u in checkpoints(job.run_dir)), "a checkpoint")
        job.process.kill()
        job.wait()
        job = resume(job)
    at = job.status().update
    job.await_update(at + 5)
    # It is known as it was, and others come behind it.
    status = job.await_status(lambda s: len(s.change) == 1 and s.change[0].update, "the change")
    assert (status.change[0].number, status.change[0].update) == (1, begin)
    after = change(sandbox, "run", "optimizer.learning_rate=1e-5")
    job.await_update(after + 2)
    assert sandbox.run("stop", "run").returncode == 0
    result = job.succeeds()
    assert len(set(result["parameters_sha256"])) == 1
    rates = {line["update"]: line["charts/learning_rate"] for line in training_lines(job.run_dir)}
    usual = rates[1]
    assert rates == {u: usual if u < begin else 1e-4 if u < after else 1e-5 for u in rates}
    assert sorted(rates) == list(range(1, result["updates"] + 1))


def test_algorithms_beside_ppo_change_too(sandbox):
    job = sandbox.train(sandbox.config("cartpole_dqn"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
                        "--set", "optimizer.schedule=CONSTANT")  # fmt: skip
    job.await_update(3)
    begin = change(sandbox, "run", "dqn.epsilon_start=0.5", "dqn.epsilon_end=0.5", "metrics.every_updates=2")
    job.await_update(begin + 6)
    assert sandbox.run("stop", "run").returncode == 0
    assert len(set(job.succeeds()["parameters_sha256"])) == 1
    lines = {line["update"]: line for line in training_lines(job.run_dir)}
    assert {u: lines[u]["charts/epsilon"] == 0.5 for u in lines} == {u: u >= begin for u in lines}
    assert all(u % 2 == 0 for u in lines if u > begin)


def test_the_guide_s_own_line(sandbox):
    (line,) = re.findall(r"^build/bin/flotilla set (.*)$", guide("launcher", "Ask a run"), re.M)
    # In runs/, where the newest is meant.
    job = sandbox.train(sandbox.config("cartpole_fast"), *LONG, run_dir="runs/first")
    job.await_update(2)
    begin = change(sandbox, *line.split())
    assert job.status().change[0].update == begin
    assert sandbox.run("stop").returncode == 0
    assert job.succeeds()["change"] == [{"update": begin, "set": line.split()}]


def test_explain_says_what_can_change(sandbox):
    assert "can change: `flotilla set RUN ppo.epochs=VALUE`" in sandbox.run("explain", "ppo.epochs").stdout
    assert "cannot change in flight" in sandbox.run("explain", "env.num_envs").stdout
