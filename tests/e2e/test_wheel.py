"""What `make wheel` packs, installed by pip into an environment that has nothing of the build, and used from elsewhere.

Here it is packed out of the build that is tested, whose programs run on this machine alone; the same, as it is given
away and with all that pip pulls, is in test_the_wheel_that_is_given_away."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import zipfile

import pytest

from harness import BIN, SOURCE, TIMEOUT, poll, read_jsonl, summary
from torch_python import DEPS, TorchPython

PACK = SOURCE / "cmake" / "wheel" / "pack.sh"
CHECK = SOURCE / "cmake" / "wheel" / "check.py"
TOOLS = ("bash", "dirname", "mkdir", "mktemp", "rm", "tail")  # all that a script needs to say what is missing


class Installed:
    """A wheel in a virtual environment, for a user with an empty home."""

    def __init__(self, folder, wheel, *packages):
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self.bin = folder / "venv" / "bin"
        pip = [self.bin / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
        subprocess.run([*pip, wheel], check=True, timeout=TIMEOUT)
        (self.site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
        # What pip would pull, as it lies elsewhere on this machine.
        (self.site / "pulled.pth").write_text("".join(f"{package}\n" for package in packages))
        self.env = {"PATH": str(self.bin), "HOME": str(self.home), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}

    def start(self, *words, **more):
        words = [str(word) for word in words]
        return subprocess.Popen(
            [self.bin / words[0], *words[1:]], **{"cwd": self.home, "env": self.env, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT, "text": True} | more,
        )  # fmt: skip

    def run(self, *words, code=0, **more):
        """What it says."""
        process = self.start(*words, **more)
        try:
            said, _ = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
        assert process.returncode == code, f"{words}\n{said}"
        return said


def packages_of(*venvs):
    return [str(path) for venv in venvs for path in DEPS.glob(f"{venv}/lib/python3*/site-packages")]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run([PACK, BIN.parent, folder], check=True, timeout=TIMEOUT)
    return {re.match(r"flotilla(_envhost)?", path.name)[0]: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def flotilla(wheels, tmp_path_factory):
    torch = packages_of("venv", "cuda-venv")[:1]
    assert torch, f"no LibTorch under {DEPS}"
    installed = Installed(tmp_path_factory.mktemp("flotilla"), wheels["flotilla"], *torch, *packages_of("testvenv"))
    yield installed
    shutil.rmtree(installed.home.parent)


def test_it_trains_far_from_where_it_was_built(flotilla):
    said = flotilla.run("flotilla", "train", "cartpole_fast", "--steps=20480", "--run-dir=runs/first")
    assert "20,480 steps" in said and str(BIN) not in said
    assert summary(flotilla.home / "runs" / "first")["status"] == "completed"
    assert "episodes" in flotilla.run("flotilla", "evaluate", "runs/first", "--episodes=2")
    doctor = flotilla.run("flotilla", "doctor")
    for program in ("flotilla-coordinator", "flotilla-envserver", "flotilla-learner"):
        assert f"{flotilla.site}/flotilla_program/bin/{program}" in doctor
    assert "LibTorch              loads" in doctor and "gym: environments work" in doctor


def test_gymnasium_runs_in_the_python_that_has_the_wheel(flotilla, tmp_path):
    env = flotilla.env | {"PATH": str(tmp_path)}  # has no python3
    flotilla.run("flotilla", "train", "cartpole_fast", "--env=gym:CartPole-v1", "--steps=2048", "--run-dir=runs/gym", env=env)
    assert summary(flotilla.home / "runs" / "gym")["env_id"] == "gym:CartPole-v1"


def test_the_command_is_the_program(flotilla):
    said = flotilla.run("flotilla", "trian", code=2)
    assert 'did you mean "train"?' in said
    assert "cmake --install build --prefix PREFIX" in flotilla.run("flotilla", "new", "network", "mine")
    read, write = os.pipe()
    os.close(read)
    flotilla.run("flotilla", "configs", code=-signal.SIGPIPE, stdout=write)  # as before `| head`
    os.close(write)
    job = flotilla.start("flotilla", "train", "cartpole_fast", "--steps=1000000000000", "--set=evaluation.every_updates=100000", "--run-dir=endless")
    try:
        lines = flotilla.home / "endless" / "metrics.jsonl"
        poll(lambda: lines.exists() and len(read_jsonl(lines)) > 2, "some updates")
        assert pathlib.Path(f"/proc/{job.pid}/exe").resolve() == flotilla.site / "flotilla_program" / "bin" / "flotilla"
        job.send_signal(signal.SIGINT)
        said, _ = job.communicate(timeout=TIMEOUT)
    finally:
        job.kill()
    assert job.returncode == 130, said
    assert (flotilla.home / "endless" / "checkpoints" / "latest").exists()


def test_python_trains_and_takes_the_policy_home(flotilla, tmp_path):
    script = (
        "import flotilla\n"
        "run = flotilla.train('cartpole_fast', steps=2048, run_dir='runs/python', progress='none')\n"
        "policy = flotilla.load('runs/python')\n"
        "print('acts', policy.act([0.0, 0.0, 0.0, 0.0]))\n"
    )
    stand_ins = TorchPython(tmp_path).env | {"PYTHONPATH": ""}
    assert re.search(r"acts \S*[01]", flotilla.run("python", "-c", script, env=flotilla.env | stand_ins))


def test_the_emulator_is_not_in_it_and_is_found_where_it_is_installed(wheels, flotilla):
    for wheel in wheels.values():
        assert not [name for name in zipfile.ZipFile(wheel).namelist() if "libflotilla_atari" in name or name.endswith(".bin")]
    assert "flotilla install atari" in flotilla.run("flotilla", "train", "breakout_ppo", code=2)
    assert "flotilla install atari" in flotilla.run("flotilla", "doctor")
    library = BIN / "libflotilla_atari.so"
    if library.exists():  # this build has it
        (flotilla.home / "data" / "flotilla" / "atari").mkdir(parents=True)
        shutil.copy(library, flotilla.home / "data" / "flotilla" / "atari")
        env = flotilla.env | {"XDG_DATA_HOME": str(flotilla.home / "data")}
        assert "ALE/Breakout-v5" in flotilla.run("flotilla", "envs", env=env)
        flotilla.run("flotilla", "train", "breakout_ppo", "--dry-run", env=env)


def test_a_missing_compiler_is_named_with_its_remedy(flotilla, tmp_path):
    for tool in TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool))
    said = flotilla.run("flotilla", "install", "atari", code=1, env=flotilla.env | {"PATH": str(tmp_path)})
    assert "building the emulator needs g++ cmake ninja-build" in said and "sudo apt-get install g++ cmake ninja-build" in said
    assert not list((flotilla.home / ".local" / "share" / "flotilla").iterdir())
    assert 'did you mean "atari"?' in flotilla.run("flotilla", "install", "atary", code=2)


def test_a_host_for_environments_needs_no_torch(wheels, tmp_path):
    host = Installed(tmp_path, wheels["flotilla_envhost"], *packages_of("testvenv"))
    metadata = (next(host.site.glob("flotilla_envhost-*.dist-info")) / "METADATA").read_text()
    assert "Requires-Dist: grpcio" in metadata and "torch" not in metadata
    assert "CartPole-v1" in host.run("flotilla", "envs")
    assert " 0 failed" in host.run("flotilla", "check-env", "gym:CartPole-v1")
    said = host.run("flotilla", "train", "cartpole_fast", code=2)
    assert "flotilla-envhost" in said and "flotilla-learner" in said


def test_what_ties_a_wheel_to_this_machine_is_named(wheels, tmp_path):
    def problems(*words):
        done = subprocess.run([sys.executable, CHECK, *words], stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
        assert done.returncode == 1
        return done.stderr

    # These link gRPC where Debian has it.
    assert "flotilla-learner needs libgrpc++.so" in problems(wheels["flotilla"])
    # An object with AVX2, and a kernel whose function the linker might give to the rest.
    code = "void grow(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = x[i] * 3 + 1; }\n"
    (tmp_path / "isa").mkdir()
    for name in ("own", "isa/kernels_v3"):
        source, made = tmp_path / f"{name}.cc", tmp_path / f"{name}.cc.o"
        source.write_text(code)
        subprocess.run(["c++", "-O3", "-march=x86-64-v3", "-c", source, "-o", made], check=True)
    (tmp_path / "learner" / "kernels").mkdir(parents=True)
    (tmp_path / "isa").rename(tmp_path / "learner" / "kernels" / "isa")
    said = problems("--build", tmp_path, wheels["flotilla"])
    assert re.search(r"own\.cc\.o goes beyond x86-64-v2: .*v\w+", said)
    assert re.search(r"kernels_v3\.cc\.o lends grow", said)


@pytest.mark.long
def test_the_wheel_that_is_given_away(tmp_path):
    section = re.search(r"(?ms)^## Install without a compiler$(.*?)^## ", (SOURCE / "README.md").read_text())[1]
    make, install, train = (line.split("#")[0] for line in re.search(r"(?ms)^```\n(.*?)^```$", section)[1].splitlines())
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (tmp_path / "home").mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FLOTILLA_PYTHON", "FLOTILLA_BIN")}
    env["PATH"] = f"{tmp_path}/venv/bin:{env['PATH']}"

    def follow(line, folder, minutes):
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, stdout=subprocess.PIPE, text=True, timeout=60 * minutes)
        assert done.returncode == 0, done.stdout
        return done.stdout

    said = follow(make, SOURCE, 40)
    assert "no symbol newer than GLIBC 2.35" in said and "pip pulls" in said
    assert list((SOURCE / "build-wheel" / "wheels").glob("flotilla-*-py3-none-manylinux_2_35_x86_64.whl"))
    follow(install, SOURCE, 15)
    follow(f"{train} --run-dir run", tmp_path / "home", 2)
    assert summary(tmp_path / "home" / "run")["status"] == "solved"
