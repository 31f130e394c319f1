"""cmake/setup.sh and the Makefile over stand-ins: what is said to be there is there, and where CMake looks."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
COPIED = ("Makefile", "CMakePresets.json", "cmake/setup.sh", "cmake/preset.sh", "cmake/requirements")

PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\nexit ${PIP_EXIT:-0}\\n' >"$3/bin/pip"
cp "$3/bin/pip" "$3/bin/python"
chmod +x "$3/bin/pip" "$3/bin/python"
"""


class Checkout:
    """What installs, and a project that says where it looked. Nothing is downloaded."""

    def __init__(self, folder):
        self.folder = folder / "checkout"
        for name in COPIED:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (SOURCE / name).is_dir() else shutil.copy
            copy(SOURCE / name, self.folder / name)
        (default,) = re.findall(r"(?m)^set\(FLOTILLA_DEPS .*$", (SOURCE / "CMakeLists.txt").read_text())
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\n"
            "project(looked NONE)\n"
            f"{default}\n"
            'file(WRITE "${CMAKE_SOURCE_DIR}/looked" "${FLOTILLA_DEPS}")\n'
            "add_custom_target(programs)\n"
        )
        programs = folder / "bin"
        programs.mkdir()
        for name, text in {
            "python3": PYTHON,
            "dpkg-query": "#!/bin/sh\nprintf installed\n",
            "sleep": "#!/bin/sh\n",  # before it is tried again
        }.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("FLOTILLA_", "MAKE", "CMAKE"))}
        self.env |= {"PATH": f"{programs}:{os.environ['PATH']}", "FLOTILLA_ATARI": "OFF", "FLOTILLA_CUDA": "0"}

    def run(self, *words, code=0, **env):
        done = subprocess.run(
            words, cwd=self.folder, env=self.env | env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_what_failed_after_an_update_is_not_there_when_one_goes_back(checkout):
    requirements = checkout.folder / "cmake" / "requirements" / "site.txt"
    before = requirements.read_text()
    assert "site: installed" in checkout.run("cmake/setup.sh", "site")
    assert "site: there already" in checkout.run("cmake/setup.sh", "site")
    requirements.write_text("newer==2\n")
    assert "site failed" in checkout.run("cmake/setup.sh", "site", code=1, PIP_EXIT="1")
    requirements.write_text(before)
    assert "site: installed" in checkout.run("cmake/setup.sh", "site")
    assert "site: there already" in checkout.run("cmake/setup.sh", "site")


def test_make_has_cmake_look_where_it_installs(checkout):
    def looked():
        return (checkout.folder / "looked").read_text()

    elsewhere = checkout.folder / "some where"
    checkout.run("make", "build", FLOTILLA_DEPS="some where")
    assert looked() == str(elsewhere) and (elsewhere / "stamps" / "libtorch").exists()
    # Without it the checkout's own, also where CMake remembers another one.
    checkout.run("make", "build")
    assert looked() == str(checkout.folder / ".deps") and (checkout.folder / ".deps" / "stamps" / "libtorch").exists()
    checkout.run("make", "build", f"FLOTILLA_DEPS={elsewhere}")
    assert looked() == str(elsewhere)


def test_every_configure_of_the_makefile_is_told():
    lines = [line for line in (SOURCE / "Makefile").read_text().splitlines() if line.startswith("\tcmake --preset ")]
    assert len(lines) == 3 and all(line.endswith(" $(DEPS)") for line in lines)
