"""One sweep on several hosts: each has a launcher, they share a folder, and what a lost
one had begun goes on elsewhere."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

from harness import BIN, poll, read_jsonl, training_lines
from hosts import Hosts

STEPS = 2_000_000
SWEEP = f"""
base: "cartpole_fast"
set: "evaluation.every_updates=1000000"
set: "evaluation.stop_return=1e9"
set: "checkpoint.every_updates=5"
metric {{ name: "charts/episodic_return" }}
parameter {{ field: "optimizer.learning_rate" log_uniform {{ low: 3e-4 high: 1e-2 }} }}
budget {{ steps: {STEPS} }}
trials: 5
"""


class Nodes:
    """Launchers on hosts of their own, with networks and names of their own."""

    def __init__(self, sandbox, hosts):
        self.sandbox, self.hosts = sandbox, hosts
        self.folder = sandbox.folder / "sweeps" / "sweep"
        (sandbox.folder / "sweep.textproto").write_text(SWEEP)

    def launch(self, host, **env):
        named = ["unshare", "--uts", "sh", "-c", f'hostname node{host} && exec "$0" "$@"']
        with open(self.said(host), "ab") as log:
            return subprocess.Popen(
                [*self.hosts.prefix(host), *named, str(BIN / "flotilla"), "sweep", "sweep.textproto"],
                cwd=self.sandbox.folder, env=self.sandbox.env | env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def said(self, host):
        return self.sandbox.folder / f"node{host}.out"

    def lose(self, host):
        """Everything on it ends at once."""
        pids = subprocess.run(["ip", "netns", "pids", self.hosts.name(host)], capture_output=True, text=True, check=True).stdout
        for pid in pids.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def events(self, kind):
        journal = self.folder / "journal.jsonl"
        return [event for event in read_jsonl(journal) if event["event"] == kind] if journal.exists() else []

    def begun(self, host):
        return [event["trial"] for event in self.events("begin") if event["host"] == f"node{host}"]

    def trial(self, number):
        return self.folder / "trials" / f"{number:04d}"

    def saved(self, trial):
        """The update of its newest checkpoint; 0 without one."""
        progress = self.trial(trial) / "checkpoints" / "latest" / "progress.json"
        return int(json.loads(progress.read_text())["update"]) if progress.exists() else 0


@pytest.fixture
def nodes(sandbox):
    with Hosts(3) as hosts:
        yield Nodes(sandbox, hosts)
        sandbox.close()


def test_a_lost_host_gives_its_trials_back_and_another_joins(nodes):
    first, second = nodes.launch(0), nodes.launch(1)
    poll(lambda: nodes.begun(0) and nodes.begun(1), "both have begun a trial")


    def under_way():
        """Trials of host 0 that have not ended."""
        return set(nodes.begun(0)) - {event["trial"] for event in nodes.events("end")}

    poll(lambda: any(nodes.saved(trial) for trial in under_way()), "a trial of host 0 has a checkpoint")
    nodes.lose(0)
    first.wait()
    lost = under_way()
    saved = {trial: nodes.saved(trial) for trial in lost}
    before = {trial: training_lines(nodes.trial(trial))[: saved[trial]] for trial in lost}
    assert lost and all(saved.values())
    third = nodes.launch(2)
    for process in (second, third):
        assert process.wait(240) == 0, "".join(nodes.said(host).read_text() for host in (1, 2))
    ended = [event["trial"] for event in nodes.events("end")]
    assert sorted(ended) == list(range(5)) and all(event["status"] == "completed" for event in nodes.events("end"))
    begun = [(event["trial"], event["host"]) for event in nodes.events("begin")]
    for trial in range(5):
        hosts = [host for number, host in begun if number == trial]
        # Once, but for what was lost with its host.
        assert len(hosts) == 1 + (trial in lost) and hosts[-1] in (["node1", "node2"] if trial in lost else ["node0", "node1", "node2"])
        lines = training_lines(nodes.trial(trial))
        assert [line["update"] for line in lines] == list(range(1, len(lines) + 1)), trial
        if trial in lost:  # from its checkpoint, and not from the beginning
            assert len(before[trial]) == saved[trial] and lines[: saved[trial]] == before[trial]
    assert not list((nodes.folder / "members").glob("node[12]-*"))


def test_where_locks_do_not_reach_other_hosts_a_second_one_is_refused(nodes):
    """A file system that keeps locks to each host: to host 1, none is ever held."""
    local = nodes.sandbox.folder / "local"
    local.mkdir()
    (local / "sitecustomize.py").write_text("import fcntl\nfcntl.flock = lambda *_: None\n")
    first = nodes.launch(0)
    poll(lambda: nodes.begun(0), "host 0 has begun a trial")
    second = nodes.launch(1, PYTHONPATH=str(local))
    assert second.wait(120) == 2
    (line,) = nodes.said(1).read_text().splitlines()
    assert line.startswith("flotilla sweep: sweeps/sweep: the file system keeps locks to each host: node0-") and "both would run the same trials" in line
    assert not nodes.begun(1) and first.poll() is None
    first.send_signal(signal.SIGUSR1)  # as a batch system says that time is up
    assert first.wait(120) == 75 and "go on with: flotilla sweep sweeps/sweep" in nodes.said(0).read_text()
    assert not list((nodes.folder / "members").iterdir())
