"""What the package `flotilla_watch` decides of what a page is told."""

import contextlib
import datetime
import os
import pathlib
import queue
import shutil
import socket
import ssl
import subprocess
import sys
import threading

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "tests" / "e2e"), str(SOURCE / "launcher" / "python")]
from flotilla_watch import feed, games, history, status_watch, watched_run, web  # noqa: E402
from harness import TIMEOUT, poll  # noqa: E402


def test_there_is_room_for_what_runs_and_then_for_the_newest(tmp_path, monkeypatch):
    watched, stopped = [], []

    class Watch:
        def __init__(self, ways, on_status):
            watched.append(self)

        def stop(self):
            stopped.append(self)

    monkeypatch.setattr(feed, "StatusWatch", Watch)
    monkeypatch.setattr(feed, "MOST_RUNS", 3)
    shown, cursor, listed = feed.Feed("flotilla", [], [], []), {}, {}
    for second, name in enumerate("abcde", start=1):
        config = tmp_path / name / "config.textproto"
        config.parent.mkdir()
        config.write_text("ppo {}")
        os.utime(config, (second, second))
        listed[name] = {"run": str(tmp_path / name), "env_id": "CartPole-v1", "status": "completed"}

    def take(names):
        with shown._lock:
            shown._take_list([listed[name] for name in names])
        shown.changes(cursor, set())
        ids = {pathlib.Path(entry["run"]).name: entry["id"] for entry in shown._table}
        assert {run.id for run in shown._runs.values()} == set(ids.values()) == cursor.keys() - {"runs"}
        return ids

    first = take("bcde")
    assert list(first) == ["c", "d", "e"] and not watched
    listed["a"]["status"] = "running"
    second = take("abcde")
    assert list(second) == ["a", "d", "e"] and len(watched) == 1 and not stopped
    assert (second["d"], second["e"]) == (first["d"], first["e"]) and second["a"] not in first.values()
    third = take("bde")
    assert list(third) == ["b", "d", "e"] and stopped == watched
    assert f"{tmp_path / 'a'} is not there any more" in shown._notes
    # Another one, to whoever knew the first.
    assert take("abd")["a"] not in {*first.values(), *second.values(), *third.values()}


def test_a_page_is_told_which_runs_are_elsewhere(monkeypatch):
    """A colon in a name tells nothing: folders have them, too."""
    monkeypatch.setattr(feed, "StatusWatch", lambda ways, on_status: None)
    shown = feed.Feed("flotilla", [], ["learners:29400"], [])
    with shown._lock:
        shown._take_list([{"run": "runs/at 9:30", "env_id": "CartPole-v1", "status": "completed"}])
    (table,) = [data for event, data in shown.changes({}, set()) if event == "runs"]
    assert [(entry["run"], entry.get("remote", False)) for entry in table["runs"]] == [("learners:29400", True), ("runs/at 9:30", False)]


def test_a_program_that_is_missing_for_a_moment_is_asked_again(tmp_path, monkeypatch):
    """As one that is installed anew."""
    program, part = tmp_path / "flotilla", tmp_path / "part"
    part.write_text("""#!/bin/sh
        case $1 in
          runs) echo '[{"run": "there", "status": "completed", "env_id": "CartPole-v1"}]' ;;
          status) echo '{"state": "ACTIVE", "learner": []}' ;;
        esac
    """)
    part.chmod(0o755)
    for where, name in ((status_watch, "PAUSE"), (feed, "LIST_PAUSE"), (feed, "LIST_ANYWAY")):
        monkeypatch.setattr(where, name, 0.02)
    said = queue.SimpleQueue()
    watch = status_watch.StatusWatch(lambda: [[str(program), "status"]], lambda *words: said.put(words))
    shown = feed.Feed(str(program), [str(tmp_path)], [], [])
    with contextlib.closing(shown):
        assert "does not answer" in shown._notes[0]
        status, complaint = said.get(timeout=TIMEOUT)
        assert status is None and "No such file" in complaint
        with pytest.raises(games.Refused, match="flotilla replay cannot be started: No such file"):
            games.Games(str(program), []).list("there")
        part.rename(program)
        poll(lambda: shown._table and not shown._notes, "the list of runs")
        poll(lambda: said.get(timeout=TIMEOUT)[0], "a status")
    watch.stop()


def test_a_status_makes_marks():
    def learner(rank=0, restarts="0", state="alive", trouble="", worker_restarts="0"):
        worker = {"id": "env worker 3", "restarts": worker_restarts}
        return {"id": f"learner/0/{rank}", "rank": rank, "restarts": restarts, "state": state, "trouble": trouble, "env_worker": [worker]}

    def status(*learners, generation="1", **more):
        return {"state": "ACTIVE", "generation": generation, "learner": list(learners)} | more

    marks = history.StatusMarks(generations=True)
    assert marks.compare(None) == [] and marks.compare(status(learner(worker_restarts="3"))) == []
    assert marks.compare(status(learner(worker_restarts="4"), env_worker_restarts="4")) == [("fault", "env worker 3 of learner 0 was restarted", 0)]
    assert marks.compare(status(learner(worker_restarts="4"), env_worker_restarts="5")) == [("fault", "1 env worker restarted", None)]
    said = marks.compare(status(learner(state="dead", trouble="no disk", worker_restarts="4"), generation="2", fence_reason="lost", env_worker_restarts="5"))
    assert [text for _, text, _ in said] == ["generation 2: lost", "learner 0 is dead", "learner 0: no disk"]
    assert marks.compare(None) == [("fault", "the coordinator does not answer", None)] and marks.compare(None) == []
    assert ("note", "the coordinator answers again", None) in marks.compare(status(learner(), generation="2"))
    # Once a run is over, silence is no fault.
    marks.compare(status(learner(), generation="2") | {"state": "CLOSED"})
    assert marks.compare(None) == []


@pytest.mark.parametrize("hours", [0, 5.75, -8])
def test_a_log_is_read_by_the_clock_that_wrote_it(tmp_path, hours):
    """As a container's in UTC, on a host that is elsewhere."""
    log = tmp_path / "logs" / "coordinator.log"
    log.parent.mkdir()
    zone, written = datetime.timezone(datetime.timedelta(hours=hours)), 1795000000.25
    at = [datetime.datetime.fromtimestamp(time, zone) for time in (written - 3600, written)]
    log.write_text("".join(f"I{time:%Y%m%d %H:%M:%S.%f} 7 roster.cc:479] generation 1 has formed\n" for time in at))

    def times(touched):
        os.utime(log, (touched, touched))
        run = watched_run.WatchedRun(1, "run", str(tmp_path))
        assert run.poll_coordinator_log()
        return [mark[0] for mark in run.marks]

    assert times(written) == [written - 3600, written]
    # Copied hours or days later, it is taken for this host's own.
    for later in (hours * 3600 + 3 * 3600 + 7 * 60, 5 * 86400):
        assert times(written + later) == [time.replace(tzinfo=None).timestamp() for time in at]


def test_lanes_are_told_once_and_stay_bounded():
    lanes, seen, held = history.Lanes(), {}, {}

    def tell():
        for rank, (first, segments) in lanes.since(seen).items():
            held[rank] = held.get(rank, [])[:first] + segments

    for second in range(3000):
        lanes.add(float(second), [{"rank": 0, "state": "alive", "phase": ("LEARNING", "STEPPING")[second // 10 % 2]}, {"rank": -1}], "1")
        if second % 7 == 0:
            tell()
    tell()
    assert list(held) == ["0"] and len(held["0"]) == 300
    assert all(left[1] == right[0] for left, right in zip(held["0"], held["0"][1:]))
    assert held["0"][0] == [0.0, 10.0, "learning", "1"]
    for second in range(4000, 4000 + 40 * history.MOST_SEGMENTS, 20):
        lanes.add(float(second), [{"rank": 0, "state": "dead"}], "1")
    first, segments = lanes.since({})["0"]
    assert len(segments) == history.MOST_SEGMENTS and first > 300


def test_a_certificate_that_was_renewed_is_taken_up(tmp_path):
    for name in "abc":
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}"],
            cwd=tmp_path, check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def renew(name, end):
        shutil.copy(tmp_path / f"{name}.{end}", tmp_path / "new")
        (tmp_path / "new").rename(tmp_path / f"own.{end}")

    def shown():
        text = ssl.get_server_certificate(("127.0.0.1", server.server_port), timeout=TIMEOUT)
        names = {ssl.PEM_cert_to_DER_cert((tmp_path / f"{name}.pem").read_text()): name for name in "abc"}
        return names[ssl.PEM_cert_to_DER_cert(text)]

    for end in ("pem", "key"):
        renew("a", end)
    server = web.Server(socket.AF_INET, ("127.0.0.1", 0), None, "", set(), web.Tls(tmp_path / "own.pem", tmp_path / "own.key"))
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        assert shown() == "a" == shown()
        # deploy/certs.sh renames the key first; copied by hand, they may come the other way round.
        for name, ends in (("b", ("key", "pem")), ("c", ("pem", "key"))):
            before = shown()
            renew(name, ends[0])
            assert shown() == before == shown()
            renew(name, ends[1])
            assert shown() == name
        (tmp_path / "own.key").unlink()
        assert shown() == "c"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
