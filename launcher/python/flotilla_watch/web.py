"""The dashboard's web server: fixed files, a stream of events, ends of logs."""

import base64
import hmac
import http.server
import ipaddress
import json
import os
import pathlib
import secrets
import socket
import socketserver
import ssl
import threading
import time
import urllib.parse
from http import HTTPStatus

from flotilla_watch.games import Refused

MOST_CLIENTS = 64  # connections at a time
MOST_STREAMS = 16
REQUEST_TIMEOUT = 10  # seconds: for the request to come, and for a write to be taken
HANDSHAKE_TIMEOUT = 5
MOST_FORM_BYTES = 4096
PING = 10  # seconds between signs of life of a stream with nothing to tell
PACE = 1.6  # seconds between two events of a stream, at least

PAGE = pathlib.Path(__file__).resolve().parent / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_of(header):
    """The host of a Host header, without its port; "" if that is not one."""
    try:
        parts = urllib.parse.urlsplit("//" + header)
        parts.port  # noqa: B018: raises where it is no number
    except ValueError:
        return ""
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        return ""
    return (parts.hostname or "").rstrip(".").lower()


def is_known_host(header, names):
    """Whether a browser may call us so. A page elsewhere can give its own name our
    address (DNS rebinding); it cannot be called an address, localhost or ours."""
    host = host_of(header)
    if host in names or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host.split("%", 1)[0])
    except ValueError:
        return False
    return True


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Threads are bounded: who comes when all are taken is sent away."""

    daemon_threads = True
    block_on_close = False
    # Who finds it full hears nothing, and asks again a second later and then two: the refused are to be told.
    request_queue_size = 4 * MOST_CLIENTS

    def __init__(self, family, address, feed, token, names, tls):
        self.address_family = family
        self.feed = feed
        self.token = token  # "": everybody may look
        self.session = secrets.token_urlsafe(32)
        self.names = names
        self.tls = tls
        self.files = {file.name: (file.read_bytes(), TYPES[file.suffix]) for file in PAGE.iterdir() if file.suffix in TYPES}
        self._clients = threading.BoundedSemaphore(MOST_CLIENTS)
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)
        super().__init__(address, Handler)

    def server_bind(self):
        # HTTPServer's asks the name service who we are.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    @property
    def cookie(self):
        # Cookies know no ports: another dashboard of this host has its own.
        return f"flotilla_dashboard_{self.server_port}"

    def process_request(self, request, client_address):
        if not self._clients.acquire(blocking=False):
            try:
                request.settimeout(0.1)
                if self.tls is None:
                    request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\ntoo many clients; close some\n")
            except OSError:
                pass
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._clients.release()
            raise

    def process_request_thread(self, request, client_address):
        try:
            if self.tls is not None:
                request.settimeout(HANDSHAKE_TIMEOUT)
                try:
                    request = self.tls.newest().wrap_socket(request, server_side=True)
                except OSError:
                    self.shutdown_request(request)
                    return
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()

    def handle_error(self, request, client_address):
        pass  # a client that went away in mid-answer


class Handler(http.server.BaseHTTPRequestHandler):
    server_version = "flotilla"
    sys_version = ""
    timeout = REQUEST_TIMEOUT

    def log_message(self, *args):
        pass

    def handle(self):
        # Of one request; a byte now and then does not make the time longer.
        hurry = threading.Timer(REQUEST_TIMEOUT, self._give_up)
        hurry.daemon = True
        hurry.start()
        self._hurry = hurry
        try:
            self.close_connection = True
            self.handle_one_request()
        finally:
            hurry.cancel()

    def _give_up(self):
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    # ---- Answers

    def send_error(self, code, message=None, explain=None):
        self.answer(code, (message or HTTPStatus(code).phrase) + "\n", "text/plain")

    def answer(self, code, body, kind, headers=None):
        data = body if isinstance(body, bytes) else body.encode()
        self.send_response(code)
        for name, value in (SECURITY | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refused(self):
        """Whether this request was answered with a no."""
        host = self.headers.get_all("Host") or []
        if len(host) != 1 or not is_known_host(host[0], self.server.names):
            name = json.dumps(host[0][:100]) if host else "nothing"
            self.send_error(421, f"the Host header says {name}: want an address, localhost or this host's own name")
            return True
        # A link may lead here, and on to where the token is asked for.
        by_link = self.command in ("GET", "HEAD") and self.path in ("/", "/login")
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none") and not by_link:
            self.send_error(403, "asked for by another site's page")
            return True
        return False

    def authorized(self):
        if not self.server.token:
            return True
        given = self.headers.get("Authorization", "")
        if given.startswith("Bearer "):
            return same(given.removeprefix("Bearer ").strip(), self.server.token)
        for cookie in self.headers.get("Cookie", "").split(";")[:50]:
            name, _, value = cookie.strip().partition("=")
            if name == self.server.cookie:
                return same(value, self.server.session)
        return False

    # ---- Requests

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        if self.refused():
            return
        url = urllib.parse.urlsplit(self.path)
        file = {"/": "index.html", "/login": "login.html"}.get(url.path, url.path[1:])
        public = url.path in ("/login", "/style.css")
        if not public and not self.authorized():
            if url.path == "/":
                self.answer(303, "", "text/plain", {"Location": "/login"})
            else:
                self.answer(401, "this page takes the run's token\n", "text/plain", {"WWW-Authenticate": "Bearer"})
            return
        try:
            query = dict(urllib.parse.parse_qsl(url.query, max_num_fields=20))
        except ValueError:
            self.send_error(400, "too many fields")
            return
        if url.path == "/events":
            self.events(query)
        elif url.path == "/log":
            run = self.server.feed.run(query.get("run"))
            self.text(run and run.log_tail(query.get("file", "")), "there is no such log")
        elif url.path == "/config":
            run = self.server.feed.run(query.get("run"))
            self.text(run and run.config(), "there is no such configuration")
        elif url.path in ("/games", "/film"):
            self.games(url.path, query)
        elif file in self.server.files:
            self.answer(200, *self.server.files[file])
        else:
            self.send_error(404, "there is no such page")

    def do_POST(self):
        if self.refused():
            return
        if self.path != "/login":
            self.send_error(404, "there is no such page")
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if not 0 <= length <= MOST_FORM_BYTES:
            self.send_error(413, f"want a form of at most {MOST_FORM_BYTES} bytes")
            return
        form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode(errors="replace")))
        if not self.server.token or same(form.get("token", ""), self.server.token):
            secure = "; Secure" if self.server.tls else ""
            cookie = f"{self.server.cookie}={self.server.session}; HttpOnly; SameSite=Strict; Path=/{secure}"
            self.answer(303, "", "text/plain", {"Location": "/", "Set-Cookie": cookie})
        else:
            time.sleep(0.5)
            self.answer(303, "", "text/plain", {"Location": "/login#wrong"})

    def text(self, text, otherwise):
        if text is None:
            self.send_error(404, otherwise)
        else:
            self.answer(200, text, "text/plain")

    def games(self, path, query):
        run = self.server.feed.run(query.get("run"))
        if run is None or not run.path:
            self.send_error(404, "there are no such games")
            return
        self._hurry.cancel()  # what is asked ends in time
        games = self.server.feed.games
        try:
            if path == "/games":
                answer = self._listed(games, run.path)
            else:
                said, film = games.film(run.path, int(query.get("number", "")), int(query.get("step", "")))
                answer = {"said": said, "film": "data:image/webp;base64," + base64.b64encode(film).decode()}
        except ValueError:
            self.send_error(400, "want a game's number and step")
        except Refused as refused:
            self.send_error(409, str(refused))
        else:
            self.answer(200, json.dumps(answer), "application/json")

    @staticmethod
    def _listed(games, path):
        """A run without games is nothing unusual, and no error of the page's."""
        try:
            return {"games": games.list(path), "said": "none yet"}
        except Refused as refused:
            return {"games": [], "said": str(refused)}

    def events(self, query):
        if not self.server.streams.acquire(blocking=False):
            self.send_error(503, f"{MOST_STREAMS} pages are open already; close one")
            return
        try:
            self._hurry.cancel()  # each write still has REQUEST_TIMEOUT
            groups = set(query.get("groups", "").split(",")[:64])
            self.send_response(200)
            for name, value in SECURITY.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            if self.command == "HEAD":
                return
            cursor, seen = {}, -1
            while True:
                now = self.server.feed.await_change(seen, PING)
                if now is None:
                    return
                if now == seen:
                    self.wfile.write(b": nothing new\n\n")
                    continue
                seen = now
                for event, data in self.server.feed.changes(cursor, groups):
                    text = json.dumps(data, separators=(",", ":"))
                    self.wfile.write(f"event: {event}\ndata: {text}\n\n".encode())
                time.sleep(PACE)
        except OSError:
            pass  # it has gone, or does not take what it asked for
        finally:
            self.server.streams.release()


def same(given, wanted):
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


class Tls:
    """A browser's TLS: the certificate is ours, and it needs none. Thread-safe."""

    def __init__(self, certificate, key):
        self._files = (certificate, key)
        self._lock = threading.Lock()
        self._marks = self._context = None
        self._load()

    def newest(self):
        """The context of a connection: files that were renewed count from the next one on."""
        with self._lock:
            try:
                self._load()
            except OSError:
                pass  # one of the two has its new name already, the other not yet
            return self._context

    def _load(self):
        stats = [os.stat(file) for file in self._files]
        marks = [(stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
        if marks == self._marks:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files, password=str)  # nobody is there to be asked for one
        self._context, self._marks = context, marks
