"""A learner's end of the Play protocol in Python, from the protos alone."""

import contextlib
import os
import pathlib
import queue
import subprocess
import sys
import time

import grpc
import numpy as np

SOURCE = pathlib.Path(os.environ.get("FLOTILLA_SOURCE", pathlib.Path(__file__).parents[2]))
BIN = pathlib.Path(os.environ.get("FLOTILLA_BIN", SOURCE / "build" / "bin"))

sys.path.insert(0, str(SOURCE / "tests" / "testing"))
import protos  # noqa: E402

protos.load(SOURCE)
from flotilla.v1 import env_pb2, env_pb2_grpc  # noqa: E402

DTYPES = {env_pb2.UINT8: np.uint8, env_pb2.INT64: np.int64, env_pb2.FLOAT32: np.float32}
TIMEOUT = 60


def await_address(file, process):
    """Until the server has said, in this file, that it listens."""
    deadline = time.monotonic() + TIMEOUT
    while not file.exists():
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.01)


class Server:
    """flotilla-envserver on a unix socket, for a with block."""

    def __init__(self, folder, *flags, env=None):
        self.address = f"unix:{folder}/env.sock"
        address_file = pathlib.Path(folder) / "address"
        self.process = subprocess.Popen(
            [BIN / "flotilla-envserver", f"--listen={self.address}", f"--address_file={address_file}", *flags],
            env=os.environ | (env or {}),
        )
        await_address(address_file, self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(TIMEOUT) == 0


class Player:
    """Plays one stream, group by group. Arrays are [R, ...]."""

    def __init__(self, address, env_id, num_envs, num_groups=1, options=None, **hello):
        self._requests = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(address)
        stub = env_pb2_grpc.EnvServiceStub(self._channel)
        self._replies = stub.Play(iter(self._requests.get, None), timeout=10 * TIMEOUT)
        fields = dict(protocol_version=1, learner_id="golden", incarnation=1, worker_id=0, seed=1) | hello
        self.hello = env_pb2.Hello(
            env_id=env_id, num_envs=num_envs, num_groups=num_groups, options=options, **fields
        )
        self._requests.put(env_pb2.PlayRequest(hello=self.hello))
        self.welcome = next(self._replies).welcome
        self.spec = self.welcome.spec
        self.rows = num_envs // num_groups
        self._requests.put(env_pb2.PlayRequest(start=self._start()))

    def _start(self):
        """Inline payloads."""
        return env_pb2.Start()

    def receive(self):
        return next(self._replies).step

    def receive_all(self):
        """One step of every group, by group, in whatever order they come."""
        steps = [self.receive() for _ in range(self.hello.num_groups)]
        return sorted(steps, key=lambda step: step.group)

    def observation(self, step, leaf=0):
        return self._array(step.inline.leaf[leaf], leaf)

    def final_observation(self, step, leaf=0):
        return self._array(step.final_observation.leaf[leaf], leaf)

    def _array(self, data, leaf):
        spec = self.spec.observation[leaf]
        return np.frombuffer(data, DTYPES[spec.dtype]).reshape(-1, *spec.shape)

    def send(self, step, *leaves):
        columns = [np.asarray(leaf, DTYPES[spec.dtype]).tobytes() for leaf, spec in zip(leaves, self.spec.action)]
        self.request(actions=env_pb2.ActionBatch(group=step.group, seq=step.seq, action=columns))

    def request(self, **request):
        self._requests.put(env_pb2.PlayRequest(**request))

    def step_all(self, steps, actions):
        """Sends every group's actions before the first result is awaited."""
        for step in steps:
            first = step.group * self.rows
            self.send(step, actions[first : first + self.rows])
        return self.receive_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._requests.put(None)
        # Whoever plays next finds the seat free: the server says last that a stream has ended.
        with contextlib.suppress(grpc.RpcError):
            for _ in self._replies:
                pass
        self._channel.close()


class Rows:
    """What one step of every group says, row by row over all groups."""

    def __init__(self, player, steps):
        assert not any(step.error for step in steps)
        self.observation = np.concatenate([player.observation(step) for step in steps])
        self.reward = np.concatenate([np.frombuffer(step.reward, np.float32) for step in steps])
        self.terminated = self._flags(step.terminated for step in steps)
        self.truncated = self._flags(step.truncated for step in steps)
        self.final = {}
        self.end = {}
        for step in steps:
            first = step.group * player.rows
            for i, row in enumerate(step.final_row):
                self.final[first + row] = player.final_observation(step)[i]
            for end in step.episode_end:
                self.end[first + end.row] = end

    @staticmethod
    def _flags(columns):
        return np.concatenate([np.frombuffer(column, np.uint8) for column in columns]).astype(bool)


# services/base/random.h, in Python integers.

_MASK = (1 << 64) - 1
_EPISODE_DOMAIN = 0x0065646F73697065


def _splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def episode_seed(hello, row, episode):
    values = [_EPISODE_DOMAIN, hello.seed, hello.worker_id, row, hello.incarnation, episode]
    seed = len(values)
    for value in values:
        seed = _splitmix64(seed ^ value)
    return seed


class Random:
    def __init__(self, seed):
        self._state = [_splitmix64((seed + i * 0x9E3779B97F4A7C15) & _MASK) for i in range(4)]

    def next(self):
        s = self._state
        total = (s[0] + s[3]) & _MASK
        result = ((((total << 23) & _MASK) | (total >> 41)) + s[0]) & _MASK
        t = (s[1] << 17) & _MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = ((s[3] << 45) & _MASK) | (s[3] >> 19)
        return result

    def uniform(self, low, high):
        return low + (high - low) * ((self.next() >> 11) * 2.0**-53)
