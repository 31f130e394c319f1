"""One learner of four is lost, the coordinator is lost, the disk is full: training goes on."""

import json
import os
import signal
import subprocess
import time

import pytest

from harness import coordinator_pb2, poll, summary, told_status, training_lines

LEARNERS = 4
UPDATE = LEARNERS * 8 * 32  # environment steps
ENDLESS = 10**9
DEAD_AFTER = 5  # seconds, as it is by default
# What recovery may take: it is noticed, given up and replaced.
BUDGET = 2 * DEAD_AFTER + 1
STANDS_STILL = 5  # seconds; longer than a member may be silent in that test


@pytest.fixture
def start(sandbox):
    def starter(*words, updates=ENDLESS, evaluation="", **kwargs):
        return sandbox.train(
            sandbox.config("cartpole_fast", evaluation), "--nproc-per-node", LEARNERS, "--set=env.num_envs=8",
            f"--set=total_env_steps={updates * UPDATE}", f"--set=distributed.dead_after_seconds={DEAD_AFTER}",
            "--set=distributed.heartbeat_seconds=0.2", *words, **kwargs,
        )  # fmt: skip

    return starter


def pids(status):
    return {learner.rank: learner.pid for learner in status.learner}


def alive(told):
    """Itself, where all are."""
    return told if [learner["state"] for learner in told["learner"]] == LEARNERS * ["alive"] else None


def stop(job):
    assert job.sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    result = job.succeeds()
    assert result["status"] == "stopped"
    return result


def assert_whole(job, result):
    """Every update counts once, and all ranks end with the same parameters."""
    assert result["world_size"] == LEARNERS
    updates = result["updates"]
    assert result["global_steps"] == updates * UPDATE
    assert len(result["parameters_sha256"]) == LEARNERS and len(set(result["parameters_sha256"])) == 1
    recorded = [line["update"] for line in training_lines(job.run_dir)]
    assert recorded == list(range(1, updates + 1))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [2, 0])
def test_survivors_go_on_in_their_processes(start, number, rank):
    job = start()
    before = job.await_update(20)
    os.kill(pids(before)[rank], number)
    lost_at = time.monotonic()
    after = job.await_status(
        lambda s: s.generation == 2 and s.world_size == LEARNERS and s.update > before.update + 2,
        "a second generation that trains",
    )
    took = time.monotonic() - lost_at
    assert took < BUDGET, f"recovery took {took:.1f} s"
    survivors = {r: pid for r, pid in pids(before).items() if r != rank}
    assert survivors.items() <= pids(after).items()
    assert pids(after)[rank] != pids(before)[rank]
    # What an operator sees.
    told = told_status(job.address())
    assert int(told["learner_restarts"]) == 1 and int(told["generation"]) == 2
    assert f"rank {rank} (" in told["fence_reason"], told
    result = stop(job)
    assert result["restarts"]["learner"] == 1
    assert_whole(job, result)


@pytest.mark.parametrize("how, code, ended", [
    ("flotilla stop", 0, "stopped"),
    (signal.SIGTERM, 75, "preempted"),
    (signal.SIGINT, 130, "stopped"),
])  # fmt: skip
def test_a_stop_while_a_learner_is_being_replaced_saves_first(sandbox, start, how, code, ended):
    job = start()
    before = job.await_update(20)
    os.kill(pids(before)[2], signal.SIGKILL)
    job.await_status(lambda s: s.state != coordinator_pb2.ACTIVE, "the end of the generation")
    if how == "flotilla stop":
        assert sandbox.run("stop", f"--run-dir={job.run_dir}").returncode == 0
    else:
        job.process.send_signal(how)
    assert job.wait() == code, job.diagnosis()
    result = summary(job.run_dir)
    assert result["status"] == ended and result["world_size"] == LEARNERS - 1, job.diagnosis()
    assert result["updates"] >= before.update and result["global_steps"] == result["updates"] * UPDATE
    assert len(result["parameters_sha256"]) == LEARNERS - 1 and len(set(result["parameters_sha256"])) == 1
    assert (job.run_dir / "checkpoints" / "latest").resolve().name == f"step_{result['global_steps']:012d}"
    recorded = [line["update"] for line in training_lines(job.run_dir)]
    assert recorded == list(range(1, result["updates"] + 1))


def coordinator_of(sandbox):
    return poll(
        lambda: [pid for pid, words in sandbox.processes().items() if "flotilla-coordinator" in words.split()[0]],
        "a coordinator", 20,
    )[0]  # fmt: skip


def test_a_killed_coordinator_comes_back_and_disturbs_nobody(sandbox, start):
    job = start()
    before = job.await_update(20)
    address = job.address()
    os.kill(coordinator_of(sandbox), signal.SIGKILL)
    after = job.await_status(
        lambda s: s.epoch != before.epoch and s.update > before.update + 100 and len(s.learner) == LEARNERS,
        "the next coordinator to know everybody",
    )
    assert job.address() == address
    assert after.generation == 1 and pids(after) == pids(before)
    # Who is a moment late is suspect.
    told = poll(lambda: alive(told_status(job.address())), "all to be alive")
    assert told["epoch"] == after.epoch and told["state"] == "ACTIVE" and int(told["generation"]) == 1
    result = stop(job)
    assert result["restarts"]["learner"] == 0
    assert_whole(job, result)
    assert "the coordinator died" in job.output()


def test_a_coordinator_that_stands_still_disturbs_nobody(sandbox, start):
    job = start("--set=distributed.dead_after_seconds=2")
    before = job.await_update(20)
    coordinator = coordinator_of(sandbox)
    os.kill(coordinator, signal.SIGSTOP)
    recorded = len(training_lines(job.run_dir))
    began = time.monotonic()
    job.poll(lambda: time.monotonic() - began > STANDS_STILL, "time to pass")
    assert len(training_lines(job.run_dir)) > recorded
    os.kill(coordinator, signal.SIGCONT)
    after = job.await_update(before.update + 100)
    assert told_status(job.address())["fence_reason"] == ""
    assert after.generation == 1 and pids(after) == pids(before)
    result = stop(job)
    assert result["restarts"]["learner"] == 0
    assert_whole(job, result)


def test_a_kill_during_a_checkpoint_leaves_the_one_before(sandbox, start):
    job = start("--set=checkpoint.every_updates=1", "--set=checkpoint.keep=2")
    before = job.await_update(20)
    checkpoints = job.run_dir / "checkpoints"
    # Weights that are being written lie aside.
    poll(lambda: list(checkpoints.glob(".aside_*/weights.safetensors")), "a checkpoint in the writing", interval=0)
    os.kill(pids(before)[0], signal.SIGKILL)
    evaluated = sandbox.run("evaluate", checkpoints / "latest", "--episodes=1")
    assert evaluated.returncode == 0, evaluated.stderr
    job.await_status(lambda s: s.generation == 2 and s.update > before.update + 5, "a second generation that trains")
    assert "rank 0 (" in told_status(job.address())["fence_reason"]
    result = stop(job)
    assert result["restarts"]["learner"] == 1
    assert_whole(job, result)
    assert not list(checkpoints.glob(".aside_*"))
    assert (checkpoints / "latest").resolve().name == f"step_{result['global_steps']:012d}"


def test_a_loss_of_rank_0_while_it_saves_the_result(sandbox, start):
    """The others have finished, and have what it takes to finish again."""
    # One episode after the other, each of 100 steps of 1 ms: 6 s on the fastest machine, too.
    job = start(
        "--set=env.id=Sleep", "--set=env.options.sleep.step_ms=1", updates=100,
        evaluation="evaluation { every_updates: 1000 episodes: 60 num_envs: 1 }",
    )  # fmt: skip
    status = job.await_status(
        lambda s: [learner.phase for learner in s.learner]
        == [coordinator_pb2.EVALUATING] + (LEARNERS - 1) * [coordinator_pb2.FINISHED],
        "the last evaluation",
    )
    os.kill(pids(status)[0], signal.SIGKILL)
    result = job.succeeds()
    assert result["status"] == "completed" and result["updates"] == 100
    assert result["restarts"]["learner"] == 1
    assert_whole(job, result)


@pytest.fixture
def small_disk(sandbox):
    """A file system of 16 MB for the run's folder."""
    folder = sandbox.folder / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "flotilla-test", folder], check=True)
    yield folder
    sandbox.close()
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """A file that takes what is left of it."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(bytes(65536)):
                pass
        except OSError:
            pass  # full
    return filler


@pytest.fixture
def full(start, small_disk):
    """A run whose disk is full, its status once it says so, and what fills the disk."""
    job = start("--set=checkpoint.every_updates=20", "--set=checkpoint.keep=2", run_dir="disk/run")
    job.poll(lambda: (job.run_dir / "checkpoints" / "latest").exists(), "a checkpoint")
    filler = fill(small_disk)
    return job, job.await_status(lambda s: s.learner[0].trouble, "trouble"), filler


def stop_once_there_is_room(job, filler):
    latest = job.run_dir / "checkpoints" / "latest"
    last = latest.resolve().name
    filler.unlink()
    job.poll(lambda: latest.resolve().name > last, "a checkpoint after the disk was full")
    return stop(job)


def test_a_full_disk_costs_checkpoints_and_nothing_else(sandbox, full):
    job, full, filler = full
    checkpoints, log = job.run_dir / "checkpoints", job.run_dir / "logs" / "rank_0.log"
    full = job.await_update(full.update + 50)
    # The log is on the same disk and may lack the lines that say so: the status and the launcher do.
    told = told_status(job.address())["learner"][0]["trouble"]
    assert "was not written" in told and str(checkpoints) in told and "No space left on device" in told
    job.poll(lambda: "No space left on device" in job.output(), "the launcher to say so")
    assert (checkpoints / "latest" / "weights.safetensors").stat().st_size > 0
    evaluated = sandbox.run("evaluate", checkpoints / "latest", "--episodes=1")
    assert evaluated.returncode == 0, evaluated.stderr
    result = stop_once_there_is_room(job, filler)
    assert result["restarts"]["learner"] == 0 and full.generation == 1
    assert "is being written again" in log.read_text()
    assert_whole(job, result)


def test_rank_0_is_replaced_though_the_disk_is_full(full):
    job, before, filler = full
    os.kill(pids(before)[0], signal.SIGKILL)
    job.await_status(
        lambda s: s.generation == 2 and s.world_size == LEARNERS and s.update > before.update + 20,
        "a second generation that trains",
    )
    result = stop_once_there_is_room(job, filler)
    assert result["restarts"]["learner"] == 1 and result["world_size"] == LEARNERS
    assert result["global_steps"] == result["updates"] * UPDATE
    assert len(set(result["parameters_sha256"])) == 1
    # Lines that waited for room went with the process, and one may be cut off; none stands there twice.
    recorded = []
    for line in (job.run_dir / "metrics.jsonl").read_text().splitlines():
        if line.endswith("}") and '"charts/SPS"' in line:
            recorded.append(json.loads(line)["update"])
    assert recorded == sorted(set(recorded)) and recorded[-1] == result["updates"]
