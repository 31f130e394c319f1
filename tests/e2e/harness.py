"""Runs the programs as their users do, and sees that nothing of them is left."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import grpc

SOURCE = pathlib.Path(os.environ.get("FLOTILLA_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BIN = pathlib.Path(os.environ.get("FLOTILLA_BIN", SOURCE / "build" / "bin"))
GRPCURL = pathlib.Path(os.environ.get("FLOTILLA_DEPS", SOURCE / ".deps")) / "bin" / "grpcurl"
TIMEOUT = 120
MARK = "FLOTILLA_E2E"

sys.path.insert(0, str(SOURCE / "tests" / "testing"))
import protos  # noqa: E402

protos.load(SOURCE)
from flotilla.v1 import coordinator_pb2, coordinator_pb2_grpc, env_pb2, env_pb2_grpc  # noqa: E402, F401


def poll(condition, what, timeout=TIMEOUT, interval=0.02):
    """Asks until `condition` gives something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(interval)


def guide(folder, title):
    """A section of the README of one of the top folders."""
    text = (SOURCE / folder / "README.md").read_text()
    return re.search(rf"(?ms)^##+ {title}$(.*?)(?=^##|\Z)", text)[1]


def read_jsonl(path):
    """Its whole lines: the last may still be being written."""
    text = pathlib.Path(path).read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def training_lines(run_dir):
    """One for each update: those of evaluations stand between them."""
    return [line for line in read_jsonl(run_dir / "metrics.jsonl") if "charts/SPS" in line]


def summary(run_dir):
    return json.loads((run_dir / "summary.json").read_text())


def checkpoint_files(folder):
    return {name: (folder / name).read_bytes() for name in ("weights.safetensors", "state.safetensors")}


class Sandbox:
    """A folder to run programs in. They all carry a mark, so none gets lost."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.mark = uuid.uuid4().hex
        # Short: a unix socket's path has to fit into 108 bytes.
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="e2e-"))
        topology = ("RANK", "LOCAL_", "WORLD_", "MASTER_", "SLURM_", "OMPI_", "JOB_", "TORCHELASTIC_", "GROUP_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(topology)}
        self.env |= {MARK: self.mark, "TMPDIR": str(self.tmp)}

    def config(self, shipped, evaluation=""):
        """A shipped configuration with another evaluation section, or none."""
        text = self.run("configs", shipped).stdout
        text = re.sub(r"(?ms)^evaluation \{.*?^\}", evaluation, text)
        path = self.folder / f"{shipped}.textproto"
        path.write_text(text)
        return path

    def run(self, *words, timeout=TIMEOUT, env=None):
        """A command that ends by itself."""
        return subprocess.run(
            [BIN / "flotilla", *map(str, words)],
            cwd=self.folder, env=self.env | (env or {}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout,
        )  # fmt: skip

    def completes_at(self, run_dir, updates, steps):
        """Has a run end with so many updates, of `steps` each: how many it has then, which are more if it is past them."""
        done = self.run("set", run_dir, f"total_env_steps={updates * steps}")
        assert done.returncode == 0, done.stderr
        return max(updates, int(re.search(r"from update (\d+) on", done.stdout)[1]) - 1)

    def bash(self, command):
        """What a guide's command prints, run where its build/bin/ is ours."""
        (self.folder / "build").mkdir(exist_ok=True)
        if not (self.folder / "build" / "bin").exists():
            (self.folder / "build" / "bin").symlink_to(BIN)
        said = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.env, timeout=2 * TIMEOUT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert said.returncode == 0, f"{command}\n{said.stdout}{said.stderr}"
        return said.stdout

    def train(self, *words, run_dir="run", **kwargs):
        return Job(self, words, self.folder / run_dir, **kwargs)

    def serve(self, name, *words, prefix=()):
        """One of the other programs, in the background; `prefix` is put before the command."""
        command = [*prefix, BIN / name, *map(str, words)]
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=log, stderr=log)

    def processes(self):
        """Live processes that carry our mark: {pid: command line}."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes()
                if f"{MARK}={self.mark}".encode() in environ.split(b"\0"):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
        return found

    def await_no_process(self, timeout=20):
        poll(lambda: not self.processes(), f"processes are left: {self.processes()}", timeout)

    def signal_all(self, number):
        """Those that it was sent to."""
        found = self.processes()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)
        return found

    def close(self):
        # Until it is gone, one that was killed may still write, or have begun another.
        poll(lambda: not self.signal_all(signal.SIGKILL), "what was killed to be gone", 20)
        shutil.rmtree(self.tmp, ignore_errors=True)


class Job:
    """`flotilla train` in the background."""

    def __init__(self, sandbox, words, run_dir, resume=False, prefix=()):
        self.sandbox = sandbox
        self.run_dir = run_dir
        self._output = open(sandbox.folder / f"{run_dir.name}.out", "ab+")
        self.process = subprocess.Popen(
            [*prefix, BIN / "flotilla", "train", *map(str, words), f"--run-dir={run_dir}", "--progress=plain"],
            cwd=sandbox.folder, env=sandbox.env, stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._channel = None

    def output(self):
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def diagnosis(self):
        parts = [self.output()]
        for log in sorted((self.run_dir / "logs").glob("*.log")):
            parts.append(f"--- {log.name}\n" + log.read_text(errors="replace")[-3000:])
        return "\n".join(parts)

    def address(self):
        """The coordinator's, as soon as it listens."""
        path = self.run_dir / "coordinator.address"
        self.poll(lambda: path.exists() and path.read_text().strip(), "the coordinator's address")
        return path.read_text().strip()

    def poll(self, condition, what, timeout=TIMEOUT):
        """As poll(), but ends as soon as the run does."""

        def alive_and_condition():
            value = condition()
            assert value or self.process.poll() is None, f"the run ended before {what}:\n{self.diagnosis()}"
            return value

        return poll(alive_and_condition, what, timeout)

    def coordinator(self):
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.address(), options=[("grpc.max_reconnect_backoff_ms", 200)])
        return coordinator_pb2_grpc.CoordinatorServiceStub(self._channel)

    def token(self):
        return (self.run_dir / "token").read_text().strip()

    def metadata(self, member=None):
        """What a call needs that changes the run, in the name of `member`."""
        metadata = [("authorization", f"Bearer {self.token()}")]
        if member is not None:
            secret = (self.run_dir / "secrets" / member.replace("/", "_")).read_text().strip()
            metadata += [("flotilla-member", member), ("flotilla-secret", secret)]
        return metadata

    def status(self):
        return self.coordinator().GetStatus(coordinator_pb2.GetStatusRequest(), timeout=20, wait_for_ready=True)

    def await_status(self, condition, what):
        """The first status that meets `condition`."""

        def matching():
            try:
                status = self.status()
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    return None
                raise
            return status if condition(status) else None

        return self.poll(matching, what)

    def await_update(self, update):
        return self.await_status(lambda s: s.update >= update, f"update {update}")

    def await_more_updates(self, more=5):
        return self.await_update(self.status().update + more)

    def completes_after(self, more, steps):
        """Has the run complete `more` updates, of `steps` each, from now: how many it has then."""
        return self.sandbox.completes_at(self.run_dir, self.status().update + more, steps)

    def wait(self, timeout=TIMEOUT):
        """The exit code; nothing of the run is left afterwards."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self.diagnosis()}") from None
        self.sandbox.await_no_process()
        return code

    def succeeds(self, timeout=TIMEOUT):
        code = self.wait(timeout)
        assert code == 0, self.diagnosis()
        return summary(self.run_dir)


def grpcurl(address, *words, data=None, token=None, prefix=(), timeout=30):
    """What it says; `prefix` is put before the command."""
    flags = ["-plaintext", "-emit-defaults", "-max-time", str(timeout)]
    if data is not None:
        flags += ["-d", json.dumps(data)]
    if token is not None:
        flags += ["-H", f"authorization: Bearer {token}"]
    result = subprocess.run(
        [*prefix, GRPCURL, *flags, address, *words], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout + 10,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def call(address, method, data=None, **how):
    """grpcurl's answer. Its versions differ in how they spell a field."""
    return snake_case(json.loads(grpcurl(address, method, data=data, **how)))


def told_status(address, **how):
    """What an operator sees who asks the coordinator."""
    return call(address, "flotilla.v1.CoordinatorService/GetStatus", **how)


def snake_case(value):
    if isinstance(value, list):
        return [snake_case(v) for v in value]
    if isinstance(value, dict):
        return {re.sub("[A-Z]", lambda m: "_" + m[0].lower(), k): snake_case(v) for k, v in value.items()}
    return value
