"""One Play stream: shakes hands, then steps a group for each actions that come."""

import asyncio
import contextlib
import time

import grpc
import numpy as np

from flotilla.v1 import env_pb2
from flotilla_gym import ring
from flotilla_gym.refused import Refused
from flotilla_gym.rows import exited
from flotilla_gym.shared_region import RegionReceiver

MAX_MESSAGE_BYTES = 64 << 20
_MAX_STEP_BYTES = MAX_MESSAGE_BYTES - (1 << 20)
_MAX_STREAM_BYTES = 1 << 30  # of all groups' observations together
_MAX_NAME_BYTES = 256
_PATIENCE = 10  # seconds for the start
_SLOT_ALIGNMENT = 64
# Seconds that a step of nobody waits: enough that nothing spins. Not more, as a
# learner may take turns, and then all its other environments wait too.
_HOLD = 0.002
# Seconds that nothing but the ring is looked at: the event loop has to run, too.
_BESIDE = 0.01


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
    """A stream of `server`, which seats it between the hello and the end. `context` reads and writes messages."""

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
        self._ring = None  # steps and actions are messages

    async def run(self):
        """Returns when the learner half-closes. Raises Refused."""
        self.hello = await self._request("hello", self._server.hello_timeout)
        check_hello(self.hello, self._server.max_num_envs)
        self._server.take_seat(self)
        try:
            rows = self._server.rows(self.hello)
        except SystemExit as error:  # it would end the event loop
            raise exited(self.hello.env_id, error) from None
        try:
            await self._shake_hands(rows)
            await (self._serve(rows) if self._ring is None else self._serve_ring(rows))
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
        receiver = None
        if self.hello.offer_shared_memory:
            with contextlib.suppress(OSError):  # then payloads are inline
                receiver = RegionReceiver()
        try:
            if receiver is not None:
                welcome.shared_memory_socket = receiver.socket
                welcome.shared_memory_token = receiver.token
                welcome.ring = self.hello.offer_ring and ring.supported()
            await self._context.write(env_pb2.PlayReply(welcome=welcome))
            start = await self._request("start", _PATIENCE)
            region = None
            if start.HasField("shared_memory"):
                region = await self._take_region(receiver, start.shared_memory, slot_bytes, rows if welcome.ring else None)
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

    async def _take_region(self, receiver, shared, slot_bytes, rows):
        """`rows`: where rings may follow the slots."""
        if receiver is None:
            raise Refused("INVALID_ARGUMENT", "start.shared_memory is given, but the welcome announced no socket")
        for field, got, want in (
            ("num_slots", shared.num_slots, self.hello.num_groups),
            ("slot_bytes", shared.slot_bytes, slot_bytes),
        ):
            if got != want:
                raise Refused("INVALID_ARGUMENT", f"start.shared_memory.{field} is {got}, want {want}")
        layout = rows and ring.Layout(self.hello.num_groups, self._size, rows.observation, rows.action)
        if shared.ring_bytes and shared.ring_bytes != (layout and layout.bytes):
            want = f"0 or {layout.bytes}" if layout else "0: the welcome had no ring"
            raise Refused("INVALID_ARGUMENT", f"start.shared_memory.ring_bytes is {shared.ring_bytes}, want {want}")
        slots = slot_bytes * self.hello.num_groups
        region = await receiver.receive(slots + shared.ring_bytes)
        if shared.ring_bytes:
            self._ring = ring.Ring(region, slots, layout)
        return region

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
            batch = rows.reset(group)
            if rows.nobody_plays(group):
                await asyncio.sleep(_HOLD)
            await self._send(group, 0, batch)
        while True:
            actions = await self._request("actions", self._server.actions_timeout)
            if actions is None:
                return
            group = actions.group
            batch = self._step(rows, seqs, group, actions.seq, actions.action)
            if rows.nobody_plays(group):
                self._hold_back(group, seqs[group], batch)
            else:
                await self._send(group, seqs[group], batch)

    async def _serve_ring(self, rows):
        """As _serve; this thread is the ring's, but for a moment now and then."""
        seqs = [0] * self.hello.num_groups
        due = []  # steps that are held back, the next one first: when, and what
        for group in range(self.hello.num_groups):
            batch = rows.reset(group)
            if rows.nobody_plays(group):
                await asyncio.sleep(_HOLD)
            await self._post(group, 0, batch)
        reading = asyncio.ensure_future(self._context.read())
        try:
            heard = looked = time.monotonic()
            while True:
                pause = max(0, min(_BESIDE, due[0][0] - time.monotonic())) if due else _BESIDE
                came = self._ring.wait(pause)
                now = time.monotonic()
                if came:
                    heard = now
                    group, seq, columns = self._ring.take()
                    batch = self._step(rows, seqs, group, seq, columns)
                    if rows.nobody_plays(group):
                        self._held_back.add(group)
                        due.append((now + _HOLD, group, seqs[group], batch))
                    else:
                        await self._post(group, seqs[group], batch)
                while due and due[0][0] <= now:
                    _, *held = due.pop(0)
                    self._held_back.discard(held[0])
                    await self._post(*held)
                if now - looked < _BESIDE:
                    continue
                looked = now
                await asyncio.sleep(0)
                if reading.done():
                    if self._take_message(reading.result(), "actions") is not None:
                        raise Refused("INVALID_ARGUMENT", "the request is actions, and start.shared_memory has a ring for them")
                    return
                patience = self._server.actions_timeout
                if patience is not None and now - heard > patience:
                    raise Refused("DEADLINE_EXCEEDED", f"no actions came within {patience} s")
        finally:
            reading.cancel()

    def _step(self, rows, seqs, group, seq, columns):
        """The group's next step, if these are its actions."""
        if not 0 <= group < len(seqs):
            raise Refused("INVALID_ARGUMENT", f"actions.group is {group}, want 0 to {len(seqs) - 1}")
        if seq != seqs[group]:
            raise Refused(
                "INVALID_ARGUMENT",
                f"actions.seq is {seq}, want {seqs[group]}, the last step of group {group}",
            )
        if group in self._held_back:
            raise Refused("INVALID_ARGUMENT", f"actions of group {group} came before its step {seq} was sent")
        batch = rows.step(group, columns)
        seqs[group] += 1
        self.steps += self._size
        self.episodes += len(batch.finals)
        return batch

    async def _post(self, group, seq, batch):
        if not self._ring.put(group, seq, batch):
            await self._send(group, seq, batch)

    def _hold_back(self, group, seq, batch):
        """Sends it after a while, in which the other groups go on."""

        async def later():
            await asyncio.sleep(_HOLD)
            await self._send(group, seq, batch)

        self._held_back.add(group)
        task = asyncio.ensure_future(later())
        self._later.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task):
        self._later.discard(task)
        if not task.cancelled():
            task.exception()  # a learner that is gone; whoever reads from it says so

    async def _send(self, group, seq, batch):
        step = batch.finish()
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
        return self._take_message(request, want)

    def _take_message(self, request, want):
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
