"""Memory that the learner shares: a sealed memfd, passed over a unix socket."""

import asyncio
import fcntl
import hmac
import mmap
import os
import secrets
import socket

from flotilla_gym.refused import Refused

_TIMEOUT = 2  # seconds: the descriptor is on its way before the start that names it
_F_GET_SEALS = 1034
_SIZE_SEALS = 0x2 | 0x4  # F_SEAL_SHRINK | F_SEAL_GROW


class RegionReceiver:
    """Waits for one descriptor on an abstract socket; only the learner that this was announced to knows the token."""

    def __init__(self):
        self.token = secrets.token_bytes(16)
        self.socket = f"@flotilla-env-{os.getpid()}-{secrets.token_hex(8)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind("\0" + self.socket[1:])
        self._listener.listen(16)

    def close(self):
        self._listener.close()

    async def receive(self, size):
        """The region, mapped. Refuses one that is not of `size` bytes for good."""
        loop = asyncio.get_running_loop()
        received = loop.create_future()
        connections = []

        def on_message(connection):
            loop.remove_reader(connection)
            data, fds, _, _ = socket.recv_fds(connection, len(self.token) + 1, 1)
            if fds and hmac.compare_digest(data, self.token) and not received.done():
                received.set_result(fds.pop())
            for fd in fds:
                os.close(fd)

        def on_connection():
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            connections.append(connection)
            loop.add_reader(connection, on_message, connection)

        loop.add_reader(self._listener, on_connection)
        try:
            fd = await asyncio.wait_for(received, _TIMEOUT)
        except asyncio.TimeoutError:
            raise Refused(
                "DEADLINE_EXCEEDED",
                "start.shared_memory was given, but no descriptor came with the right token on "
                f"{self.socket} within {_TIMEOUT} s",
            ) from None
        finally:
            loop.remove_reader(self._listener)
            for connection in connections:
                loop.remove_reader(connection)
                connection.close()
        try:
            return _map(fd, size)
        finally:
            os.close(fd)


def _map(fd, size):
    try:
        seals = fcntl.fcntl(fd, _F_GET_SEALS)
    except OSError:
        raise Refused("INVALID_ARGUMENT", "the shared region's descriptor is not a memfd") from None
    if seals & _SIZE_SEALS != _SIZE_SEALS:
        raise Refused(
            "INVALID_ARGUMENT",
            f"the shared region has seals {seals}, want {_SIZE_SEALS} (F_SEAL_SHRINK | F_SEAL_GROW) among them",
        )
    has = os.fstat(fd).st_size
    if has != size:
        raise Refused("INVALID_ARGUMENT", f"the shared region has {has} bytes, want {size}")
    return mmap.mmap(fd, size)
