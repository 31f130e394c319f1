"""What grpcurl and the launcher's subcommands show of a run, and stopping it."""

import json
import os
import signal

import pytest

from harness import GRPCURL, call, grpcurl, poll, summary, told_status, training_lines

COORDINATOR = "flotilla.v1.CoordinatorService"
HEALTH = "grpc.health.v1.Health/Check"

pytestmark = pytest.mark.skipif(not GRPCURL.exists(), reason="no grpcurl: cmake/setup.sh test")


@pytest.fixture(scope="module")
def job(shared_sandbox):
    job = shared_sandbox.train("cartpole_ppo", "--nproc-per-node", 2, "--set", "total_env_steps=1000000000")
    job.await_update(5)
    return job


def test_grpcurl_lists_the_coordinators_services(job):
    services = grpcurl(job.address(), "list").split()
    assert {COORDINATOR, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= set(services)
    assert "GetStatus" in grpcurl(job.address(), "describe", COORDINATOR)


def trains(status):
    """The status, once what each learner says of itself is from its training."""
    said = all(int(learner.get("update", 0)) > 0 and learner.get("env_worker") for learner in status["learner"])
    return status if said and int(status.get("update", 0)) > 0 else None


def test_status_names_everything_and_moves(job):
    before = poll(lambda: trains(told_status(job.address())), "both learners' news")
    assert before["run_id"] == "run" and before["state"] == "ACTIVE" and before["world_size"] == 2
    assert int(before["generation"]) == 1 and before["version"]
    for rank, learner in enumerate(before["learner"]):
        assert learner.get("rank", 0) == rank and learner.get("local_rank", 0) == rank
        assert learner["id"] == f"learner/0/{rank}" and learner["state"] == "alive"
        assert int(learner["pid"]) in job.sandbox.processes()
        assert learner["phase"] in ("STEPPING", "INFERENCE", "LEARNING", "COLLECTIVE", "EVALUATING", "SAVING")
        # What it chose, not what it was told ("auto").
        assert learner["device"] == "cpu" or learner["device"].startswith("cuda:")
        assert learner.get("last_heartbeat_seconds", 0) < 5
        (worker,) = learner["env_worker"]
        assert worker["num_envs"] == 4 and worker["address"].startswith("unix:")
        assert int(worker["pid"]) in job.sandbox.processes()

    def moved():
        now = told_status(job.address())
        return now if int(now["update"]) > int(before["update"]) else None

    after = poll(moved, "a later update")
    assert int(after["global_step"]) == int(after["update"]) * 1024
    assert after["steps_per_second"] > 0 and after["mean_return"] > 0
    assert after["uptime_seconds"] > before["uptime_seconds"]


def test_health_says_serving(job):
    assert call(job.address(), HEALTH) == {"status": "SERVING"}
    assert call(job.address(), HEALTH, {"service": COORDINATOR}) == {"status": "SERVING"}


def test_watching_shows_update_after_update(job):
    import grpc
    from flotilla.v1 import coordinator_pb2

    updates = []
    watch = job.coordinator().WatchStatus(coordinator_pb2.WatchStatusRequest(interval_ms=50), timeout=60)
    for status in watch:
        updates.append(status.update)
        if len(set(updates)) >= 4:
            break
    watch.cancel()
    assert updates == sorted(updates)
    with pytest.raises(grpc.RpcError):
        next(watch)


def test_a_worker_says_what_it_plays(job):
    address = job.status().learner[1].env_worker[0].address

    def session():
        answer = call(address, "flotilla.v1.EnvService/GetSpec")
        (session,) = answer["session"]
        return answer, session

    answer, first = session()
    assert answer["spec"]["env_id"] == "CartPole-v1"
    assert answer["spec"]["observation"][0]["shape"] == ["4"]
    assert "CartPole-v1" in answer["env_id"]
    assert first["learner_id"].startswith("learner/0/1") and first["num_envs"] == 4
    poll(lambda: int(session()[1]["steps"]) > int(first["steps"]), "the worker's steps to grow")
    assert call(address, HEALTH) == {"status": "SERVING"}


def test_flotilla_status_as_json_and_for_people(job):
    result = job.sandbox.run("status", "--run-dir", job.run_dir, "--json")
    assert result.returncode == 0, result.stderr
    status = json.loads(result.stdout)
    assert status["state"] == "ACTIVE" and status["world_size"] == 2 and len(status["learner"]) == 2
    assert int(status["update"]) > 0 and status["stop"] is False
    people = job.sandbox.run("status", "--coordinator", job.address())
    assert people.returncode == 0 and "rank" in people.stdout and "learner" in people.stdout


def test_stopping_saves_and_ends_in_order(job):
    """The last one: it ends the run that the others look at."""
    before = job.status().update
    stop = job.sandbox.run("stop", "--run-dir", job.run_dir, "--reason", "enough of it")
    assert stop.returncode == 0, stop.stderr
    result = job.succeeds()
    assert result["status"] == "stopped" and result["stop_update"] >= before
    assert len(set(result["parameters_sha256"])) == 1 and len(result["parameters_sha256"]) == 2
    latest = job.run_dir / "checkpoints" / "latest"
    assert latest.resolve().name == f"step_{result['global_steps']:012d}"
    assert training_lines(job.run_dir)[-1]["update"] == result["updates"]
    again = job.sandbox.run("status", "--run-dir", job.run_dir, "--json")
    assert again.returncode == 0 and json.loads(again.stdout)["status"] == "stopped"
    assert summary(job.run_dir) == result


def test_a_coordinator_of_ones_own_says_who_may_change_its_run(sandbox):
    server = sandbox.serve("flotilla", "coordinator", "--listen=127.0.0.1:0", "--address-file=address", "--run-id=run")
    address = sandbox.folder / "address"
    poll(lambda: address.exists() and address.read_text().strip(), "the coordinator's address")
    address = address.read_text().strip()
    token = sandbox.folder / "flotilla_coordinator.token"
    assert f"--token-file {token}" in (sandbox.folder / "flotilla.log").read_text()
    assert token.stat().st_mode & 0o777 == 0o600
    told_status(address)  # everybody may look

    result = sandbox.run("stop", "--coordinator", address)
    assert result.returncode == 1 and "--token-file" in result.stderr
    words = ("cartpole_fast", "--coordinator", address, "--token-file", token, "--steps", 20000)
    sandbox.train(*words).process.wait(60)
    assert summary(sandbox.folder / "run")["status"] == "completed"
    server.terminate()
    assert server.wait(20) == 0


def test_a_first_node_that_is_lost_comes_back_to_a_coordinator_of_ones_own(sandbox):
    server = sandbox.serve("flotilla", "coordinator", "--listen=127.0.0.1:0", "--address-file=address", "--run-id=run")
    address = sandbox.folder / "address"
    poll(lambda: address.exists() and address.read_text().strip(), "the coordinator's address")
    address = address.read_text().strip()
    words = [
        "cartpole_fast", "--coordinator", address, "--token-file", sandbox.folder / "flotilla_coordinator.token",
        "--steps=1000000000", "--set=evaluation.every_updates=100000", "--set=checkpoint.every_updates=20",
    ]  # fmt: skip
    job = sandbox.train(*words)
    for restarts in range(3):  # its learner was replaced before
        seen = job.await_status(
            lambda s, n=restarts: len(s.learner) == 1 and s.learner[0].restarts == n and s.learner[0].state == "alive" and s.update > 20,
            f"a learner after {restarts} restarts",
        )
        os.kill(seen.learner[0].pid, signal.SIGKILL) if restarts < 2 else job.process.kill()
    job.process.wait(20)
    poll(lambda: not any("learner" in words for words in sandbox.processes().values()), "the learner's end")
    again = sandbox.train("--resume", *words[1:], "--max-restarts=0")
    again.await_status(lambda s: s.update > seen.update and s.learner[0].restarts == 3, "the run to go on")
    again.process.terminate()
    assert again.process.wait(60) == 75, again.diagnosis()
    server.terminate()
    assert server.wait(20) == 0


@pytest.mark.parametrize("flags", [[], ["--run-token=token"]])
def test_an_open_address_is_offered_only_what_it_takes(sandbox, flags):
    result = sandbox.run("coordinator", "--listen=0.0.0.0:0", *flags)
    assert result.returncode == 2 and "--run-token" not in result.stderr
    accepted = sandbox.serve("flotilla", "coordinator", "--listen=0.0.0.0:0", "--address-file=address", "--insecure")
    poll(lambda: (sandbox.folder / "address").exists(), "the coordinator's address")
    accepted.terminate()
    assert accepted.wait(20) == 0
