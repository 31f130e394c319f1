"""`flotilla dashboard`, which has checked what is given here: see
launcher/commands/dashboard.cc."""

import argparse
import errno
import os
import signal
import socket
import ssl
import sys
import threading

from flotilla_watch.feed import Feed
from flotilla_watch.web import Server, Tls


def die(message, code=1):
    print(f"flotilla dashboard: {message}", file=sys.stderr)
    sys.exit(code)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="flotilla_watch dashboard", allow_abbrev=False)
    parser.add_argument("--flotilla", required=True, help="the program that is asked about runs")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--any-port", action="store_true", help="another where that is taken")
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--coordinator", action="append", default=[])
    parser.add_argument("--tls-cert", default="")
    parser.add_argument("--tls-key", default="")
    parser.add_argument("--tls-ca", default="")
    parser.add_argument("--token-file", default="")
    parser.add_argument("--insecure", action="store_true")
    return parser.parse_args(arguments)


def read_token(path):
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read(65536).strip()
    except (OSError, UnicodeDecodeError) as error:
        die(f"cannot read --token-file {path}: {getattr(error, 'strerror', None) or error}", 2)
    if not token or token.split() != [token]:
        die(f"--token-file {path}: want one word", 2)
    return token


def make_server(options, feed, token, tls):
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        die(f"--listen {options.host}:{options.port}: {error.strerror}", 2)
    family, _, _, _, address = found[0]
    names = {options.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()} - {""}
    try:
        return Server(family, address, feed, token, names, tls)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and options.any_port:
            return Server(family, (address[0], 0, *address[2:]), feed, token, names, tls)
        if error.errno == errno.EADDRINUSE:
            die(f"port {options.port} of {options.host} is taken; name another with --listen, or 0 for a free one")
        die(f"cannot listen on {options.host}:{options.port}: {error.strerror}")


def flags_for_status(options):
    flags = []
    for name in ("tls_cert", "tls_key", "tls_ca", "token_file"):
        if value := getattr(options, name):
            flags.append(f"--{name.replace('_', '-')}={value}")
    return flags


class LateFeed:
    """Lets the server take its port before anything else is started."""

    def __getattr__(self, name):
        return getattr(self.feed, name)


def main(arguments):
    options = parse(arguments)
    token = read_token(options.token_file)
    try:
        tls = Tls(options.tls_cert, options.tls_key) if options.tls_cert else None
    except (OSError, ssl.SSLError) as error:
        die(f"--tls-cert {options.tls_cert} and --tls-key {options.tls_key}: {error}", 2)
    late = LateFeed()
    server = make_server(options, late, token, tls)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    late.feed = Feed(options.flotilla, options.folder, options.coordinator, flags_for_status(options))
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    shown = f"[{options.host}]" if ":" in options.host else options.host
    print(f"{'https' if tls else 'http'}://{shown}:{server.server_port}/" + ("  (asks for the token)" if token else ""), flush=True)
    ended.wait()
    server.shutdown()
    late.feed.close()
    sys.stdout.flush()
    os._exit(0)  # streams that are open hold threads
