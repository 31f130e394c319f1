"""How this side proves who it is, and connects: as services/rpc/channel.h does."""

import dataclasses
import pathlib

import grpc

from flotilla_gym.play import MAX_MESSAGE_BYTES

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that is gone is noticed within 18 s. Servers mind more than a ping in 10.
    ("grpc.keepalive_time_ms", 12_000),
    ("grpc.keepalive_timeout_ms", 6_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
)


@dataclasses.dataclass
class Credentials:
    """Files, read anew for each connection."""

    token_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""

    def __post_init__(self):
        given = [bool(file) for file in (self.tls_cert, self.tls_key, self.tls_ca)]
        if any(given) and not all(given):
            raise ValueError("TLS takes all of tls_cert, tls_key and tls_ca")
        self.metadata()
        self.tls()

    def metadata(self):
        """Of every call."""
        if not self.token_file:
            return ()
        token = pathlib.Path(self.token_file).read_text().strip()
        if not token or len(token.split()) > 1:
            raise ValueError(f"{self.token_file} holds no token: want one word")
        return (("authorization", f"Bearer {token}"),)

    def tls(self):
        """grpc's credentials; None without."""
        if not self.tls_cert:
            return None
        ca, key, cert = (pathlib.Path(file).read_bytes() for file in (self.tls_ca, self.tls_key, self.tls_cert))
        return grpc.ssl_channel_credentials(ca, key, cert)

    def channel(self, address, library=grpc):
        """A connection of its own; `library` is grpc or grpc.aio."""
        tls = self.tls()
        if tls is None:
            return library.insecure_channel(address, options=OPTIONS)
        return library.secure_channel(address, tls, options=OPTIONS)
