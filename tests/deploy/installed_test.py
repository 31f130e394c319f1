"""What `cmake --install` gives besides what tests/e2e/test_installed.py runs: the emulator's games where it was
moved, and what a build with CUDA has, which is configured here and not built."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ.get("FLOTILLA_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BIN = pathlib.Path(os.environ.get("FLOTILLA_BIN", SOURCE / "build" / "bin"))
DEPS = pathlib.Path(os.environ.get("FLOTILLA_DEPS", SOURCE / ".deps"))
LIBRARY = BIN / "libflotilla_atari.so"
REMEDY = "flotilla install atari"
emulator = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the emulator")


class AtariLibrary(ctypes.Structure):
    """envserver/envs/atari_emulator.h has it."""

    _fields_ = [("version", ctypes.c_int), ("rom_folder", ctypes.c_char_p), ("open", ctypes.c_void_p)]


def rom_folder():
    return AtariLibrary.in_dll(ctypes.CDLL(str(LIBRARY)), "flotilla_atari_library").rom_folder


class Prefix:
    """An installation's programs, for a user with an empty home."""

    def __init__(self, folder):
        (folder / "bin").mkdir()
        for name in ("flotilla", "flotilla-envserver"):
            shutil.copy(BIN / name, folder / "bin")
        for name in ("flotilla-coordinator", "flotilla-learner"):  # which look for nothing beside them here
            (folder / "bin" / name).symlink_to(BIN / name)
        self.program = folder / "bin" / "flotilla"
        self.atari = folder / "lib" / "flotilla" / "atari"
        self.own_atari = folder / "home" / ".local" / "share" / "flotilla" / "atari"
        for place in (self.atari, self.own_atari):
            place.mkdir(parents=True)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "FLOTILLA_CONFIG_DIR": str(SOURCE / "deploy" / "configs")}

    def run(self, *words, **env):
        return subprocess.run(
            [self.program, *words], cwd=self.own_atari, env=self.env | env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60,
        )  # fmt: skip

    def lists_breakout(self, **env):
        return "ALE/Breakout-v5" in self.run("envs", **env).stdout

    def opens_breakout(self):
        return self.run("train", "breakout_ppo", "--dry-run")


@pytest.fixture
def prefix(tmp_path):
    return Prefix(tmp_path)


def moved_library(place):
    """As it is where the folder of its build is not, whose name is returned."""
    there = rom_folder()
    gone = b"/" + b"x" * (len(there) - 1)
    built = LIBRARY.read_bytes()
    assert there + b"\0" in built
    (place / LIBRARY.name).write_bytes(built.replace(there + b"\0", gone + b"\0"))
    return gone.decode()


def games(place):
    (place / "roms").mkdir()
    shutil.copy(pathlib.Path(rom_folder().decode()) / "breakout.bin", place / "roms")


@emulator
def test_games_come_along(prefix):
    moved_library(prefix.atari)
    games(prefix.atari)
    assert prefix.run("envs").stdout.count("ALE/") == 1
    opened = prefix.opens_breakout()
    assert opened.returncode == 0, opened.stdout


@emulator
def test_without_games_it_says_what_helps_and_that_helps(prefix):
    gone = moved_library(prefix.atari)
    assert not prefix.lists_breakout()
    assert f"no Atari ROMs in {gone}; run: {REMEDY}" in prefix.opens_breakout().stdout
    shutil.copy(LIBRARY, prefix.own_atari)
    games(prefix.own_atari)
    assert prefix.lists_breakout()
    # Whoever names one means that one.
    assert not prefix.lists_breakout(FLOTILLA_ATARI_LIBRARY=str(prefix.atari / LIBRARY.name))


@emulator
def test_one_that_does_not_load_is_passed_over_too(prefix):
    (prefix.atari / LIBRARY.name).write_text("no library")
    said = prefix.opens_breakout().stdout
    assert "does not load" in said and REMEDY in said
    shutil.copy(LIBRARY, prefix.own_atari)
    games(prefix.own_atari)
    assert prefix.lists_breakout()


@emulator
def test_a_folder_of_games_that_is_named_comes_first(prefix, tmp_path):
    moved_library(prefix.atari)
    games(prefix.atari)
    (tmp_path / "named").mkdir()
    shutil.copy(prefix.atari / "roms" / "breakout.bin", tmp_path / "named" / "pong.bin")
    said = prefix.run("envs", FLOTILLA_ALE_ROMS=str(tmp_path / "named")).stdout
    assert "ALE/Pong-v5" in said and "ALE/Breakout-v5" not in said


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """What `cmake --install` does of a build with CUDA."""
    if not [*DEPS.glob("*-venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc")]:
        pytest.skip("no CUDA compiler (cmake/setup.sh test)")
    build = tmp_path_factory.mktemp("cuda")
    words = ["cmake", "--preset", "cpu", "-B", build, "-DFLOTILLA_CUDA=ON", "-DFLOTILLA_BUILD_TESTS=OFF", f"-DFLOTILLA_DEPS={DEPS}"]
    done = subprocess.run(words, cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=170)
    assert done.returncode == 0, done.stdout
    return (build / "cmake_install.cmake").read_text()


@pytest.mark.parametrize(
    "installed, wanted",
    [
        ("bin/flotilla-learner", ["libtorch_cpu.so", "libtorch_cuda.so", "libcudart.so.13"]),
        ("lib/libflotilla_nccl.so", ["libnccl.so.2", "libcudart.so.13"]),  # LoadNcclApi() looks there
    ],
)
def test_what_is_built_with_cuda_finds_its_libraries(script, installed, wanted):
    (folders,) = re.findall(rf'FILE "[^"]*\$\{{CMAKE_INSTALL_PREFIX\}}/{installed}"\n[^)]*? NEW_RPATH "(.*?)"', script)
    for library in wanted:
        assert any((pathlib.Path(folder) / library).exists() for folder in folders.split(":")), (library, folders)


def test_the_emulator_is_installed_with_its_games(script):
    if not (DEPS / "ale" / "lib" / "libale.a").exists():
        pytest.skip("no emulator (cmake/setup.sh)")
    into = 'file\\(INSTALL DESTINATION "\\${CMAKE_INSTALL_PREFIX}/lib/flotilla/atari'
    assert re.search(rf'{into}" TYPE MODULE FILES "[^"]*/libflotilla_atari\.so"', script)
    assert re.search(rf'{into}" TYPE FILE FILES "[^"]*/LICENSE\.md"', script)
    assert re.search(rf'{into}/roms" TYPE FILE FILES\s[^)]*/breakout\.bin"', script)
