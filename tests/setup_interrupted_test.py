"""Ctrl-C while cmake/setup.sh installs: it ends, tries nothing again, and leaves nothing running."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# As pip does: what is interrupted says so and exits as any failure, and downloads take long.
PIP = """#!/usr/bin/env bash
trap 'echo ERROR: Operation cancelled by user; kill $!; exit 1' INT
echo $$ >>"$INSTALLS"
sleep 1000 &
wait
"""
PYTHON = """#!/usr/bin/env bash
mkdir -p "$3/bin" && cp "$PIP" "$3/bin/pip"
"""


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)


def started(installs, process):
    """The processes that install, once both do: LibTorch's and the wheels'."""
    while True:
        assert process.poll() is None, process.communicate()
        pids = installs.read_text().split()
        if len(pids) == 2:
            return pids
        time.sleep(0.01)


def running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_is_interrupted_ends_whole(tmp_path, number, code):
    programs, installs = tmp_path / "bin", tmp_path / "installs"
    programs.mkdir()
    installs.touch()
    script(tmp_path / "pip", PIP)
    script(programs / "python3", PYTHON)
    script(programs / "dpkg-query", "#!/bin/sh\nprintf installed\n")
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PIP": str(tmp_path / "pip"), "INSTALLS": str(installs),
                        "FLOTILLA_DEPS": str(tmp_path / "deps"), "FLOTILLA_ATARI": "OFF", "FLOTILLA_CUDA": "0"}
    setup = subprocess.Popen([ROOT / "cmake" / "setup.sh", "wheel"], env=env, start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        pids = started(installs, setup)
        os.killpg(setup.pid, number)  # as a terminal does to all that is in its foreground
        output, _ = setup.communicate(timeout=60)
        assert setup.returncode == code, output
        assert installs.read_text().split() == pids, "it was tried again"
        deadline = time.monotonic() + 60
        while any(running(pid) for pid in pids):
            assert time.monotonic() < deadline, "it goes on"
            time.sleep(0.01)
    finally:
        for pid in installs.read_text().split() + [str(setup.pid)]:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
