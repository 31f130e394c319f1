"""deploy/ssh/launch.sh, with an ssh that stays on this machine: hosts are addresses of loopback."""

import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, SOURCE, TIMEOUT, Sandbox, poll, summary, training_lines  # noqa: E402
from ports import free_port  # noqa: E402

LAUNCH = SOURCE / "deploy" / "ssh" / "launch.sh"
# As sshd does it: a shell that gets the command's words in one, and signals as they are by default.
SSH = '#!/bin/sh\nshift\nexec env --default-signal sh -c "$*"\n'


@pytest.fixture
def sandbox(tmp_path):
    folder = tmp_path / "it's here"
    folder.mkdir()
    sandbox = Sandbox(folder)
    yield sandbox
    sandbox.close()


def launch(sandbox, *words, path=""):
    ssh = sandbox.tmp / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    output = sandbox.folder / "out.txt"
    port = sandbox.env.setdefault("TEST_PORT", str(free_port()))
    with open(output, "w") as out:
        process = subprocess.Popen(
            [LAUNCH, "127.0.0.1,user@127.0.0.2", "-f", BIN / "flotilla", "-p", port, "--", *map(str, words)],
            cwd=sandbox.folder, env=sandbox.env | {"SSH": str(ssh), "PATH": path + sandbox.env["PATH"]}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    return process, output


RUN = ("--nproc-per-node=1", "--run-dir=run one", "--resume=latest", "--progress=plain")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGKILL, -9)])
def test_two_hosts_train_and_save_when_told_to_stop(sandbox, number, code):
    run = sandbox.folder / "run one"
    process, output = launch(sandbox, "cartpole_ppo", "--set", "total_env_steps=1000000000", *RUN)

    def begun():
        assert process.poll() is None, output.read_text()
        return (run / "metrics.jsonl").exists() and len(training_lines(run)) >= 3

    poll(begun, f"three updates: {output.read_text()}")
    process.send_signal(number)
    assert process.wait(TIMEOUT) == code, output.read_text()
    sandbox.await_no_process(TIMEOUT)
    saved = summary(run)
    assert saved["status"] == ("stopped" if number == signal.SIGINT else "preempted")
    assert saved["world_size"] == 2 and len(set(saved["parameters_sha256"])) == 1
    assert (run / "checkpoints" / "latest").resolve().name == f"step_{saved['global_steps']:012d}"
    assert "[127.0.0.1] run folder: run one" in output.read_text()


def test_a_refused_command_line_is_the_exit_code(sandbox):
    # What puts the host before each line may be slow: its last words are waited for.
    slow = sandbox.tmp / "sed"
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {shutil.which("sed")} "$@"\n')
    slow.chmod(0o755)
    process, output = launch(sandbox, "no_such_config", *RUN, path=f"{sandbox.tmp}:")
    assert process.wait(TIMEOUT) == 2, output.read_text()
    assert "[user@127.0.0.2]" in output.read_text() and "no_such_config" in output.read_text()


@pytest.mark.parametrize("words", [[], ["-x"], ["a,b"], ["a,b", "--"]])
def test_wrong_usage(words):
    result = subprocess.run([LAUNCH, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
    assert result.returncode == 2 and result.stderr
