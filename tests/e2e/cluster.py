"""A run over several hosts, in one folder that they share."""

import contextlib
import os
import signal
import subprocess

from harness import BIN, poll, summary, told_status
from hosts import Hosts


class Cluster:
    """`with Cluster(sandbox, hosts=3, nnodes="2") as cluster`; host 0 has the coordinator."""

    def __init__(self, sandbox, hosts, nnodes):
        self.sandbox, self.hosts, self.nnodes = sandbox, Hosts(hosts), nnodes
        self.address = f"{self.hosts.address(0)}:29400"
        self.run_dir = sandbox.folder / "run"
        self.logs = []

    def __enter__(self):
        self.hosts.__enter__()
        return self

    def __exit__(self, *_):
        self.sandbox.close()
        self.hosts.__exit__()

    def program(self, host, name, *words):
        """In the background, its output in NAME.out."""
        self.logs.append(self.sandbox.folder / f"{name}.out")
        with open(self.logs[-1], "ab") as log:
            return subprocess.Popen(
                [*self.hosts.prefix(host), str(BIN / words[0]), *map(str, words[1:])],
                cwd=self.sandbox.folder, env=self.sandbox.env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def launch(self, node, config, *words):
        return self.program(
            node, f"launcher_{node}", "flotilla", "train", config, f"--nnodes={self.nnodes}", f"--node-rank={node}",
            f"--coordinator={self.address}", "--insecure", f"--run-dir={self.run_dir}", "--progress=plain", *words,
        )  # fmt: skip

    def serve_envs(self, host, *words):
        return self.program(
            host, f"serve_envs_{host}", "flotilla", "serve-envs", f"--coordinator={self.address}", "--insecure", *words
        )

    def status(self):
        """What grpcurl says, asked from host 0; {} if nobody answers."""
        try:
            return told_status(self.address, prefix=self.hosts.prefix(0))
        except AssertionError:
            return {}

    def await_status(self, condition, what, timeout=90):
        def matching():
            status = self.status()
            return status if status and condition(status) else None

        try:
            return poll(matching, what, timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status()}\n{self.diagnosis()}") from None

    def await_update(self, update):
        return self.await_status(lambda s: int(s.get("update", 0)) >= update, f"update {update}")

    def lose_host(self, host):
        """Everything on it ends at once."""
        name = self.hosts.name(host)
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
        for pid in pids.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def diagnosis(self):
        logs = self.logs + sorted(self.run_dir.glob("logs/*.log"))
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in dict.fromkeys(logs))

    def succeed(self, launchers, timeout=150):
        for launcher in launchers:
            try:
                code = launcher.wait(timeout)
            except subprocess.TimeoutExpired:
                raise AssertionError(self.diagnosis()) from None
            assert code == 0, self.diagnosis()
        result = summary(self.run_dir)
        digests = result["parameters_sha256"]
        assert len(digests) == result["world_size"] and len(set(digests)) == 1
        return result
