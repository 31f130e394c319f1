"""The server's end of the rings of env.proto: steps go out and actions come in through shared memory."""

import ctypes
import os
import platform
import struct
import sys
import time

import numpy as np

_FUTEX = 202  # of x86_64
_WAIT, _WAKE = 0, 1
_COUNTERS = 256
# Of 32-bit words.
_STEPS_POSTED, _STEPS_BELL, _STEPS_SLEEPING = 0, 16, 17
_SPIN_US = 18
_ACTIONS_POSTED, _ACTIONS_BELL, _ACTIONS_SLEEPING = 32, 48, 49
_STEP_HEADER = struct.Struct("<QIIII")  # seq, group, flags, final rows, episode ends
_ACTION_HEADER = struct.Struct("<QI")
_ROW = struct.Struct("<i")
_END = struct.Struct("<iIdq")  # row, others_play_on, raw_return, length
_HEADER_BYTES = 24
_ON_STREAM, _HAS_ACTIVE = 1, 2
_MAX_SPIN_US = 1000
# Seconds: as services/env/ring.cc has them.
_LOST, _FIRST_PAUSE, _LONGEST_PAUSE = 200e-6, 0.02, 5


def supported():
    """Python has no fences; what x86 does without is enough, beside a look now and then."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def _up(size, to=8):
    return -(-size // to) * to


class Layout:
    """Where everything is, of groups of `rows` rows, for the leaves of both spaces. No environment of ours has metrics."""

    def __init__(self, groups, rows, observation, action):
        self.groups, self.rows = groups, rows
        end = _HEADER_BYTES
        self.reward = end
        end += _up(4 * rows)
        self.terminated = end
        self.truncated = self.terminated + _up(rows)
        self.active = self.truncated + _up(rows)
        self.final_row = self.active + _up(rows)
        self.episode_end = self.final_row + _up(4 * rows)
        end = self.episode_end + _up(_END.size * rows)
        self.finals = []
        for leaf in observation:
            self.finals.append(end)
            end += _up(rows * leaf.row_bytes)
        self.step_bytes = _up(end, 64)
        end = _HEADER_BYTES
        self.actions = []
        for leaf in action:
            self.actions.append((end, end + rows * leaf.row_bytes))
            end += _up(rows * leaf.row_bytes)
        self.action_bytes = _up(end, 64)
        self.first_step = _COUNTERS
        self.first_action = self.first_step + groups * self.step_bytes
        self.bytes = self.first_action + groups * self.action_bytes


class Ring:
    """In `region` from `begin` on. Not thread-safe."""

    def __init__(self, region, begin, layout):
        self._layout = layout
        self._bytes = memoryview(region)[begin : begin + layout.bytes]
        self._words = self._bytes[:_COUNTERS].cast("I")
        self._spin = min(self._words[_SPIN_US], _MAX_SPIN_US) * 1e-6
        self._no_spin_until = self._no_spin_for = 0
        self._posted = self._taken = 0
        self._call = ctypes.CDLL(None).syscall
        self._call.restype = ctypes.c_long
        address = ctypes.addressof(ctypes.c_char.from_buffer(region, begin))
        self._steps_bell = ctypes.c_void_p(address + 4 * _STEPS_BELL)
        self._actions_bell = ctypes.c_void_p(address + 4 * _ACTIONS_BELL)
        self._rewards = []
        for place in range(layout.groups):
            at = layout.first_step + place * layout.step_bytes + layout.reward
            self._rewards.append(np.frombuffer(self._bytes, "<f4", layout.rows, at))

    def wait(self, seconds):
        """Blocks for actions, whatever else this thread might do: whether there are any."""
        words, seen = self._words, self._taken & 0xFFFFFFFF
        if words[_ACTIONS_POSTED] != seen:
            return True
        now = time.perf_counter()
        until = now + seconds
        if self._spin and now >= self._no_spin_until and self._poll(seen, now, min(until, now + self._spin)):
            return True
        heard = words[_ACTIONS_BELL]
        words[_ACTIONS_SLEEPING] = 1
        left = until - time.perf_counter()
        if words[_ACTIONS_POSTED] == seen and left > 0:
            timeout = _Timespec(int(left), int(left % 1 * 1e9))
            self._call(_FUTEX, self._actions_bell, _WAIT, ctypes.c_uint32(heard), ctypes.byref(timeout), None, 0)
        words[_ACTIONS_SLEEPING] = 0
        return words[_ACTIONS_POSTED] != seen

    def _poll(self, seen, now, end):
        """Whether actions came before `end`. Stops, for a while, where it costs the core: others want it."""
        words, give_way, clock = self._words, os.sched_yield, time.perf_counter
        while now < end:
            if words[_ACTIONS_POSTED] != seen:
                self._no_spin_for = 0
                return True
            give_way()
            before, now = now, clock()
            if now - before >= _LOST:
                self._no_spin_for = min(max(2 * self._no_spin_for, _FIRST_PAUSE), _LONGEST_PAUSE)
                self._no_spin_until = now + self._no_spin_for
                break
        return words[_ACTIONS_POSTED] != seen

    def take(self):
        """Group, seq and columns of the oldest actions that came: copies, as the learner may still write."""
        layout = self._layout
        at = layout.first_action + self._taken % layout.groups * layout.action_bytes
        seq, group = _ACTION_HEADER.unpack_from(self._bytes, at)
        columns = [bytes(self._bytes[at + begin : at + end]) for begin, end in layout.actions]
        self._taken += 1
        return group, seq, columns

    def put(self, group, seq, batch):
        """Posts a step. False: it has errors, and is announced; the stream's next message has to be it."""
        layout, out = self._layout, self._bytes
        place = self._posted % layout.groups
        at = layout.first_step + place * layout.step_bytes
        fits = not batch.step.error
        if fits:
            self._rewards[place][:] = batch.reward
            out[at + layout.terminated : at + layout.terminated + layout.rows] = batch.terminated
            out[at + layout.truncated : at + layout.truncated + layout.rows] = batch.truncated
            flags = 0 if all(batch.active) else _HAS_ACTIVE
            if flags:
                out[at + layout.active : at + layout.active + layout.rows] = batch.active
            finals = sorted(batch.finals.items()) if batch.finals else ()
            _STEP_HEADER.pack_into(out, at, seq, group, flags, len(finals), len(finals))
            for i, (row, (final, end)) in enumerate(finals):
                _ROW.pack_into(out, at + layout.final_row + 4 * i, row)
                begin = at + layout.episode_end + _END.size * i
                _END.pack_into(out, begin, row, end.others_play_on, end.raw_return, end.length)
                for leaf, column in zip(layout.finals, final):
                    begin = at + leaf + len(column) * i
                    out[begin : begin + len(column)] = column
        else:
            _STEP_HEADER.pack_into(out, at, seq, group, _ON_STREAM, 0, 0)
        self._posted += 1
        words = self._words
        words[_STEPS_POSTED] = self._posted & 0xFFFFFFFF
        if words[_STEPS_SLEEPING]:
            words[_STEPS_BELL] = (words[_STEPS_BELL] + 1) & 0xFFFFFFFF
            self._call(_FUTEX, self._steps_bell, _WAKE, 1, None, None, 0)
        return fits
