"""One Play stream: shakes hands, then steps a group for each actions that come."""

import asyncio
import time

import grpc
import numpy as np

from flotilla.v1 import env_pb2
from flotilla_gym.refused import Refused
from flotilla_gym.rows import Rows
from flotilla_gym.shared_region import RegionReceiver

MAX_MESSAGE_BYTES = 64 << 20
_MAX_STEP_BYTES = MAX_MESSAGE_BYTES - (1 << 20)
_MAX_STREAM_BYTES = 1 << 30  # of all groups' observations together
_MAX_NAME_BYTES = 256
_PATIENCE = 10  # seconds for the hello, and for the start
_SLOT_ALIGNMENT = 64
# Seconds that a step of nobody waits: enough that nothing spins. Not more, as a
# learner may take turns, and then all its other environments wait too.
_HOLD = 0.002


def check_hello(hello, max_num_envs):
    """Everything but env_id's existence and options, which only Gymnasium can judge."""
    if hello.protocol_version != 1:
        raise Refused(
            "FAILED_PRECONDITION",
            f"hello.protocol_version is {hello.protocol_version}, this server speaks 1; update the older side",
        )
    for field in ("learner_id", "env_id"):
        size = len(getattr(hello, field).encode())
        if not 1 <= size <= _MAX_NAME_BYTES:
            raise Refused("INVALID_ARGUMENT", f"hello.{field} has {size} bytes, want 1 to {_MAX_NAME_BYTES}")
    if not 1 <= hello.num_envs <= max_num_envs:
        raise Refused("INVALID_ARGUMENT", f"hello.num_envs is {hello.num_envs}, want 1 to {max_num_envs}")
    if hello.num_groups < 1 or hello.num_envs % hello.num_groups:
        raise Refused(
            "INVALID_ARGUMENT",
            f"hello.num_groups is {hello.num_groups}, want a divisor of the {hello.num_envs} rows",
        )
    if hello.options.max_episode_steps < 0:
        raise Refused(
            "INVALID_ARGUMENT",
            f"hello.options.max_episode_steps is {hello.options.max_episode_steps}, "
            "want 0 (the environment's own) or more",
        )


class PlayStream:
    """A stream of `server`, which seats it between the hello and the end."""

    def __init__(self, server, context):
        self._server = server
        self._context = context
        self.hello = None
        self.steps = 0
        self.episodes = 0
        self.begun = time.monotonic()
        self._writing = asyncio.Lock()
        self._held_back = set()  # groups whose step is sent later
        self._later = set()  # the tasks that do

    async def run(self):
        """Returns when the learner half-closes. Raises Refused."""
        self.hello = await self._request("hello", _PATIENCE)
        check_hello(self.hello, self._server.max_num_envs)
        self._server.take_seat(self)
        rows = Rows(self.hello, self._server.retry_wait, self._server.renew_failed)
        try:
            await self._shake_hands(rows)
            await self._serve(rows)
        finally:
            for task in self._later:
                task.cancel()
            try:
                # They write to this call: it must not end under them.
                await asyncio.gather(*self._later, return_exceptions=True)
            finally:
                rows.close()

    async def _shake_hands(self, rows):
        self._size = self.hello.num_envs // self.hello.num_groups  # R
        offsets, slot_bytes = self._layout(rows.observation)
        welcome = env_pb2.Welcome(
            protocol_version=1, version=self._server.version, spec=rows.spec, autoreset_mode="same_step"
        )
        receiver = RegionReceiver() if self.hello.offer_shared_memory else None
        try:
            if receiver is not None:
                welcome.shared_memory_socket = receiver.socket
                welcome.shared_memory_token = receiver.token
            await self._context.write(env_pb2.PlayReply(welcome=welcome))
            start = await self._request("start", _PATIENCE)
            region = None
            if start.HasField("shared_memory"):
                region = await self._take_region(receiver, start.shared_memory, slot_bytes)
        finally:
            if receiver is not None:
                receiver.close()
        self._shared = region is not None
        self._observation = []
        for group in range(self.hello.num_groups):
            slot = region if region is not None else bytearray(slot_bytes)
            begin = group * slot_bytes if region is not None else 0
            self._observation.append(
                [
                    np.frombuffer(slot, leaf.dtype, self._size * leaf.row_bytes // leaf.dtype.itemsize, begin + offset).reshape(
                        self._size, *leaf.shape
                    )
                    for leaf, offset in zip(rows.observation, offsets)
                ]
            )
        rows.place(self._observation)

    async def _take_region(self, receiver, shared, slot_bytes):
        if receiver is None:
            raise Refused("INVALID_ARGUMENT", "start.shared_memory is given, but the welcome announced no socket")
        for field, got, want in (
            ("num_slots", shared.num_slots, self.hello.num_groups),
            ("slot_bytes", shared.slot_bytes, slot_bytes),
        ):
            if got != want:
                raise Refused("INVALID_ARGUMENT", f"start.shared_memory.{field} is {got}, want {want}")
        return await receiver.receive(slot_bytes * self.hello.num_groups)

    def _layout(self, leaves):
        """Where each leaf's [R, ...] array begins in a slot, and the slot's bytes."""
        offsets, slot_bytes = [], 0
        for leaf in leaves:
            offsets.append(slot_bytes)
            slot_bytes += -(-self._size * leaf.row_bytes // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT
        row_bytes = sum(leaf.row_bytes for leaf in leaves)
        # A step may carry every row twice: as it starts and as it ended.
        most = _MAX_STEP_BYTES // (2 * row_bytes)
        if self._size > most or slot_bytes * self.hello.num_groups > _MAX_STREAM_BYTES:
            raise Refused(
                "INVALID_ARGUMENT",
                f"{self.hello.num_groups} groups of {self._size} rows of {row_bytes} bytes do not fit into messages of "
                f"{MAX_MESSAGE_BYTES} bytes and a stream of {_MAX_STREAM_BYTES}; have more groups or workers",
            )
        return offsets, slot_bytes

    async def _serve(self, rows):
        seqs = [0] * self.hello.num_groups
        for group in range(self.hello.num_groups):
            step = rows.reset(group)
            if rows.nobody_plays(group):
                await asyncio.sleep(_HOLD)
            await self._send(group, 0, step)
        while True:
            batch = await self._request("actions")
            if batch is None:
                return
            group = batch.group
            if not 0 <= group < len(seqs):
                raise Refused("INVALID_ARGUMENT", f"actions.group is {group}, want 0 to {len(seqs) - 1}")
            if batch.seq != seqs[group]:
                raise Refused(
                    "INVALID_ARGUMENT",
                    f"actions.seq is {batch.seq}, want {seqs[group]}, the last step of group {group}",
                )
            if group in self._held_back:
                raise Refused("INVALID_ARGUMENT", f"actions of group {group} came before its step {batch.seq} was sent")
            step = rows.step(group, batch.action)
            seqs[group] += 1
            self.steps += self._size
            self.episodes += len(step.episode_end)
            if rows.nobody_plays(group):
                self._hold_back(group, seqs[group], step)
            else:
                await self._send(group, seqs[group], step)

    def _hold_back(self, group, seq, step):
        """Sends it after a while, in which the other groups go on."""

        async def later():
            await asyncio.sleep(_HOLD)
            await self._send(group, seq, step)

        self._held_back.add(group)
        task = asyncio.ensure_future(later())
        self._later.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task):
        self._later.discard(task)
        if not task.cancelled():
            task.exception()  # a learner that is gone; whoever reads from it says so

    async def _send(self, group, seq, step):
        step.group = group
        step.seq = seq
        if self._shared:
            step.slot = group
        else:
            step.inline.leaf.extend(array.tobytes() for array in self._observation[group])
        async with self._writing:
            # Its actions may come as soon as this is written, before we know that it is.
            self._held_back.discard(group)
            await self._context.write(env_pb2.PlayReply(step=step))

    async def _request(self, want, patience=None):
        """The next request's `want`; None once the learner has half-closed, if it may then."""
        try:
            request = await (self._context.read() if patience is None else asyncio.wait_for(self._context.read(), patience))
        except asyncio.TimeoutError:
            raise Refused("DEADLINE_EXCEEDED", f"no {want} came within {patience} s") from None
        if request is grpc.aio.EOF:
            if want == "actions":
                return None
            raise Refused("INVALID_ARGUMENT", f"the learner closed the stream, want {want}")
        if request is None:
            raise Refused("INVALID_ARGUMENT", "a message is not a flotilla.v1.PlayRequest")
        got = request.WhichOneof("request")
        if got != want:
            raise Refused("INVALID_ARGUMENT", f"the request is {got or 'nothing'}, want {want}")
        return getattr(request, want)
