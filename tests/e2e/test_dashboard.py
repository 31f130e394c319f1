"""flotilla dashboard, looked at with a real browser, and asked what it should not say."""

import concurrent.futures
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest

import chromium
from harness import SOURCE, TIMEOUT, guide, poll

sys.path.insert(0, str(SOURCE / "launcher" / "python"))
from flotilla_watch import feed, history, watched_run  # noqa: E402

# Leaves the cores to browsers: an update in 20 ms, most of which is slept.
LONG = [
    "sleep_scaling", "--nproc-per-node=2", "--set=env.options.sleep.step_ms=0.2", "--set=env.num_envs=2", "--set=env.num_workers=1",
    "--steps=1000000000", "--set=evaluation.every_updates=0",
]  # fmt: skip
EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


class Dashboard:
    def __init__(self, sandbox, *words, trusted=None):
        self.trusted = trusted  # of https, whose certificates
        self.log = sandbox.folder / "flotilla.log"
        self.process = sandbox.serve("flotilla", "dashboard", *words)

        def url():
            assert self.process.poll() is None, self.log.read_text()
            return re.search(r"https?://\S+/", self.log.read_text())

        self.url = poll(url, "the dashboard's address")[0]
        parts = urllib.parse.urlsplit(self.url)
        self.host, self.port = parts.hostname, parts.port

    def ask(self, path, method="GET", body=None, **headers):
        """(status, headers, text)"""
        connection = self.connection(20)
        with contextlib.closing(connection):
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def connection(self, timeout):
        if self.trusted:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.trusted)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def stream(self, groups="charts,eval,perf", **headers):
        connection = self.connection(60)
        connection.request("GET", f"/events?groups={groups}", None, headers)
        return connection.getresponse()

    def events(self, until, groups="charts,eval,perf"):
        """What a page is told up to the first (event, data) that `until` likes."""
        told = []
        deadline = time.monotonic() + TIMEOUT
        with contextlib.closing(self.stream(groups)) as stream:
            event = None
            while line := stream.readline().decode():  # a sign of life, if nothing else
                assert time.monotonic() < deadline, f"not within {TIMEOUT} s; the last was {told[-1:]}"
                if line.startswith("event: "):
                    event = line[7:].strip()
                elif line.startswith("data: "):
                    told.append((event, json.loads(line[6:])))
                    if until(*told[-1]):
                        return told
        raise AssertionError("the stream has ended")


@pytest.fixture
def browser(sandbox):
    opened = []

    def make(**how):
        opened.append(chromium.Browser(sandbox, **how))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def write_run(folder, env="CartPole-v1", seed=1, epochs=4, lines=30, log="all is well\n"):
    (folder / "logs").mkdir(parents=True)
    (folder / "config.textproto").write_text(f"seed: {seed} env {{ id: {json.dumps(env)} }} ppo {{ epochs: {epochs} }}\n")
    rows = [
        {"global_step": 512 * i, "update": i, "wall_seconds": i / 10, "charts/episodic_return": seed + i, "perf/update_fraction": 0.5, "losses/entropy": None}
        for i in range(1, lines + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "logs" / "rank_0.log").write_text(log)
    return folder


def certified(sandbox):
    """Flags for https of 127.0.0.1, and whom to trust."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=sandbox.folder, check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    flags = ["--tls-cert=cert.pem", "--tls-key=key.pem", "--tls-ca=cert.pem"]
    return flags, ssl.create_default_context(cafile=sandbox.folder / "cert.pem")


def within(page, base, width):
    """Asked nobody else, complained of nothing, and fits."""
    assert all(url.startswith((base, "data:", "about:")) for url in page.requests), page.requests
    assert page.errors == []
    assert page.js("document.documentElement.scrollWidth") <= width


def keep(page, name):
    """A picture of all of it for people to look at, in FLOTILLA_SCREENSHOTS if that
    is set."""
    if folder := os.environ.get("FLOTILLA_SCREENSHOTS"):
        os.makedirs(folder, exist_ok=True)
        # As high as the page is: what is out of sight is not drawn.
        width = page.js("innerWidth")
        page.resize(width, page.js("document.documentElement.scrollHeight"))
        page.await_true("[...document.querySelectorAll('figure:not([hidden])')].every(f => f.offsetParent === null || f.querySelector('svg').children.length > 0)")
        page.screenshot(pathlib.Path(folder) / name)
        page.resize(width)


POINTS = "Math.max(0, ...[...document.querySelectorAll('figure[data-metric=\"charts/episodic_return\"] polyline')].map(p => p.getAttribute('points').split(' ').length))"


def test_games_are_listed_and_played_again_as_films(sandbox, browser):
    (sandbox.folder / "runs").mkdir()
    sandbox.train("cartpole_fast", "--steps=40000", run_dir="runs/first").succeeds()
    write_run(sandbox.folder / "runs" / "second" / "at 9:30")
    sandbox.env["FLOTILLA_PYTHON"] = sys.executable  # which makes films
    dashboard = Dashboard(sandbox, "runs")
    page = browser()
    page.open(dashboard.url)
    page.await_true("document.querySelectorAll('#game-table button').length > 3")
    listed = json.loads(sandbox.run("replay", "runs/first", "--list", "--json").stdout)
    assert page.js("document.querySelectorAll('#game-table button').length") == len(listed)
    assert page.js("document.querySelector('#game-table tr:nth-child(2)').textContent").startswith("best")
    page.js("document.querySelector('#game-table button').click()")
    page.await_true("(document.querySelector('#film img') || {}).naturalWidth > 100")
    assert "played again, it is the same" in page.js("document.getElementById('game-said').textContent")
    within(page, dashboard.url, page.js("innerWidth"))
    keep(page, "games.png")

    (run,) = page.js("[...document.getElementById('game-run').options].filter(o => o.text.endsWith('first')).map(o => o.value)")
    (empty,) = page.js("[...document.getElementById('game-run').options].filter(o => o.text.endsWith('at 9:30')).map(o => o.value)")
    assert page.js(f"shortName(runOf('{empty}'))") == "second/at 9:30"
    code, headers, text = dashboard.ask(f"/games?run={run}")
    assert code == 200 and headers["Content-Type"].startswith("application/json") and [game["number"] for game in json.loads(text)["games"]] == list(range(1, len(listed) + 1))
    assert dashboard.ask(f"/film?run={run}&number=1&step=77")[::2] == (409, "that game is not kept any more\n")
    assert dashboard.ask(f"/film?run={run}&number=1;rm&step=77")[::2] == (400, "want a game's number and step\n")
    assert dashboard.ask("/film?run=77&number=1&step=77")[0] == 404
    code, _, text = dashboard.ask(f"/games?run={empty}")
    assert code == 200 and json.loads(text)["games"] == [] and json.loads(text)["said"].startswith("flotilla replay: "), text
    page.js(f"document.getElementById('game-run').value = '{empty}'; document.getElementById('game-run').dispatchEvent(new Event('change'))")
    page.await_true("document.getElementById('game-table').textContent.includes('flotilla replay') && document.querySelector('#film img') === null")


def test_a_run_is_seen_while_it_trains_and_what_befalls_it(sandbox, browser):
    (sandbox.folder / "runs").mkdir()
    job = sandbox.train(*LONG, run_dir="runs/first")
    job.await_update(3)
    dashboard = Dashboard(sandbox, "runs")
    page = browser()
    page.open(dashboard.url)
    page.await_true(f"{POINTS} > 3")
    before = page.js("document.querySelector('#run-table tr:nth-child(2) td:nth-child(4)').textContent")
    page.await_true(f"document.querySelector('#run-table tr:nth-child(2) td:nth-child(4)').textContent !== {json.dumps(before)}")
    page.await_true("document.querySelectorAll('#timeline rect').length >= 2 && document.querySelectorAll('#learners tr').length === 3")
    assert "Sleep" in page.js("document.title")
    # Generation 1, told by the coordinator's log of the time before we came.
    assert "generation 1 has formed" in page.text()

    worker = job.status().learner[1].env_worker[0]
    os.kill(worker.pid, signal.SIGKILL)
    page.await_true("[...document.querySelectorAll('#events li.fault')].some(e => e.textContent.includes('env worker') && e.textContent.includes('learner 1'))")
    page.await_true("document.querySelector('figure[data-metric=\"charts/episodic_return\"] line.mark.fault') !== null")
    page.await_true("document.querySelector('#timeline line.mark.fault') !== null")
    learner = job.status().learner[1].pid
    os.kill(learner, signal.SIGKILL)
    page.await_true("[...document.querySelectorAll('#events li.generation')].some(e => e.textContent.includes('generation 2 has formed'))")
    page.await_true("document.querySelector('#logs select#log-file').options.length >= 4 && document.querySelector('#log').textContent.includes('generation')")
    keep(page, "dashboard-1280.png")
    within(page, dashboard.url, 1280)
    page.resize(400)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.await_true("document.documentElement.dataset.theme === 'dark'")
    within(page, dashboard.url, 400)
    keep(page, "dashboard-400-dark.png")

    # Another run appears in the folder, and is overlaid.
    write_run(sandbox.folder / "runs" / "second", env="Sleep", seed=2)
    page.await_true("document.querySelectorAll('#run-table input').length === 2")
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait() == 75
    page.await_true("document.querySelector('#run-table').textContent.includes('preempted')")
    dashboard.process.send_signal(signal.SIGINT)
    assert dashboard.process.wait(20) == 0
    page.await_true("document.querySelector('#link').textContent === 'lost'")
    page.close()
    sandbox.await_no_process()


def test_seeds_share_a_colour_and_differences_are_told(sandbox, browser):
    for seed in (1, 2):
        for epochs in (4, 8):
            write_run(sandbox.folder / "study" / f"{epochs}-{seed}", seed=seed, epochs=epochs)
    dashboard = Dashboard(sandbox, "study")
    page = browser()
    page.open(dashboard.url)
    chart = "document.querySelector('figure[data-metric=\"charts/episodic_return\"]')"
    page.await_true(f"{chart} && {chart}.querySelectorAll('polyline').length === 6")
    colors = page.js(f"[...{chart}.querySelectorAll('polyline')].map(p => p.getAttribute('stroke'))")
    assert len(set(colors)) == 2
    means = page.js(f"[...{chart}.querySelectorAll('polyline:not(.seed) title')].map(t => t.textContent)")
    assert sorted(means) == ["ppo ppo.epochs=4 (mean of 2)", "ppo ppo.epochs=8 (mean of 2)"]
    differences = page.js("document.querySelector('#differences').innerText")
    assert "ppo.epochs" in differences and "seed" not in differences
    # By keyboard alone: the chart has the focus, the cursor goes to its end and back.
    page.js(f"{chart}.querySelector('svg').focus()")
    page.key("End")
    page.await_true(f"{chart}.querySelector('.readout').textContent.startsWith('at 15.36k; ')")
    assert "mean of 2): 31.5" in page.js(f"{chart}.querySelector('.readout').textContent")
    page.key("ArrowLeft")
    page.await_true(f"{chart}.querySelector('.readout').textContent.startsWith('at 15.21k; ')")
    page.key("Tab")
    assert page.js("document.activeElement.tagName") in ("svg", "SUMMARY")
    # Hidden runs are drawn no more.
    page.js("document.querySelector('#run-table input').click()")
    page.await_true(f"{chart}.querySelectorAll('polyline').length < 6")
    page.js("document.querySelector('#x').value = 'time'; document.querySelector('#x').dispatchEvent(new Event('input'))")
    page.await_true(f"{chart}.querySelector('svg').textContent.includes(' s')")
    keep(page, "dashboard-study.png")
    within(page, dashboard.url, 1280)


def test_what_stays_the_same_is_a_line(sandbox, browser):
    """Also where smoothing, or the mean of several, leaves the last digit to rounding."""
    for seed in (1, 2, 3):
        run = write_run(sandbox.folder / "runs" / str(seed), seed=seed)
        rows = [{"global_step": 512 * i, "update": i, "wall_seconds": i / 10, "charts/episodic_return": 0.003} for i in range(1, 31)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = browser()
    page.open(Dashboard(sandbox, "runs").url)
    page.await_true(f"{POINTS} > 100")  # of the mean
    chart = "document.querySelector('figure[data-metric=\"charts/episodic_return\"]')"
    labels = f"[...{chart}.querySelectorAll('text[text-anchor=\"end\"]')].map(t => t.textContent)"
    assert page.js(labels) == ["0.0028", "0.003", "0.0032"]
    page.js("document.querySelector('#mean').click()")
    page.js("document.querySelector('#smooth').value = 0.02; document.querySelector('#smooth').dispatchEvent(new Event('input'))")
    page.await_true(f"{chart}.querySelectorAll('polyline').length === 3")
    assert page.js(labels) == ["0.0028", "0.003", "0.0032"]
    assert page.js("ticks(0.003, 0.003 + 2 ** -60, 4).length") <= 5
    assert page.js("ticks(-1, 1, 4)") == [-1, -0.5, 0, 0.5, 1]


def test_what_strangers_write_stays_text(sandbox, browser):
    run = write_run(sandbox.folder / "runs" / "a<b>&amp;", env=EVIL, log=f"{EVIL}\nW20261122 16:49:50.922875 21305 a.cc:1] {EVIL}\n")
    (run / "logs" / "coordinator.log").write_text(f"W20261122 16:49:50.922875 21305 a.cc:1] {EVIL}\n")
    (run / "logs" / "<img src=x onerror=hacked()>.log").write_text(EVIL)
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"global_step": 99999, "wall_seconds": 9, EVIL: 1, "__proto__": 3, "charts/<b>": 1}) + "\n")
    dashboard = Dashboard(sandbox, "runs")
    page = browser()
    page.open(dashboard.url)
    page.await_true("document.querySelector('#log').textContent.includes('<script>')")
    page.await_true("document.querySelector('#events').textContent.includes('<script>')")
    page.await_true("document.querySelector('#config').textContent.includes('<script>')")
    page.await_true("document.title.includes('<script>')")
    assert page.js("typeof window.hacked") == "undefined"
    assert page.js("document.querySelectorAll('img, main script').length") == 0
    within(page, dashboard.url, 1280)
    status, headers, _ = dashboard.ask("/")
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"] and "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    # A log is a text to a browser that is sent there, too.
    status, headers, text = dashboard.ask("/log?run=0&file=rank_0.log")
    assert status == 200 and headers["Content-Type"].startswith("text/plain") and EVIL in text


def test_only_what_it_means_to_show_can_be_had(sandbox):
    run = write_run(sandbox.folder / "runs" / "a")
    (run / "token").write_text("secret")
    (run / "logs" / "link.log").symlink_to(run / "token")
    os.mkfifo(run / "logs" / "fifo.log")
    dashboard = Dashboard(sandbox, "runs")
    assert dashboard.ask("/log?run=0&file=rank_0.log")[2] == "all is well\n"
    assert "epochs: 4" in dashboard.ask("/config?run=0")[2]
    for path in (
        "/log?run=0&file=../token", "/log?run=0&file=..%2Ftoken", "/log?run=0&file=%2Fetc%2Fpasswd", "/log?run=0&file=link.log",
        "/log?run=0&file=fifo.log", "/log?run=0&file=", "/log?run=7&file=rank_0.log", "/log", "/config?run=../a",
        "/../web.py", "/..%2Fweb.py", "//etc/passwd", "/page/../web.py", "/token", "/login.html/..", "/%00",
    ):  # fmt: skip
        status, _, text = dashboard.ask(path)
        assert status == 404 and "secret" not in text, path
    assert dashboard.ask("/", "DELETE")[0] == 501
    assert dashboard.ask("/" + "a" * 70000)[0] == 414
    assert dashboard.ask("/login", "POST", "token=" + "a" * 9999)[0] == 413

    # Whose address is ours, by a name of their own.
    for host in ("evil.example", f"evil.example:{dashboard.port}", "127.0.0.1.evil.example", "localhost.evil.example", "user@127.0.0.1", "", "[::1"):
        assert dashboard.ask("/", Host=host)[0] == 421, host
    for host in ("127.0.0.1", f"localhost:{dashboard.port}", "[::1]:80", socket.gethostname()):
        assert dashboard.ask("/", Host=host)[0] == 200, host
    assert dashboard.ask("/config?run=0", Sec_Fetch_Site="cross-site")[0] == 403


def test_a_token_is_asked_for(sandbox, browser):
    write_run(sandbox.folder / "runs" / "a")
    (sandbox.folder / "token").write_text("open-sesame\n")
    dashboard = Dashboard(sandbox, "runs", "--token-file=token", "--listen=0.0.0.0:0")
    dashboard.host = "127.0.0.1"
    for path in ("/events", "/config?run=0", "/log?run=0&file=rank_0.log", "/page.js", "/index.html", "/nothing"):
        assert dashboard.ask(path)[0] == 401, path
        assert dashboard.ask(path, Authorization="Bearer open-sesam")[0] == 401
        assert dashboard.ask(path, Cookie=f"flotilla_dashboard_{dashboard.port}=guessed")[0] == 401
    assert dashboard.ask("/config?run=0", Authorization="Bearer open-sesame")[0] == 200
    assert dashboard.ask("/login", "POST", "token=open")[1]["Set-Cookie"] is None
    # By another site's link one is sent to where the token is asked for, and no further.
    code, headers, _ = dashboard.ask("/", Sec_Fetch_Site="cross-site")
    assert code == 303 and headers["Location"] == "/login"
    for method in ("GET", "HEAD"):
        assert dashboard.ask("/login", method, Sec_Fetch_Site="cross-site")[0] == 200
    assert dashboard.ask("/login", "POST", "token=open-sesame", Sec_Fetch_Site="cross-site")[0] == 403
    page = browser()
    page.open(f"http://127.0.0.1:{dashboard.port}/")
    page.await_true("location.pathname === '/login'")
    assert "not the token" not in page.text()
    page.js("document.querySelector('#token').value = 'guess'; document.querySelector('form').submit()")
    page.await_true("location.hash === '#wrong' && document.body.innerText.includes('not the token')")
    page.js("document.querySelector('#token').value = 'open-sesame'; document.querySelector('form').submit()")
    page.await_true(f"location.pathname === '/' && {POINTS} > 3")
    assert page.js("document.cookie") == ""  # no script can read it
    assert "open-sesame" not in dashboard.log.read_text()


def test_it_speaks_https(sandbox):
    write_run(sandbox.folder / "runs" / "a")
    flags, trusted = certified(sandbox)
    dashboard = Dashboard(sandbox, "runs", *flags)
    assert dashboard.url.startswith("https://")
    with urllib.request.urlopen(dashboard.url, context=trusted, timeout=20) as answer:
        assert "Flotilla" in answer.read().decode()
    # Who does not speak it is no trouble to the others.
    with socket.create_connection((dashboard.host, dashboard.port)) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"200" not in plain.recv(100)
    with urllib.request.urlopen(dashboard.url + "config?run=0", context=trusted, timeout=20) as answer:
        assert "epochs: 4" in answer.read().decode()
    wrong = sandbox.run("dashboard", "runs", "--tls-cert=key.pem", "--tls-key=key.pem", "--tls-ca=cert.pem", "--listen=127.0.0.1:0")
    assert wrong.returncode == 2 and "key.pem" in wrong.stderr and len(wrong.stderr.splitlines()) == 1


def test_a_run_on_this_host_needs_no_tls_for_the_page_to_have_it(sandbox):
    (sandbox.folder / "runs").mkdir()
    flags, trusted = certified(sandbox)
    job = sandbox.train(*LONG, run_dir="runs/a")
    job.await_update(3)
    dashboard = Dashboard(sandbox, "runs", *flags, trusted=trusted)
    told = dashboard.events(lambda event, data: event == "status" and data["status"])
    assert told[-1][1]["status"]["world_size"] == 2
    assert not any("nothing is heard" in note for event, data in told if event == "runs" for note in data["notes"])


def test_why_nothing_is_heard_of_a_run_is_told(sandbox):
    run = write_run(sandbox.folder / "runs" / "a")
    (run / "coordinator.address").write_text("127.0.0.1:1\n")
    flags, trusted = certified(sandbox)

    def notes(data):
        return [note for note in data["notes"] if note.startswith("nothing is heard of runs/a: flotilla status: ")]

    with open(run / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        dashboard = Dashboard(sandbox, "runs", *flags, trusted=trusted)
        told = dashboard.events(lambda event, data: event == "runs" and notes(data))
        assert "127.0.0.1:1" in notes(told[-1][1])[0]
    (run / "over").touch()
    dashboard.events(lambda event, data: event == "runs" and data["runs"][0]["status"] == "unfinished" and not notes(data))


def test_clients_are_bounded(sandbox):
    write_run(sandbox.folder / "runs" / "a")
    first = Dashboard(sandbox, "runs", "--listen=127.0.0.1:0")
    first.log.rename(sandbox.folder / "first.log")
    dashboard = Dashboard(sandbox, "runs", "--listen=127.0.0.1:0")  # both are waited for at once
    streams = [first.stream() for _ in range(16)]
    assert all(stream.status == 200 for stream in streams)
    assert first.ask("/events")[0] == 503
    # It goes on with everybody else, and takes others once there is room.
    assert first.ask("/")[0] == 200
    for stream in streams:
        stream.close()
    silent = [socket.create_connection((dashboard.host, dashboard.port)) for _ in range(80)]
    with contextlib.ExitStack() as stack:
        for one in silent:
            stack.enter_context(one)

        def refused():
            try:
                return dashboard.ask("/")[0] == 503
            except (http.client.HTTPException, OSError):
                return True

        poll(refused, "a refusal")
        poll(lambda: first.ask("/events", "HEAD")[0] == 200, "room for a stream", 30)
        # Who says nothing is sent away.
        def answered():
            with contextlib.suppress(http.client.HTTPException, OSError):
                return dashboard.ask("/")[0] == 200

        poll(answered, "an answer", 40)


def test_a_line_that_is_cut_off_is_left_out(sandbox):
    run = write_run(sandbox.folder / "runs" / "a")
    with open(run / "metrics.jsonl", "a") as file:
        file.write('no JSON\n[1]\n{"global_step":"x"}\n{"global_step":1e400,"charts/episodic_return":1}\n{"global_step":20000,"charts/epis')
    dashboard = Dashboard(sandbox, "runs")
    assert "ends in the middle of a line" in dashboard.log.read_text()
    told = dashboard.events(lambda event, data: event == "points" and data["series"])
    (_, listed), (_, points) = told[0], told[-1]
    assert any("ends in the middle of a line" in note for note in listed["notes"])
    steps, _, values = points["series"]["charts/episodic_return"]["points"]
    assert steps == [512 * i for i in range(1, 31)] and values == [1 + i for i in range(1, 31)]

    # Its end comes, and then the file is set aside for a shorter one.
    def ends_at(step):
        def check(event, data):
            return event == "points" and data["series"].get("charts/episodic_return", {"points": [[0]]})["points"][0][-1] == step

        return check

    with open(run / "metrics.jsonl", "a") as file:
        file.write('odic_return":50}\n')
    dashboard.events(ends_at(20000))
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "other").write_text("".join(lines[:10]))
    (run / "other").rename(run / "metrics.jsonl")
    dashboard.events(ends_at(5120))


def test_a_coordinator_is_enough(sandbox):
    job = sandbox.train(*LONG)
    job.await_update(3)
    dashboard = Dashboard(sandbox, job.address())
    told = dashboard.events(lambda event, data: event == "status" and data["status"] and data["status"]["world_size"] == 2)
    assert any(event == "points" and "charts/SPS" in data["series"] for event, data in told)
    children = {pid for pid, line in sandbox.processes().items() if "status --watch" in line}
    assert len(children) == 1
    # However it ends, nobody is left who watches.
    dashboard.process.send_signal(signal.SIGKILL)
    dashboard.process.wait()
    poll(lambda: not children & set(sandbox.processes()), "the end of its child")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 75


def test_a_coordinator_is_shown_beside_a_folder(sandbox):
    write_run(sandbox.folder / "runs" / "a")
    job = sandbox.train(*LONG, run_dir="elsewhere")
    job.await_update(3)
    dashboard = Dashboard(sandbox, "runs", job.address())
    told = dashboard.events(lambda event, data: event == "status" and data["status"])
    listed = told[0][1]
    assert [entry["run"] for entry in listed["runs"]] == [job.address(), "runs/a"] and listed["notes"] == []
    # Also once the folder has changed.
    write_run(sandbox.folder / "runs" / "b")
    told = dashboard.events(lambda event, data: event == "runs" and len(data["runs"]) == 3)
    assert told[-1][1]["runs"][0]["run"] == job.address() and told[-1][1]["notes"] == []


def test_many_pages_get_the_same(sandbox):
    write_run(sandbox.folder / "runs" / "a", lines=5000)
    dashboard = Dashboard(sandbox, "runs")

    def curve(_):
        told = dashboard.events(lambda event, data: event == "points" and data["series"])
        return told[-1][1]["series"]["charts/episodic_return"]["points"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        curves = list(pool.map(curve, range(8)))
    assert all(one == curves[0] for one in curves)
    # Bounded: neighbours are averaged.
    steps, _, values = curves[0]
    assert 1000 < len(steps) <= 2000 and steps == sorted(steps)
    assert values[0] == pytest.approx(3.5) and steps[0] == 512 * 4


def test_a_run_that_is_deleted_goes_from_the_page(sandbox, browser):
    for name in ("a", "b"):
        write_run(sandbox.folder / "runs" / name)
    page = browser()
    page.open(Dashboard(sandbox, "runs").url)
    page.await_true("runs.size === 2 && document.querySelectorAll('#run-table input').length === 2")
    shutil.rmtree(sandbox.folder / "runs" / "a")
    page.await_true("runs.size === 1 && document.querySelector('#notes').textContent.includes('runs/a is not there any more')")
    page.await_true("document.querySelector('#run-table').textContent.includes('runs/b')")


def test_the_readme_is_true(sandbox):
    """Its commands, with a coordinator's address; the third is a run to look at."""
    section = guide("launcher", "See a run")
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", section)
    of_folder, of_address, train = (re.sub(r"\s+#.*", "", line).split()[1:] for line in block.splitlines())
    done = sandbox.run(*train)
    assert done.returncode == 0, done.stderr
    assert list((sandbox.folder / "tensorboard" / "study" / "ppo" / "tracked").glob("events.*"))
    dashboard = Dashboard(sandbox, *of_folder[1:])
    told = dashboard.events(lambda event, data: event == "points" and data["series"])
    assert told[0][1]["runs"][0]["run"] == "runs/tracked"
    dashboard.process.kill()
    dashboard.process.wait()
    dashboard.log.unlink()
    job = sandbox.train(*LONG)
    Dashboard(sandbox, of_address[1].replace("HOST:29400", job.address()))


def test_a_page_keeps_as_many_segments_as_it_is_told(sandbox, browser):
    write_run(sandbox.folder / "runs" / "a")
    page = browser()
    page.open(Dashboard(sandbox, "runs").url)
    page.await_true(f"{POINTS} > 3")
    run, cursor = watched_run.WatchedRun("long", "runs/long"), {}
    for second in range(0, 20 * (history.MOST_SEGMENTS + 200), 20):
        run.take_status({"learner": [{"rank": 0, "state": "dead"}]}, float(second))
        if second % 2000 == 0 or second > 33000:
            (lanes,) = [data for event, data in feed._changes_of(run, cursor, set()) if event == "lanes"]
            page.js(f"takeLanes({json.dumps(lanes)})")
    lane = page.js("runOf('long').lanes[0]")
    first, segments = run.lanes.since({})["0"]
    assert len(segments) == history.MOST_SEGMENTS and lane == {"first": first, "segments": segments}


@pytest.mark.parametrize(
    "words, says",
    [
        (["nowhere"], "there is no folder nowhere"),
        (["file"], "file is a file; expected a run's folder or one that holds runs"),
        (["empty"], "there is no run in empty"),
        ([], "there is no folder runs"),
        (["a", "b"], "a is of CartPole-v1 and b of Pendulum-v1"),
        (["127.0.0.1:1"], "no coordinator answers at 127.0.0.1:1"),
        (["a", "--listen=everywhere"], '--listen is "everywhere"; expected HOST:PORT'),
        (["a", "--listen=0.0.0.0:0"], "--listen 0.0.0.0:0 can be reached from other hosts; give --token-file"),
        (["a", "--listen=127.0.0.1:TAKEN"], "port TAKEN of 127.0.0.1 is taken; name another with --listen"),
        (["a", "--listen=no.such.host.invalid:0", "--insecure"], "--listen no.such.host.invalid:0: "),
        (["a", "--token-file=nowhere"], "cannot read --token-file"),
        (["a", "--token-file=file"], "want one word"),
        (["a", "--lisen=x"], "--listen"),
    ],
)
def test_bad_input_is_one_line(sandbox, words, says):
    (sandbox.folder / "file").write_text("")
    (sandbox.folder / "empty").mkdir()
    write_run(sandbox.folder / "a")
    write_run(sandbox.folder / "b", env="Pendulum-v1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = sandbox.run("dashboard", *[word.replace("TAKEN", port) for word in words])
    assert refused.returncode in (1, 2) and says.replace("TAKEN", port) in refused.stderr, refused.stderr
    assert len(refused.stderr.replace("`flotilla dashboard --help` lists the flags\n", "").splitlines()) == 1


def test_python_is_needed_and_named(sandbox):
    write_run(sandbox.folder / "a")
    bare = sandbox.run("dashboard", "a", env={"PATH": "/nowhere", "FLOTILLA_PYTHON": ""})
    assert bare.returncode == 1 and "PATH has no python3; install it, or set FLOTILLA_PYTHON" in bare.stderr
    wrong = sandbox.run("dashboard", "a", env={"FLOTILLA_PYTHON": "/no/python"})
    assert wrong.returncode == 1 and "FLOTILLA_PYTHON is /no/python" in wrong.stderr


def test_where_the_port_is_taken_and_none_was_named_another_is_used(sandbox):
    write_run(sandbox.folder / "runs" / "a")
    first = Dashboard(sandbox)
    first.log.rename(sandbox.folder / "first.log")
    second = Dashboard(sandbox)
    assert first.port != second.port
    assert second.ask("/")[0] == 200
