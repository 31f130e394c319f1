"""A real browser without a screen, told what to do through its DevTools protocol
over a pipe: nothing but the program is needed."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import time

from harness import TIMEOUT, poll

PROGRAMS = ("chromium-headless-shell", "chromium", "chrome-headless-shell", "google-chrome")


def find():
    found = [path for name in PROGRAMS if (path := shutil.which(name))]
    assert found, f"none of {', '.join(PROGRAMS)} is on PATH; cmake/setup.sh test installs one"
    return found[0]


def alive(group):
    """Whether any of a group's processes still runs."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


class Browser:
    """One page of it. All that it asked the network for is in `requests`, what went
    wrong in it in `errors`."""

    def __init__(self, sandbox, width=1280, height=900, dark=False):
        self.requests, self.errors = [], []
        self._number = 0
        self._read = b""
        self._answers = {}
        profile = sandbox.tmp / "chromium"
        to_child, self._to = os.pipe()
        self._from, from_child = os.pipe()
        flags = [
            "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            # Whatever is not this host is asked of nobody, and seen in `requests`.
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        # It wants to read from 3 and to write to 4.
        script = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
        with open(sandbox.folder / "chromium.log", "ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", script, find(), *flags], env=sandbox.env, pass_fds=(to_child, from_child),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def resize(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while self._number not in self._answers:
            self._take(deadline)
        answer = self._answers.pop(self._number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _take(self, deadline):
        ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
        assert ready, "the browser does not answer"
        piece = os.read(self._from, 1 << 20)
        assert piece, "the browser has ended; chromium.log says why"
        self._read += piece
        *whole, self._read = self._read.split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            elif message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            elif message["method"] == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.await_true("document.readyState === 'complete'")

    def js(self, expression):
        """Its value, once a promise is kept."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, f"{expression}: {said['exceptionDetails']}"
        return said["result"].get("value")

    def await_true(self, expression, timeout=TIMEOUT):
        # A page that has just been asked for has no body yet.
        return poll(lambda: self.js(f"document.body !== null && ({expression})"), expression, timeout, interval=0.1)

    def key(self, name, text=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, **({"text": text} if text and kind == "keyDown" else {}))

    def text(self):
        return self.js("document.body.innerText")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        if self.process.returncode is not None:
            return
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # Its children hide their environment, so the sandbox does not know them; one that
        # still goes writes into the profile.
        poll(lambda: not alive(self.process.pid), "the browser's processes to be gone", 20)
        os.close(self._to)
        os.close(self._from)
