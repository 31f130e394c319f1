"""A seat at a run's coordinator (proto/flotilla/v1/coordinator.proto), kept for ever: over cuts, and over the
coordinator's own restarts."""

import threading
import time

import grpc

from flotilla.v1 import coordinator_pb2 as pb
from flotilla_gym.refused import Refused, one_line

_SERVICE = "/flotilla.v1.CoordinatorService/"
_ATTEMPT = 5  # seconds for a call, and to connect
_PAUSES = (0.1, 2.0)  # seconds between attempts: the first, and the longest
_GOODBYE = 2  # seconds
# Nothing that goes away by itself.
_HOPELESS = {
    grpc.StatusCode[name]
    for name in (
        "ALREADY_EXISTS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED",
    )
}  # fmt: skip


class Member:
    """`on_command(Command)` and, if the coordinator does not have it, `on_refused(Refused)` are called on a thread of this
    object's own. `steps()` is what heartbeats say."""

    def __init__(self, address, credentials, member, secret, steps, on_command, on_refused, say):
        self._address = address
        self._credentials = credentials
        self._member = member
        self._secret = secret
        self._steps = steps
        self._on_command = on_command
        self._on_refused = on_refused
        self._say = say
        self._leaving = threading.Event()
        self._call = None  # the session
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="flotilla-member", daemon=True)

    def start(self):
        self._thread.start()

    def leave(self):
        """Says goodbye, if anybody listens."""
        self._leaving.set()
        with self._lock:
            if self._call is not None:
                self._call.cancel()
        self._thread.join()
        request = pb.LeaveRequest(member_id=self._member.id, incarnation=self._member.incarnation, reason="stopped")
        try:
            with self._credentials.channel(self._address) as channel:
                self._unary(channel, "Leave", request, pb.LeaveResponse, _GOODBYE)
        except Exception:  # nobody listens, or a token file that is gone
            pass

    def _metadata(self):
        seat = (("flotilla-member", self._member.id), ("flotilla-secret", self._secret))
        return self._credentials.metadata() + seat

    def _unary(self, channel, name, request, response, timeout):
        call = channel.unary_unary(_SERVICE + name, type(request).SerializeToString, response.FromString)
        return call(request, timeout=timeout, metadata=self._metadata(), wait_for_ready=True)

    def _keep(self):
        pause = _PAUSES[0]
        while not self._leaving.is_set():
            try:
                # Anew each time: what does not answer may be a connection that only seems alive.
                with self._credentials.channel(self._address) as channel:
                    registered = self._unary(
                        channel, "Register", pb.RegisterRequest(member=self._member), pb.RegisterResponse, _ATTEMPT
                    )
                    pause = _PAUSES[0]
                    self._hold_session(channel, registered)
            except grpc.RpcError as error:
                if self._leaving.is_set():
                    return
                why = f"the coordinator at {self._address}: {one_line(error.details() or error.code().name)}"
                if error.code() in _HOPELESS:
                    return self._on_refused(Refused(error.code().name, why))
                self._say(f"{why}; trying on")
            except Exception as error:  # a token file that is gone
                self._say(f"the coordinator at {self._address}: {type(error).__name__}: {one_line(error)}; trying on")
            self._leaving.wait(pause)
            pause = min(2 * pause, _PAUSES[1])

    def _hold_session(self, channel, registered):
        """Until it breaks, or the coordinator has forgotten us."""
        period = registered.heartbeat_ms / 1000
        patience = max(2 * period, registered.dead_after_ms / 2000)
        heard = time.monotonic()
        over = threading.Event()

        def beats():
            before = self._steps()
            while True:
                steps = self._steps()
                yield pb.Heartbeat(
                    member_id=self._member.id, incarnation=self._member.incarnation, phase=pb.STEPPING, env_steps=steps,
                    steps_per_second=(steps - before) / period,
                )  # fmt: skip
                before = steps
                if over.wait(period):
                    return
                if time.monotonic() - heard >= patience:
                    call.cancel()
                    return

        session = channel.stream_stream(_SERVICE + "Session", pb.Heartbeat.SerializeToString, pb.Command.FromString)
        with self._lock:
            if self._leaving.is_set():
                return
            call = self._call = session(beats(), metadata=self._metadata())
        try:
            greeted = False
            for command in call:
                heard = time.monotonic()
                if command.register_again:
                    return
                if not greeted:
                    greeted = True
                    self._say(f"the coordinator at {self._address} has us as {self._member.id}")
                self._on_command(command)
        finally:
            over.set()
            call.cancel()
            with self._lock:
                self._call = None
