"""Ctrl-C while cmake/setup.sh installs: it ends, tries nothing again, and leaves nothing running."""
import os
import pathlib
import select
import signal
import subprocess

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


def pids_of(installs, count):
    """The processes that install, once so many have said so."""
    said = b""
    while said.count(b"\n") < count:
        assert select.select([installs], [], [], 60)[0], f"only {said} began"
        said += os.read(installs, 4096)
    return [int(pid) for pid in said.split()]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_is_interrupted_ends_whole(tmp_path, number, code):
    programs, pipe = tmp_path / "bin", tmp_path / "installs"
    programs.mkdir()
    os.mkfifo(pipe)
    installs = os.open(pipe, os.O_RDWR)
    script(tmp_path / "pip", PIP)
    script(programs / "python3", PYTHON)
    script(programs / "dpkg-query", "#!/bin/sh\nprintf installed\n")
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PIP": str(tmp_path / "pip"), "INSTALLS": str(pipe),
                        "FLOTILLA_DEPS": str(tmp_path / "deps"), "FLOTILLA_ATARI": "OFF", "FLOTILLA_CUDA": "0"}
    setup = subprocess.Popen([ROOT / "cmake" / "setup.sh", "wheel"], env=env, start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pids = []
    try:
        pids = pids_of(installs, 2)  # LibTorch's and the wheels'
        ends = [os.pidfd_open(pid) for pid in pids]
        os.killpg(setup.pid, number)  # as a terminal does to all that is in its foreground
        output, _ = setup.communicate(timeout=60)
        assert setup.returncode == code, output
        for end in ends:
            assert select.select([end], [], [], 60)[0], "it goes on"
        assert not select.select([installs], [], [], 0)[0], "it was tried again"
    finally:
        for pid in [*pids, setup.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
