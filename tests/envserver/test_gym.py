"""gym: environments: on the Python server alone, as a learner's own worker plays
them, and behind flotilla-envserver, as other hosts do."""

import array
import asyncio
import dataclasses
import fcntl
import mmap
import os
import pathlib
import socket
import subprocess
import sys
import time
import types

import grpc
import gymnasium
import numpy as np
import pytest

from play_client import BIN, SOURCE, TIMEOUT, Player, Rows, Server, await_address, env_pb2, env_pb2_grpc, episode_seed

ROWS = 4
HERE = str(pathlib.Path(__file__).parent)
MODES = {"python": ["--env=gym:x"], "behind": []}
CODE = grpc.StatusCode


# What crosses flotilla-envserver is tried there too; each call then costs a start of Python.
both = pytest.mark.parametrize("server", list(MODES), indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    mode = MODES[getattr(request, "param", "python")]
    with Server(tmp_path_factory.mktemp("env"), *mode, "--retry-wait-ms=0", env={"PYTHONPATH": HERE}) as server:
        yield server


def options(**fields):
    """EnvOptions, from the module's own protos."""
    hello = env_pb2.Hello()
    for name, value in fields.items():
        if name in ("kwargs", "gym_kwargs"):
            getattr(hello.options, name).update(value)
        else:
            setattr(hello.options, name, value)
    return hello.options


@dataclasses.dataclass
class Address:
    address: str


def refusal(call):
    """(code, message) of the call's status."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def get_spec(server, env_id="", **fields):
    with grpc.insecure_channel(server.address) as channel:
        request = env_pb2.GetSpecRequest(env_id=env_id, options=options(**fields))
        return env_pb2_grpc.EnvServiceStub(channel).GetSpec(request, timeout=TIMEOUT)


def act_cartpole(row, observation, rng):
    # Half the rows balance until the step limit, half fall.
    return int(rng.integers(2)) if row % 2 else int(observation @ np.float32([0.1, 0.3, 1.0, 0.5]) > 0)


def act_pendulum(row, observation, rng):
    return rng.uniform(-2, 2, 1).astype(np.float32)


@both
@pytest.mark.parametrize("env_id, act", [("CartPole-v1", act_cartpole), ("Pendulum-v1", act_pendulum)])
def test_every_step_is_gymnasiums(server, env_id, act):
    rng = np.random.default_rng(0)
    twins = [gymnasium.make(env_id) for _ in range(ROWS)]
    episodes, returns, lengths = [0] * ROWS, [0.0] * ROWS, [0] * ROWS
    ended = {"terminated": 0, "truncated": 0}
    with Player(server.address, f"gym:{env_id}", ROWS, 2, worker_id=7, incarnation=rng.integers(1, 1 << 40)) as player:
        steps = player.receive_all()
        rows = Rows(player, steps)
        for row, twin in enumerate(twins):
            want, _ = twin.reset(seed=episode_seed(player.hello, row, 0))
            np.testing.assert_array_equal(rows.observation[row], want)
        for _ in range(1100):
            actions = [act(row, rows.observation[row], rng) for row in range(ROWS)]
            steps = player.step_all(steps, actions)
            rows = Rows(player, steps)
            for row, twin in enumerate(twins):
                want, reward, terminated, truncated, _ = twin.step(actions[row])
                truncated = truncated and not terminated
                assert rows.reward[row] == np.float32(reward)
                assert (rows.terminated[row], rows.truncated[row]) == (terminated, truncated)
                returns[row] += float(reward)
                lengths[row] += 1
                assert (row in rows.end) == (row in rows.final) == (terminated or truncated)
                if terminated or truncated:
                    ended["terminated" if terminated else "truncated"] += 1
                    np.testing.assert_array_equal(rows.final[row], want)
                    assert (rows.end[row].raw_return, rows.end[row].length) == (returns[row], lengths[row])
                    returns[row] = lengths[row] = 0
                    episodes[row] += 1
                    want, _ = twin.reset(seed=episode_seed(player.hello, row, episodes[row]))
                np.testing.assert_array_equal(rows.observation[row], want)
    assert ended["truncated"] > 0
    assert (ended["terminated"] > 0) == (env_id == "CartPole-v1")


@both
def test_batches_are_the_native_servers(server, tmp_path):
    """Byte for byte, where an environment starts in the states that the native one draws from the same seeds."""
    rng = np.random.default_rng(1)
    ends = 0
    with Server(tmp_path) as native, Player(native.address, "CartPole-v1", ROWS, 2, worker_id=3, seed=9) as ours:
        with Player(server.address, "gym:gym_envs:NativeCartPole-v0", ROWS, 2, worker_id=3, seed=9) as theirs:
            assert ours.spec.observation[0].shape == theirs.spec.observation[0].shape
            assert list(ours.spec.action) == list(theirs.spec.action)
            assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps
            steps = ours.receive_all()
            assert theirs.receive_all() == steps
            for _ in range(700):
                observation = Rows(ours, steps).observation
                actions = [act_cartpole(row, observation[row], rng) for row in range(ROWS)]
                wanted = ours.step_all(steps, actions)
                got = theirs.step_all(steps, actions)
                assert got == wanted
                steps = wanted
                ends += sum(len(step.episode_end) for step in steps)
    assert ends > 20


@both
def test_every_kind_of_space(server):
    with Player(server.address, "gym:gym_envs:Spaces-v0", 2) as player:
        spec = player.spec
        assert [leaf.path for leaf in spec.observation] == ["bits", "counts", "goal/0", "goal/1", "long", "pixels"]
        assert [leaf.path for leaf in spec.action] == ["0", "1", "2"]
        bits, counts, goal, value, long, pixels = spec.observation
        assert (bits.dtype, list(bits.shape), bits.num_values) == (env_pb2.INT64, [3], 2)
        assert (counts.num_values, list(counts.num_values_each)) == (0, [3, 4])
        assert (goal.dtype, list(goal.low), list(goal.high)) == (env_pb2.FLOAT32, [-1], [1])
        assert (value.dtype, list(value.shape), value.num_values) == (env_pb2.INT64, [], 5)
        assert (long.dtype, long.num_values) == (env_pb2.INT64, 0)
        assert (pixels.dtype, list(pixels.shape)) == (env_pb2.UINT8, [2, 3])
        assert spec.max_episode_steps == 0
        step = player.receive()
        # 0.1 is nearer to zero in float64 than in float32, which stands in the specification.
        player.send(step, [[0.1, -0.1], [0.05, 0]], [0, 4], [[0, 3], [2, 0]])
        step = player.receive()
        assert not step.error
        got = [player.observation(step, leaf) for leaf in range(6)]
        np.testing.assert_array_equal(got[0], [[1, 0, 1]] * 2)
        np.testing.assert_array_equal(got[1], [[0, 3], [2, 0]])
        np.testing.assert_array_equal(got[2], np.float32([[0.1, -0.1], [0.05, 0]]))
        np.testing.assert_array_equal(got[3], [0, 4])
        np.testing.assert_array_equal(got[4], [-7, -7])
        np.testing.assert_array_equal(got[5], [[[250, 251, 252], [253, 254, 255]]] * 2)


@pytest.mark.parametrize(
    "env_id, fields, code, words",
    [
        ("gym:CartPol-v1", {}, CODE.NOT_FOUND, ["gym:CartPol-v1", "Did you mean: `CartPole`?"]),
        ("gym:CartPole-v9", {}, CODE.NOT_FOUND, ["v9", "v1"]),
        ("gym:FrozenLake-v0", {}, CODE.NOT_FOUND, ["v0", "deprecated", "FrozenLake-v1"]),
        ("gym:no_such_package:X-v0", {}, CODE.NOT_FOUND, ["no_such_package", "install it for", "PYTHONPATH"]),
        ("gym:CartPole-v1", {"gym_kwargs": {"gravity": "1"}}, CODE.INVALID_ARGUMENT, ["gym_kwargs", "gravity"]),
        ("gym:CartPole-v1", {"kwargs": {"gravity": "1"}}, CODE.INVALID_ARGUMENT, ["env.options.kwargs", "gravity"]),
        (
            "gym:CartPole-v1",
            {"kwargs": {"sutton_barto_reward": "true"}, "gym_kwargs": {"sutton_barto_reward": "true"}},
            CODE.INVALID_ARGUMENT,
            ["env.options.kwargs.sutton_barto_reward", "gym_kwargs.sutton_barto_reward too"],
        ),
        ("gym:gym_envs:Unusual-v0", {}, CODE.INVALID_ARGUMENT, ["observation space", "Text(", '"words"', "want Box"]),
        (
            "gym:gym_envs:Unusual-v0",
            {"gym_kwargs": {"which": "text"}},  # a string needs no quotes
            CODE.INVALID_ARGUMENT,
            ["action space", "Text(", "want Box"],
        ),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(server, env_id, fields, code, words):
    for call in (
        lambda: get_spec(server, env_id, **fields),
        lambda: Player(server.address, env_id, 1, options=options(**fields)),
    ):
        got, message = refusal(call)
        assert got == code, message
        for word in words:
            assert word in message
        assert "\n" not in message


@pytest.mark.parametrize("name", ["kwargs", "gym_kwargs"])
def test_options_reach_the_environment(server, name):
    fields = {name: {"sutton_barto_reward": "true"}, "max_episode_steps": 3}
    assert get_spec(server, "gym:CartPole-v1", **fields).spec.max_episode_steps == 3
    with Player(server.address, "gym:CartPole-v1", 1, options=options(**fields)) as player:
        assert player.spec.max_episode_steps == 3
        step = player.receive()
        for _ in range(3):
            player.send(step, [0])
            step = player.receive()
            assert np.frombuffer(step.reward, np.float32) == [0]  # it would be 1
        assert step.truncated == b"\1" and step.terminated == b"\0"


@pytest.mark.parametrize(
    "fault, words",
    [
        ("raise", ["ValueError: two lines"]),
        ("exit", ["SystemExit: 3"]),
        ("nan", ["the reward is nan"]),
        ("shape", ["the observation is float32[2], want float32[1]"]),
        ("dtype", ["want float32[1]"]),
        ("end, then fail to reset", ["RuntimeError: cannot be reset"]),
        ("see nan", ["ValueError: the observation is nan, want a finite number up to 1e+18"]),
        ("see infinity", ["ValueError: the observation is -inf, want a finite number up to 1e+18"]),
        ("see too much", ["ValueError: the observation is 9.999999", "want a finite number up to 1e+18"]),
        ("see nan at the end", ["ValueError: the observation is nan"]),
        ("say nothing", ["Speechless: it cannot say why"]),
    ],
)
def test_an_error_costs_one_transition_of_its_row(server, fault, words):
    from gym_envs import Faulty

    with Player(server.address, "gym:gym_envs:Faulty-v0", 3) as player:
        step = player.receive()
        for _ in range(2):
            player.send(step, [0, 0, 0])
            step = player.receive()
        player.send(step, [0, 1 + Faulty.FAULTS.index(fault), 0])
        step = player.receive()
        assert [error.row for error in step.error] == [1]
        message = step.error[0].message
        assert message.startswith('env "gym:gym_envs:Faulty-v0", row 1: ') and "\n" not in message
        for word in words:
            assert word in message
        assert step.error[0].traceback.startswith("Traceback")
        assert not step.episode_end and not step.final_row
        np.testing.assert_array_equal(np.frombuffer(step.reward, np.float32), [1, 0, 1])
        np.testing.assert_array_equal(player.observation(step).ravel(), [3, 0, 3])
        player.send(step, [0, 0, 0])
        step = player.receive()
        assert not step.error
        np.testing.assert_array_equal(player.observation(step).ravel()[[0, 2]], [step.seq] * 2)
        assert player.observation(step)[1] == 1


def test_an_environment_may_run_an_event_loop_of_its_own(server):
    env_id = "gym:gym_envs:Awaits-v0"
    assert get_spec(server, env_id).spec.env_id == env_id
    episodes = 0
    with Player(server.address, env_id, 2) as player:
        step = player.receive()
        for _ in range(30):
            assert not step.error
            player.send(step, [0, 0])
            step = player.receive()
            episodes += len(step.episode_end)
    assert episodes > 2


@pytest.fixture
def patient(tmp_path, request):
    """A server that waits before it tries again what failed."""
    mode, *flags = request.param
    with Server(tmp_path, *MODES[mode], *flags, env={"PYTHONPATH": HERE}) as server:
        yield server


@pytest.mark.parametrize("patient", [["python", "--retry-wait-ms=3600000"]], indirect=True)
def test_a_row_that_failed_waits_and_the_others_go_on(patient):
    with Player(patient.address, "gym:gym_envs:Faulty-v0", 4, 2) as player:
        steps = player.receive_all()
        for count in range(1, 5):
            for step in steps:
                player.send(step, [1, 0] if step.group == 0 and count == 1 else [0, 0])
            steps = player.receive_all()
            assert [(error.row, bool(error.message)) for error in steps[0].error] == [(0, count == 1)]
            np.testing.assert_array_equal(player.observation(steps[0]).ravel(), [0, count])
            np.testing.assert_array_equal(np.frombuffer(steps[0].reward, np.float32), [0, 1])
            np.testing.assert_array_equal(player.observation(steps[1]).ravel(), [count, count])
            assert not steps[1].error


@pytest.mark.parametrize("patient", [[mode, "--retry-wait-ms=3600000"] for mode in MODES], indirect=True)
def test_a_group_with_nobody_to_play_neither_spins_nor_holds_others_up(patient):
    with Player(patient.address, "gym:gym_envs:Faulty-v0", 4, 2) as player:
        steps = player.step_all(player.receive_all(), [1, 1, 0, 0])
        assert [len(step.error) for step in steps] == [2, 0] and all(error.message for error in steps[0].error)
        began = time.monotonic()
        for count in range(2, 102):  # a learner that takes turns
            steps = player.step_all(steps, [0, 0, 0, 0])
            assert [error.message for error in steps[0].error] == ["", ""]
            np.testing.assert_array_equal(player.observation(steps[1]).ravel(), [count, count])
        assert 100 * 0.002 <= time.monotonic() - began < 5


@pytest.mark.parametrize("patient", [["python", "--retry-wait-ms=300"]], indirect=True)
def test_a_group_with_nobody_to_play_is_back_after_its_wait(patient):
    with Player(patient.address, "gym:gym_envs:Faulty-v0", 2) as player:
        step = player.receive()
        began = time.monotonic()
        player.send(step, [1, 1])
        step = player.receive()
        back = {}  # seq of the step that each row came back with, and started: each has a wait of its own
        while step.error:
            for error in step.error:
                assert bool(error.message) == (step.seq == 1) and player.observation(step)[error.row] == 0
                back[error.row] = step.seq
            player.send(step, [0, 0])
            step = player.receive()
        assert time.monotonic() - began >= 0.3
        np.testing.assert_array_equal(player.observation(step).ravel(), [step.seq - back[row] for row in range(2)])


@pytest.mark.parametrize("patient", [[mode, "--retry-wait-ms=0", "--renew-failed"] for mode in MODES], indirect=True)
def test_a_row_that_cannot_be_made_again_is_tried_at_each_step(patient):
    with Player(patient.address, "gym:gym_envs:Faulty-v0", 1) as player:
        from gym_envs import Faulty

        player.send(player.receive(), [1 + Faulty.FAULTS.index("fail to be made again")])
        step = player.receive()
        assert "ValueError: broke; then: RuntimeError: cannot be made" in step.error[0].message
        player.send(step, [0])
        step = player.receive()  # it is now; this transition is lost all the same
        assert [error.message for error in step.error] == [""]
        player.send(step, [0])
        step = player.receive()
        assert not step.error and player.observation(step).ravel() == [1]


@both
def test_what_rows_say_is_short(server):
    from gym_envs import Faulty

    with Player(server.address, "gym:gym_envs:Faulty-v0", 64) as player:
        step = player.receive()
        for _ in range(2):
            player.send(step, [1 + Faulty.FAULTS.index("say too much")] * 64)
            step = player.receive()
            assert [error.row for error in step.error] == list(range(64))
            for error in step.error:
                assert len(error.message.encode()) <= 512 and len(error.traceback.encode()) <= 8192
                assert "ValueError: \\udc80⛵⛵" in error.message and "⛵... (" in error.message
                assert error.traceback.startswith("Traceback") and error.traceback.endswith("bytes in all)")


@pytest.mark.parametrize("groups, traceback_bytes", [(4, 8192), (1, 4096)])
def test_what_all_rows_of_a_step_say_fits_into_a_message(groups, traceback_bytes, flotilla_gym):
    hello = env_pb2.Hello(env_id="gym:gym_envs:Faulty-v0", num_envs=2048, num_groups=groups)
    rows = flotilla_gym.rows.Rows(hello, 0, False)
    assert rows._traceback_bytes == traceback_bytes


@pytest.fixture
def flotilla_gym(monkeypatch):
    """The package itself."""
    monkeypatch.syspath_prepend(SOURCE / "envserver" / "python")
    import flotilla_gym.play
    import flotilla_gym.rows

    return flotilla_gym


class FakeCall:
    """A stream of one environment that fails at its first step; a test is its learner."""

    def __init__(self, flotilla_gym):
        self._requests, self.replies = asyncio.Queue(), asyncio.Queue()
        self.flows = asyncio.Event()  # what is written gets away
        self.flows.set()
        server = types.SimpleNamespace(
            max_num_envs=1, version="", hello_timeout=10, actions_timeout=None, take_seat=lambda stream: None,
            rows=lambda hello: flotilla_gym.rows.Rows(hello, retry_wait=3600, renew_failed=False),
        )  # fmt: skip
        self.stream = asyncio.ensure_future(flotilla_gym.play.PlayStream(server, self).run())
        self.send(hello=env_pb2.Hello(protocol_version=1, learner_id="l", env_id="gym:gym_envs:Faulty-v0", num_envs=1, num_groups=1))
        self.send(start=env_pb2.Start())

    def send(self, **request):
        self._requests.put_nowait(env_pb2.PlayRequest(**request))

    def act(self, seq, action):
        self.send(actions=env_pb2.ActionBatch(seq=seq, action=[np.int64([action]).tobytes()]))

    def half_close(self):
        self._requests.put_nowait(grpc.aio.EOF)

    async def receive(self):
        return await asyncio.wait_for(self.replies.get(), TIMEOUT)

    # What a PlayStream does with its call.

    async def read(self):
        return await self._requests.get()

    async def write(self, reply):
        self.replies.put_nowait(reply)
        await self.flows.wait()


@pytest.mark.parametrize("held", [True, False], ids=["held back", "being written"])
def test_a_stream_that_ends_leaves_no_step_behind(held, flotilla_gym, monkeypatch):
    if held:
        monkeypatch.setattr(flotilla_gym.play, "_HOLD", 3600)

    async def play():
        call = FakeCall(flotilla_gym)
        assert (await call.receive()).HasField("welcome")
        assert (await call.receive()).step.seq == 0
        call.flows.clear()
        call.act(0, 1)
        if not held:
            assert (await call.receive()).step.seq == 1
        call.half_close()
        await asyncio.wait_for(call.stream, TIMEOUT)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


def test_actions_may_come_before_the_server_knows_that_its_step_is_sent(flotilla_gym):
    async def play():
        call = FakeCall(flotilla_gym)
        for _ in range(2):
            await call.receive()
        call.flows.clear()
        call.act(0, 1)
        assert (await call.receive()).step.seq == 1
        call.act(1, 0)
        while not call._requests.empty():
            await asyncio.sleep(0)
        call.flows.set()
        assert (await call.receive()).step.seq == 2
        call.half_close()
        await asyncio.wait_for(call.stream, TIMEOUT)

    asyncio.run(play())


@pytest.mark.parametrize(
    "fields, code, words",
    [
        ({"protocol_version": 2}, CODE.FAILED_PRECONDITION, "hello.protocol_version is 2, this server speaks 1"),
        ({"learner_id": ""}, CODE.INVALID_ARGUMENT, "hello.learner_id has 0 bytes, want 1 to 256"),
        ({"num_envs": 5000}, CODE.INVALID_ARGUMENT, "hello.num_envs is 5000, want 1 to 4096"),
        ({"num_groups": 3}, CODE.INVALID_ARGUMENT, "hello.num_groups is 3, want a divisor of the 4 rows"),
        ({"options": options(max_episode_steps=-1)}, CODE.INVALID_ARGUMENT, "max_episode_steps is -1, want 0"),
    ],
)
def test_a_hello_that_does_not_fit(server, fields, code, words):
    fields = {"num_envs": 4, **fields}
    got, message = refusal(lambda: Player(server.address, "gym:CartPole-v1", **fields))
    assert got == code and words in message


@pytest.mark.parametrize(
    "request_fields, words",
    [
        ({"hello": env_pb2.Hello()}, "the request is hello, want actions"),
        ({"actions": env_pb2.ActionBatch(group=2)}, "actions.group is 2, want 0 to 1"),
        ({"actions": env_pb2.ActionBatch(seq=5)}, "actions.seq is 5, want 0, the last step of group 0"),
        ({"actions": env_pb2.ActionBatch()}, "actions.action has 0 leaves, want 1"),
        ({"actions": env_pb2.ActionBatch(action=[b"123"])}, "has 3 bytes, want 16 (2 rows of 8)"),
        (
            {"actions": env_pb2.ActionBatch(action=[np.int64([0, 2]).tobytes()])},
            'env "gym:CartPole-v1": actions.action[0] (leaf "") is 2 in row 1, want 0 to 1',
        ),
    ],
)
def test_a_request_that_does_not_fit(server, request_fields, words):
    with Player(server.address, "gym:CartPole-v1", 4, 2) as player:
        player.receive_all()
        player.request(**request_fields)
        code, message = refusal(player.receive)
        assert code == CODE.INVALID_ARGUMENT and words in message


def test_continuous_actions_have_bounds(server):
    with Player(server.address, "gym:Pendulum-v1", 2) as player:
        player.send(player.receive(), [1, 2.5])
        code, message = refusal(player.receive)
        assert code == CODE.INVALID_ARGUMENT
        assert "is 2.5 in row 1, want a finite number from -2 to 2" in message


def test_what_is_no_message_ends_only_its_stream(server):
    with grpc.insecure_channel(server.address) as channel:
        play = channel.stream_stream("/flotilla.v1.EnvService/Play")
        code, message = refusal(lambda: next(play(iter([b"\xff\xff"]), timeout=TIMEOUT)))
    assert code == CODE.INVALID_ARGUMENT and "not a flotilla.v1.PlayRequest" in message
    assert get_spec(server, "gym:CartPole-v1").spec.max_episode_steps == 500


@both
def test_one_learner_plays_and_its_newer_self_takes_over(server):
    with Player(server.address, "gym:CartPole-v1", 2, learner_id="a", incarnation=2) as first:
        step = first.receive()
        code, message = refusal(lambda: Player(server.address, "gym:CartPole-v1", 2, learner_id="b"))
        assert code == CODE.RESOURCE_EXHAUSTED
        assert message == 'learner "a" is playing 2 x gym:CartPole-v1 here; learner "b" has to wait'
        code, message = refusal(lambda: Player(server.address, "gym:CartPole-v1", 2, learner_id="a", incarnation=2))
        assert code == CODE.ABORTED and "want a newer one" in message
        first.send(step, [0, 0])
        assert first.receive().seq == 1
        spec = get_spec(server)
        assert spec.spec.env_id == "gym:CartPole-v1"
        assert (spec.session[0].learner_id, spec.session[0].num_envs, spec.session[0].steps) == ("a", 2, 2)
        with Player(server.address, "gym:CartPole-v1", 2, learner_id="a", incarnation=3) as second:
            assert refusal(first.receive)[0] == CODE.ABORTED
            assert second.receive().seq == 0
    # The seat is free once the stream has ended.
    deadline = time.monotonic() + TIMEOUT
    while get_spec(server).session:
        assert time.monotonic() < deadline


class SharedPlayer(Player):
    """Offers memory of `size` bytes more than it should, `sealed` or not."""

    sealed, size = True, 0

    def _start(self):
        slot = -(-self.rows * 16 // 64) * 64
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 2 * slot + self.size)
        if self.sealed:
            fcntl.fcntl(fd, 1033, 0x2 | 0x4)  # F_ADD_SEALS: F_SEAL_SHRINK | F_SEAL_GROW
        self.memory = mmap.mmap(fd, 2 * slot)
        self.slot = slot
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as side:
            side.connect("\0" + self.welcome.shared_memory_socket[1:])
            passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            side.sendmsg([self.welcome.shared_memory_token], passed)
        os.close(fd)
        return env_pb2.Start(shared_memory=env_pb2.SharedRegion(slot_bytes=slot, num_slots=2))

    def observation(self, step, leaf=0):
        begin = step.slot * self.slot
        return self._array(self.memory[begin : begin + self.rows * 16], leaf)


@both
def test_shared_memory_holds_what_inline_payloads_do(server):
    rng = np.random.default_rng(2)
    actions = rng.integers(2, size=(60, ROWS))
    seen = []
    for kind, offer in ((Player, False), (SharedPlayer, True)):
        with kind(server.address, "gym:CartPole-v1", ROWS, 2, offer_shared_memory=offer) as player:
            steps = player.receive_all()
            seen.append([Rows(player, steps).observation])
            for action in actions:
                steps = player.step_all(steps, action)
                assert all(step.WhichOneof("payload") == ("slot" if offer else "inline") for step in steps)
                seen[-1].append(Rows(player, steps).observation)
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize("fault, words", [({"sealed": False}, "seals"), ({"size": 1}, "has 129 bytes, want 128")])
def test_memory_that_could_fault_is_refused(server, fault, words):
    kind = type("Offer", (SharedPlayer,), fault)
    with kind(server.address, "gym:CartPole-v1", ROWS, 2, offer_shared_memory=True) as player:
        code, message = refusal(player.receive)
        assert code == CODE.INVALID_ARGUMENT and words in message


def test_a_server_that_dies_ends_the_stream(tmp_path):
    with Server(tmp_path, env={"PYTHONPATH": HERE}) as server:
        with Player(server.address, "gym:gym_envs:Dies-v0", 1) as player:
            step = player.receive()
            with pytest.raises(grpc.RpcError) as caught:
                for _ in range(3):
                    player.send(step, [0])
                    step = player.receive()
            assert caught.value.code() == CODE.UNAVAILABLE
            assert "the Python server of the environment ended (exit 9)" in caught.value.details()
        assert get_spec(server, "gym:CartPole-v1").spec.max_episode_steps == 500


@pytest.mark.parametrize("mode", list(MODES))
def test_term_ends_it_while_a_learner_plays(mode, tmp_path):
    with Server(tmp_path, *MODES[mode]) as server:
        with Player(server.address, "gym:CartPole-v1", 2) as player:
            player.receive()
            server.process.terminate()
            assert server.process.wait(TIMEOUT) == 0
            assert refusal(player.receive)[0] == CODE.UNAVAILABLE


def test_health(server):
    with grpc.insecure_channel(server.address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for service in (b"", b"flotilla.v1.EnvService"):
            assert check(b"\x0a" + bytes([len(service)]) + service, timeout=TIMEOUT) == b"\x08\x01"  # SERVING
        assert refusal(lambda: check(b"\x0a\x01x", timeout=TIMEOUT))[0] == CODE.NOT_FOUND


def test_it_cannot_outlive_its_parent(tmp_path):
    address_file = tmp_path / "address"
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [BIN / "flotilla-envserver", f"--listen=unix:{tmp_path}/s", f"--address_file={address_file}", "--env=gym:x"],
        env=os.environ | {"FLOTILLA_LIFELINE_FD": str(read_end)}, pass_fds=[read_end], start_new_session=True,
    )  # fmt: skip
    os.close(read_end)
    await_address(address_file, process)
    process.terminate()  # a stranger's: the parent alone decides
    assert get_spec(Address(f"unix:{tmp_path}/s"), "gym:CartPole-v1").spec.max_episode_steps == 500
    os.close(write_end)
    assert process.wait(TIMEOUT) == -9



@pytest.mark.parametrize(
    "interpreter, words",
    [
        (f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n', ["No module named", "-m pip install gymnasium grpcio protobuf numpy"]),
        (None, ["FLOTILLA_PYTHON is", "which is no program"]),
    ],
)
def test_a_python_without_the_packages_is_told_what_to_do(interpreter, words, tmp_path):
    python = tmp_path / "python"
    if interpreter is not None:
        python.write_text(interpreter)
        python.chmod(0o755)
    with Server(tmp_path, env={"FLOTILLA_PYTHON": str(python)}) as server:
        code, message = refusal(lambda: get_spec(server, "gym:CartPole-v1"))
    assert code == CODE.FAILED_PRECONDITION
    for word in words:
        assert word in message
