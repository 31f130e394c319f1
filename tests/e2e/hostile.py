"""Clients that mean harm: floods of connections, and HTTP/2 frames, by hand, that no library would send."""

import contextlib
import resource
import selectors
import socket
import struct
import threading

# Frames (RFC 9113) and their flags.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def number(value, bits, first=0):
    """HPACK's integers (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    return bytes([*out, value])


def text(words):
    return number(len(words), 7) + words


def field(name, value, keep=False):
    """A literal header field; `keep`: the server is to add it to its table."""
    return (b"\x40" if keep else b"\x00") + text(name) + text(value)


def request(method):
    """The header block of a call of CoordinatorService."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": f"/flotilla.v1.CoordinatorService/{method}",
        ":authority": "x", "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    return b"".join(field(name.encode(), value.encode()) for name, value in fields.items())


class Http2:
    """A connection that has said its preface. What the server says is read and counted."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self.heard = b""
        self.over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))

    def _read(self):
        with contextlib.suppress(OSError):
            while chunk := self._socket.recv(1 << 16):
                self.heard = (self.heard + chunk)[-(1 << 20) :]
        self.over = True

    def send(self, frames):
        """False if the server has had enough."""
        try:
            self._socket.sendall(frames)
        except OSError:
            self.over = True
        return not self.over

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(20)
        self._socket.close()


class SilentFlood:
    """`count` connections that say nothing, opened again when the server closes them, at most `rate` a second."""

    def __init__(self, address, count, rate=500):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard >= 2 * count, f"ulimit -Hn is {hard}, want {2 * count}"
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count), hard))
        host, port = address.rsplit(":", 1)
        self._address = (host, int(port))
        self._rate = rate
        self._sockets = selectors.DefaultSelector()
        self._quit = threading.Event()
        for _ in range(count):
            self._connect()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _connect(self):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(self._address)
        self._sockets.register(connection, selectors.EVENT_READ)

    def _keep(self):
        while not self._quit.wait(0.1):
            for key, _ in self._sockets.select(0)[: self._rate // 10]:
                self._sockets.unregister(key.fileobj)
                key.fileobj.close()
                self._connect()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._quit.set()
        self._thread.join()
        for key in list(self._sockets.get_map().values()):
            key.fileobj.close()
        self._sockets.close()
