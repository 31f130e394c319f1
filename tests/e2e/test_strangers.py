"""Clients that are silent, late, second or wrong: training goes on."""

import os
import queue
import signal
import socket

import grpc
import numpy as np
import pytest
from flotilla.v1 import coordinator_pb2, coordinator_pb2_grpc, env_pb2, env_pb2_grpc

from harness import call, poll


@pytest.fixture(scope="module")
def job(shared_sandbox):
    job = shared_sandbox.train(
        "cartpole_ppo", "--nproc-per-node", 2, "--set", "total_env_steps=1000000000", "--set", "env.num_workers=2",
        "--set", "evaluation.every_updates=0",
    )  # fmt: skip
    job.await_update(3)
    yield job
    # As the README shows it.
    call(job.address(), "flotilla.v1.CoordinatorService/Stop", token=job.token())
    result = job.succeeds()
    assert result["status"] == "stopped" and result["restarts"]["learner"] == 0
    assert len(set(result["parameters_sha256"])) == 1


class Stream:
    """A hand-written learner's end of EnvService.Play."""

    def __init__(self, address):
        self._requests = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(address)
        self._replies = env_pb2_grpc.EnvServiceStub(self._channel).Play(iter(self._requests.get, None), timeout=60)

    def send(self, **request):
        self._requests.put(env_pb2.PlayRequest(**request))

    def hello(self, learner_id="stranger", incarnation=1, **fields):
        fields = dict(protocol_version=1, env_id="CartPole-v1", num_envs=2, num_groups=1, seed=1) | fields
        self.send(hello=env_pb2.Hello(learner_id=learner_id, incarnation=incarnation, **fields))

    def receive(self):
        return next(self._replies)

    def ending(self):
        """The status with which the server ends it."""
        with pytest.raises(grpc.RpcError) as error:
            while True:
                next(self._replies)
        return error.value.code(), error.value.details()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._requests.put(None)
        self._channel.close()


def worker(job, rank=0, index=0):
    """One that plays."""
    learner = job.await_status(
        lambda s: s.learner[rank].env_worker and s.learner[rank].env_worker[index].state == "playing", "a worker that plays"
    ).learner[rank]
    return learner.env_worker[index]


def session(address):
    with grpc.insecure_channel(address) as channel:
        answer = env_pb2_grpc.EnvServiceStub(channel).GetSpec(env_pb2.GetSpecRequest(), timeout=20)
        return answer.session[0] if answer.session else None


def test_silent_clients_hold_nothing_up(job):
    host, port = job.address().rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10), socket.socket(socket.AF_UNIX) as local:
        local.settimeout(10)
        local.connect(worker(job).address.removeprefix("unix:"))
        job.await_more_updates(20)


def test_an_open_stream_that_says_nothing_holds_nothing_up(job):
    with Stream(worker(job).address):
        job.await_more_updates(20)


def test_noise_on_the_coordinators_port_holds_nothing_up(job):
    host, port = job.address().rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as noise:
        noise.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 64)
        job.await_more_updates(5)


def test_a_second_learner_is_refused(job):
    target = worker(job)
    player = session(target.address)
    with Stream(target.address) as second:
        second.hello()
        code, details = second.ending()
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert player.learner_id in details and "stranger" in details and "wait" in details
    job.await_more_updates(5)
    assert worker(job).pid == target.pid, "the worker was restarted"


def test_an_older_incarnation_is_refused(job):
    target = worker(job)
    player = session(target.address)
    with Stream(target.address) as late:
        late.hello(learner_id=player.learner_id, incarnation=player.incarnation)
        code, details = late.ending()
    assert code == grpc.StatusCode.ABORTED
    assert player.learner_id in details and "hello.incarnation" in details
    job.await_more_updates(5)
    assert worker(job).pid == target.pid, "the worker was restarted"


MALFORMED = [
    (dict(hello=env_pb2.Hello(protocol_version=99, learner_id="x", env_id="CartPole-v1", num_envs=2, num_groups=1)),
     grpc.StatusCode.FAILED_PRECONDITION, ("protocol_version", "99", "1")),
    (dict(hello=env_pb2.Hello(protocol_version=1, learner_id="x", env_id="CartPole-v1", num_envs=0, num_groups=1)),
     grpc.StatusCode.INVALID_ARGUMENT, ("num_envs", "0")),
    (dict(hello=env_pb2.Hello(protocol_version=1, learner_id="x", env_id="CartPole-v1", num_envs=3, num_groups=2)),
     grpc.StatusCode.INVALID_ARGUMENT, ("num_groups", "3", "2")),
    (dict(hello=env_pb2.Hello(protocol_version=1, learner_id="x", env_id="CartPole-v1", num_envs=1 << 30, num_groups=1)),
     grpc.StatusCode.INVALID_ARGUMENT, ("num_envs", str(1 << 30))),
    (dict(start=env_pb2.Start()), grpc.StatusCode.INVALID_ARGUMENT, ("hello",)),
]  # fmt: skip


@pytest.mark.parametrize("request_, code, words", MALFORMED)
def test_a_malformed_hello_is_answered_by_field_and_training_goes_on(job, request_, code, words):
    with Stream(worker(job).address) as stream:
        stream.send(**request_)
        got, details = stream.ending()
    assert got == code, details
    for word in words:
        assert word in details
    job.await_more_updates(2)


def test_a_newer_incarnation_evicts_and_the_evicted_learner_goes_on(job):
    before = job.status().env_worker_restarts
    target = worker(job, rank=1, index=1)
    player = session(target.address)
    evicted = next(learner.pid for learner in job.status().learner if learner.rank == 1)
    os.kill(evicted, signal.SIGSTOP)  # or it may end the worker before that has answered
    try:
        with Stream(target.address) as newer:
            newer.hello(learner_id=player.learner_id, incarnation=player.incarnation + 1, num_envs=2)
            assert newer.receive().welcome.spec.env_id == "CartPole-v1"
    finally:
        os.kill(evicted, signal.SIGCONT)
    # The learner it took the place from gets a worker of its own again.
    job.await_status(lambda s: s.env_worker_restarts > before, "the evicted learner to replace its worker")
    job.await_more_updates(5)
    assert worker(job, rank=1, index=1).pid != target.pid


def test_wrong_actions_are_answered_by_field(job, sandbox):
    address = f"unix:{sandbox.tmp}/env"
    server = sandbox.serve("flotilla-envserver", f"--listen={address}")
    poll(lambda: (sandbox.tmp / "env").exists() or server.poll() is not None, "the env server")
    wrong = [
        (env_pb2.ActionBatch(group=0, seq=0, action=[b"123"]), ("action", "16", "3")),
        (env_pb2.ActionBatch(group=0, seq=0), ("action", "1", "0")),
        (env_pb2.ActionBatch(group=7, seq=0, action=[bytes(16)]), ("group", "7")),
        (env_pb2.ActionBatch(group=0, seq=5, action=[bytes(16)]), ("seq", "5", "0")),
        (env_pb2.ActionBatch(group=0, seq=0, action=[np.int64([0, 9]).tobytes()]), ("action", "9", "1")),
    ]
    for actions, words in wrong:
        with Stream(address) as stream:
            stream.hello()
            assert stream.receive().HasField("welcome")
            stream.send(start=env_pb2.Start())
            assert stream.receive().HasField("step")
            stream.send(actions=actions)
            code, details = stream.ending()
        assert code == grpc.StatusCode.INVALID_ARGUMENT, details
        for word in words:
            assert word in details, details
    with Stream(address) as good:  # the server still serves
        good.hello()
        assert good.receive().HasField("welcome")
    server.terminate()
    assert server.wait(30) == 0


COORDINATOR_CALLS = [
    ("JoinGeneration", coordinator_pb2.JoinGenerationRequest(member_id="nobody"), "nobody"),
    ("KvSet", coordinator_pb2.KvSetRequest(generation=1, key="k" * 5000, value=b"x"), "key"),
    ("KvSet", coordinator_pb2.KvSetRequest(generation=1, key="k", value=bytes(2 << 20)), "value"),
    ("KvSet", coordinator_pb2.KvSetRequest(generation=999, key="k", value=b"x"), "999"),
    ("Register", coordinator_pb2.RegisterRequest(), "member"),
    ("Register", coordinator_pb2.RegisterRequest(member=coordinator_pb2.Member(
        id="learner/0/9", role=coordinator_pb2.LEARNER, version="0.0.0-other", config_digest="00")), "0.0.0-other"),
]  # fmt: skip


@pytest.mark.parametrize("method, request_, word", COORDINATOR_CALLS)
def test_the_coordinator_refuses_by_name_and_training_goes_on(job, method, request_, word):
    with pytest.raises(grpc.RpcError) as error:
        getattr(job.coordinator(), method)(request_, timeout=20, metadata=job.metadata("learner/0/0"))
    assert error.value.code() not in (
        grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK,
    )  # fmt: skip
    assert word in error.value.details()
    before = job.status()
    assert before.generation == 1 and before.world_size == 2
    job.await_more_updates(2)


def test_a_strange_heartbeat_is_answered(job):
    def answer(heartbeat):
        with grpc.insecure_channel(job.address()) as channel:
            stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
            return next(stub.Session(iter([heartbeat]), timeout=20, metadata=job.metadata("learner/0/0")))

    with pytest.raises(grpc.RpcError) as error:
        answer(coordinator_pb2.Heartbeat())
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "member_id" in error.value.details()
    assert answer(coordinator_pb2.Heartbeat(member_id="learner/0/7", incarnation=3)).register_again
    assert len(job.status().learner) == 2
    job.await_more_updates(2)


def code_and_words(method, request_, **how):
    """With what a call is refused."""
    with pytest.raises(grpc.RpcError) as error:
        answer = method(request_, timeout=20, **how)
        if hasattr(answer, "__next__"):
            next(answer)
    return error.value.code(), error.value.details()


SERVICE = coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"]
READS = {"GetStatus", "WatchStatus"}


def test_without_the_runs_token_strangers_may_look_and_change_nothing(job):
    assert (job.run_dir / "token").stat().st_mode & 0o777 == 0o600
    before = job.status()
    with grpc.insecure_channel(job.address()) as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        assert next(stub.WatchStatus(coordinator_pb2.WatchStatusRequest(), timeout=20)).run_id == before.run_id
        for method in SERVICE.methods:
            if method.name in READS:
                continue
            request_ = getattr(coordinator_pb2, method.input_type.name)()
            request_ = iter([request_]) if method.name == "Session" else request_
            for metadata in ([], [("authorization", "Bearer wrong")]):
                code, words = code_and_words(getattr(stub, method.name), request_, metadata=metadata)
                assert code == grpc.StatusCode.UNAUTHENTICATED and "RUN/token" in words, (method.name, words)
    job.await_more_updates(2)
    after = job.status()
    assert (after.generation, after.stop, after.world_size) == (before.generation, False, 2)


def test_with_the_token_nobody_speaks_for_a_learner(job):
    """What ends a run, or falsifies it, takes the secret of a learner's slot."""
    verdict = coordinator_pb2.Evaluation(round=1000, episodes=1, mean_return=500, stop=True)
    learner = coordinator_pb2.Member(id="learner/0/0", incarnation=2, role=coordinator_pb2.LEARNER)
    server = coordinator_pb2.Member(id="learner/0/0", incarnation=2**64 - 1, role=coordinator_pb2.ENV_SERVER)
    forged = [
        ("ReportEvaluation", coordinator_pb2.ReportEvaluationRequest(member_id="learner/0/0", evaluation=verdict)),
        ("ReportFailure", coordinator_pb2.ReportFailureRequest(member_id="learner/0/0", generation=1)),
        ("Leave", coordinator_pb2.LeaveRequest(member_id="learner/0/1")),
        ("CloseRun", coordinator_pb2.CloseRunRequest(member_id="learner/0/0", status="failed")),
        ("JoinGeneration", coordinator_pb2.JoinGenerationRequest(member_id="learner/0/1", after_generation=1)),
        ("KvSet", coordinator_pb2.KvSetRequest(generation=1, key="k")),
        ("Session", iter([coordinator_pb2.Heartbeat(member_id="learner/0/0", generation=5)])),
        ("Register", coordinator_pb2.RegisterRequest(member=learner)),
    ]
    other = job.metadata() + [("flotilla-member", "learner/0/0"), ("flotilla-secret", "0" * 64)]
    for method, request_ in forged:
        code, words = code_and_words(getattr(job.coordinator(), method), request_, metadata=other)
        assert code == grpc.StatusCode.PERMISSION_DENIED and "learner/0/" in words, (method, words)
    request_ = coordinator_pb2.RegisterRequest(member=server)
    for metadata in (other, job.metadata("learner/0/0")):
        code, words = code_and_words(job.coordinator().Register, request_, metadata=metadata)
        assert code == grpc.StatusCode.INVALID_ARGUMENT and "ENV_SERVER" in words, words
    server.role = coordinator_pb2.LEARNER
    code, words = code_and_words(
        job.coordinator().Register, coordinator_pb2.RegisterRequest(member=server), metadata=job.metadata("learner/0/0")
    )
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "jumps" in words, words
    job.await_more_updates(2)
    status = job.status()
    assert status.generation == 1 and not status.evaluation.round and not status.stop


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_an_evaluation_is_finite(job, number):
    verdict = coordinator_pb2.Evaluation(round=1000, episodes=1, mean_return=number, stop=True)
    request_ = coordinator_pb2.ReportEvaluationRequest(member_id="learner/0/0", evaluation=verdict)
    code, words = code_and_words(job.coordinator().ReportEvaluation, request_, metadata=job.metadata("learner/0/0"))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "mean_return" in words
    assert not job.status().evaluation.round


def test_stop_by_address_names_what_it_lacks(job):
    stranger = job.sandbox.run("stop", "--coordinator", job.address())
    assert stranger.returncode == 1, stranger
    assert "refuses us" in stranger.stderr and "--token-file" in stranger.stderr and "still going" not in stranger.stderr
    assert job.sandbox.run("status", "--coordinator", job.address()).returncode == 0  # anyone may look
    assert not job.status().stop
