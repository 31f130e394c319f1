"""flotilla_gym.dial against a coordinator and learners of the test's own, that do what runs hardly ever do."""

import contextlib
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import time
from concurrent import futures

import grpc
import pytest

from play_client import BIN, TIMEOUT, env_pb2
from ports import free_port  # where play_client looks, too
from flotilla.v1 import coordinator_pb2  # which play_client has compiled

MODULES = BIN.parent / "share" / "flotilla" / "python"


class Service:
    """Serves `handlers`, name -> (request class, whether it streams, function of requests and context)."""

    def __init__(self, name, handlers, address="127.0.0.1:0"):
        self.server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
        table = {}
        for method, (request, streams, function) in handlers.items():
            kind = grpc.stream_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
            table[method] = kind(function, request.FromString, lambda message: message.SerializeToString())
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"flotilla.v1.{name}", table),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port(address)}"
        self.server.start()

    def stop(self):
        self.server.stop(None).wait()


class Coordinator(Service):
    def __init__(self, address="127.0.0.1:0"):
        self.command = coordinator_pb2.Command()
        self.answering = True
        self.dead_after_ms = 20000
        self.registered = queue.Queue()  # (Member, its metadata)
        self.left = queue.Queue()
        self.beats = queue.Queue()
        c = coordinator_pb2
        handlers = {
            "Register": (c.RegisterRequest, False, self._register),
            "Session": (c.Heartbeat, True, self._session),
            "Leave": (c.LeaveRequest, False, self._leave),
        }
        super().__init__("CoordinatorService", handlers, address)

    def _register(self, request, context):
        self.registered.put((request.member, dict(context.invocation_metadata())))
        return coordinator_pb2.RegisterResponse(heartbeat_ms=50, dead_after_ms=self.dead_after_ms)

    def _session(self, beats, context):
        for beat in beats:
            self.beats.put(beat)
            if self.answering:
                yield self.command

    def _leave(self, request, context):
        self.left.put(request)
        return coordinator_pb2.LeaveResponse()


class Learner(Service):
    """Has who dials in played by `play(requests)`, which yields what it sends; notes its introduction."""

    def __init__(self, play):
        self.introductions = queue.Queue()
        self.ended = queue.Queue()
        self._play = play
        super().__init__("DialService", {"Dial": (env_pb2.PlayReply, True, self._dial)})

    def _dial(self, replies, context):
        context.add_callback(lambda: self.ended.put(None))
        introduction = next(replies).introduction
        self.introductions.put(introduction)
        yield from self._play(replies)


def hello(env_id="gym:CartPole-v1", num_envs=2):
    return env_pb2.PlayRequest(
        hello=env_pb2.Hello(
            protocol_version=1, learner_id="learner", incarnation=1, env_id=env_id, num_envs=num_envs, num_groups=1, seed=1
        )
    )


def actions(seq):
    columns = [bytes(16)]
    return env_pb2.PlayRequest(actions=env_pb2.ActionBatch(group=0, seq=seq, action=columns))


def says_nothing(replies):
    yield from ()
    for _ in replies:
        pass


def begins(replies):
    yield hello()
    assert next(replies).welcome.spec.env_id == "gym:CartPole-v1"
    yield env_pb2.PlayRequest(start=env_pb2.Start())
    assert next(replies).step.seq == 0


def forgets(replies):
    """Sends no actions."""
    yield from begins(replies)
    for _ in replies:
        pass


def plays(replies):
    yield from begins(replies)
    for seq in range(10**9):
        yield actions(seq)
        assert next(replies).step.seq == seq + 1
        time.sleep(0.005)  # a policy's


class Client:
    def __init__(self, folder, address, env="'CartPole-v1'", wrapped="{}", **how):
        self.output = folder / "client.out"
        how = "".join(f", {name}={value!r}" for name, value in how.items())
        code = "import flotilla_gym; " + wrapped.format(f"flotilla_gym.dial('{address}', {env}{how})")
        with open(self.output, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], cwd=folder, env=os.environ | {"PYTHONPATH": str(MODULES)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def said(self):
        return self.output.read_text()

    def await_words(self, words):
        deadline = time.monotonic() + TIMEOUT
        while words not in self.said():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.01)


@pytest.fixture
def run(tmp_path):
    """coordinator, learner(play), dial(**how): all gone afterwards."""
    with contextlib.ExitStack() as stack:

        class Run:
            def coordinator(self, *words):
                return self._served(Coordinator(*words))

            def learner(self, play):
                return self._served(Learner(play))

            def _served(self, service):
                stack.callback(service.stop)
                return service

            def dial(self, address, **how):
                client = Client(tmp_path, address, **how)
                stack.callback(client.process.wait)
                stack.callback(client.process.kill)
                return client

        yield Run()


def order(learner, name="learner/0/0"):
    return coordinator_pb2.Command(dial=learner.address, dial_learner=name)


def get(what):
    return what.get(timeout=TIMEOUT)


def test_it_registers_dials_where_told_and_ends_with_the_run(run):
    coordinator, learner = run.coordinator(), run.learner(plays)
    client = run.dial(coordinator.address)
    member, metadata = get(coordinator.registered)
    assert member.dials and member.role == coordinator_pb2.ENV_SERVER and not member.address
    assert metadata["flotilla-member"] == member.id and len(metadata["flotilla-secret"]) >= 32
    coordinator.command = order(learner)
    assert get(learner.introductions).server_id == member.id
    while get(coordinator.beats).env_steps < 20:
        pass
    coordinator.command = coordinator_pb2.Command(closed=True)
    assert client.process.wait(TIMEOUT) == 0, client.said()
    get(learner.ended)


def test_it_dials_from_a_notebook_too_which_has_a_loop_of_its_own(run):
    coordinator, learner = run.coordinator(), run.learner(plays)
    notebook = "import asyncio; loop = asyncio.new_event_loop(); loop.call_soon(lambda: {}); loop.run_forever()"
    client = run.dial(coordinator.address, wrapped=notebook)
    coordinator.command = order(learner)
    get(learner.introductions)
    client.process.send_signal(signal.SIGINT)
    get(coordinator.left)
    assert client.process.wait(TIMEOUT) != 0 and "KeyboardInterrupt" in client.said()


@pytest.mark.parametrize("play, how", [(says_nothing, {"hello_timeout": 0.3}), (forgets, {"actions_timeout": 0.3})])
def test_a_learner_that_says_nothing_is_dialled_anew(run, play, how):
    coordinator, learner = run.coordinator(), run.learner(play)
    client = run.dial(coordinator.address, **how)
    coordinator.command = order(learner)
    first, second = get(learner.introductions), get(learner.introductions)
    assert (second.server_id, second.incarnation) == (first.server_id, first.incarnation + 1)
    get(learner.ended)
    client.await_words("came within 0.3 s")


def test_a_peer_that_only_seems_to_be_there_is_given_up(run):
    """It accepts connections, and that is all."""
    coordinator = run.coordinator()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        client = run.dial(coordinator.address, connect_timeout=0.3)
        coordinator.command = coordinator_pb2.Command(dial="127.0.0.1:%d" % mute.getsockname()[1], dial_learner="mute")
        client.await_words("nobody answers there within 0.3 s")
        learner = run.learner(plays)
        coordinator.command = order(learner)
        get(learner.introductions)


def test_a_learner_that_ends_the_stream_is_dialled_anew(run):
    coordinator, learner = run.coordinator(), run.learner(begins)
    run.dial(coordinator.address)
    coordinator.command = order(learner)
    incarnations = [get(learner.introductions).incarnation for _ in range(3)]
    assert incarnations == sorted(set(incarnations))


def test_another_order_is_followed_and_none_is_not(run):
    coordinator, first, second = run.coordinator(), run.learner(plays), run.learner(plays)
    run.dial(coordinator.address)
    coordinator.command = order(first)
    before = get(first.introductions)
    # As a coordinator says that has just been started again.
    coordinator.command = coordinator_pb2.Command()
    steps = get(coordinator.beats).env_steps
    while get(coordinator.beats).env_steps < steps + 20:
        pass
    assert first.introductions.empty() and first.ended.empty()
    coordinator.command = order(second, "learner/0/1")
    assert get(second.introductions).incarnation > before.incarnation
    get(first.ended)


def test_a_coordinator_that_is_lost_stops_nothing_and_is_found_again(run):
    # Where nobody is given a port meanwhile.
    coordinator, learner = run.coordinator(f"127.0.0.1:{free_port()}"), run.learner(plays)
    client = run.dial(coordinator.address)
    coordinator.command = order(learner)
    get(learner.introductions)
    member, _ = get(coordinator.registered)
    coordinator.stop()
    client.await_words("trying on")
    again = run.coordinator(coordinator.address)
    assert get(again.registered)[0] == member
    while get(again.beats).env_steps < 20:
        pass
    assert learner.ended.empty()  # still the same stream


def test_a_coordinator_that_says_nothing_is_asked_anew(run):
    coordinator = run.coordinator()
    coordinator.dead_after_ms = 2000
    run.dial(coordinator.address)
    coordinator.answering = False
    first, second = get(coordinator.registered)[0], get(coordinator.registered)[0]
    assert first == second


def test_who_is_interrupted_says_goodbye(run):
    coordinator, learner = run.coordinator(), run.learner(plays)
    client = run.dial(coordinator.address)
    coordinator.command = order(learner)
    get(learner.introductions)
    client.process.send_signal(signal.SIGINT)
    member, _ = get(coordinator.registered)
    assert get(coordinator.left).member_id == member.id
    assert client.process.wait(TIMEOUT) != 0
    get(learner.ended)


def test_an_identity_is_kept_and_its_starts_are_counted(run, tmp_path):
    coordinator, learner = run.coordinator(), run.learner(plays)
    coordinator.command = order(learner)
    seen = []
    for _ in range(2):
        client = run.dial(coordinator.address, identity="robot.id")
        member, metadata = get(coordinator.registered)
        seen.append((member.id, metadata["flotilla-secret"], member.incarnation, get(learner.introductions).incarnation))
        client.process.kill()
        client.process.wait()
    (id_0, secret_0, starts_0, dialled_0), (id_1, secret_1, starts_1, dialled_1) = seen
    assert (id_1, secret_1, starts_1) == (id_0, secret_0, starts_0 + 1)
    assert dialled_1 > dialled_0
    kept = pathlib.Path(tmp_path / "robot.id")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["starts"] == 2


def test_what_cannot_be_offered_is_said_before_anything_is_dialled(run):
    coordinator = run.coordinator()
    for env, words in (("3", "env is a int"), ("lambda: 3", "env_id=...")):
        client = run.dial(coordinator.address, env=env)
        assert client.process.wait(TIMEOUT) == 1
        assert words in client.said()
    client = run.dial(coordinator.address, token_file="missing")
    assert client.process.wait(TIMEOUT) == 1 and "missing" in client.said()
    assert coordinator.registered.empty()
