"""What deploy/ holds besides manifests, looked at by the tools made for it."""

import fnmatch
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("FLOTILLA_BIN", SOURCE / "build" / "bin"))
TOOLS = pathlib.Path(sys.executable).parent
DEPLOY = SOURCE / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SCRIPTS = [*sorted(DEPLOY.rglob("*.sh")), *sorted(DEPLOY.rglob("*.sbatch"))]
DOCKERFILES = sorted((DEPLOY / "docker").glob("*.Dockerfile"))
EXPOSURE = 20  # of 100, as systemd-analyze counts it; both have 14 or less


def run(*words):
    return subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)


def name(path):
    return path.name


def test_there_is_something_to_look_at():
    assert len(UNITS) == 2 and len(SCRIPTS) == 5 and len(DOCKERFILES) == 2


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_shellcheck(script):
    result = run(TOOLS / "shellcheck", script)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name)
def test_hadolint(dockerfile):
    result = run(TOOLS / "hadolint", dockerfile)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name)
def test_what_is_copied_exists_and_nobody_is_root(dockerfile):
    lines = dockerfile.read_text().splitlines()
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert (SOURCE / line.split()[1]).exists(), line
    assert "USER 10001:10001" in lines


# Where the guides, and programs by themselves, put secrets.
SECRETS = ("certs/ca.key", "certs/token", "token", "flotilla_coordinator.token", "runs/first/token", "sweeps/s/trials/0/token")


def test_no_secret_is_committed(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True, timeout=30)
    shutil.copy(SOURCE / ".gitignore", tmp_path)
    ignored = run("git", "-C", tmp_path, "check-ignore", *SECRETS)
    assert ignored.stdout.splitlines() == [*SECRETS], ignored


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name)
def test_no_secret_is_copied_into_an_image(dockerfile):
    """Neither into a stage of its build."""
    ignored = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text().splitlines()
    for secret in SECRETS:
        # A pattern that matches a folder keeps out all that is in it.
        parts = [secret, *map(str, pathlib.PurePath(secret).parents)]
        assert any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in ignored), secret


def test_what_is_installed_for_cpus_without_dependencies_is_whole(tmp_path):
    """The packages that the guide names, and nothing else, give a Python that plays and reads runs."""
    recipe = " ".join((DEPLOY / "README.md").read_text().split())
    named = re.search(r"`cmake/requirements/torch_cpu.txt` names, and ([\w, ]+)\.", recipe)[1]
    for package in re.split(r", | and ", named):
        distribution = importlib.metadata.distribution(package)
        for part in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            (tmp_path / part).symlink_to(distribution.locate_file(part))
    ours = BIN.parent / "share" / "flotilla" / "python"
    program = (
        f"import sys; sys.path += [{str(tmp_path)!r}, {str(ours)!r}]\n"
        "import flotilla, flotilla_gym, grpc, gymnasium\n"
        "gymnasium.make('CartPole-v1').reset()\n"
    )
    played = run(sys.executable, "-I", "-S", "-c", program)
    assert played.returncode == 0, played.stderr


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    """The units with programs where they are here; templates get an instance."""
    folder = tmp_path_factory.mktemp("units")
    made = []
    for unit in UNITS:
        made.append(folder / unit.name.replace("@.", "@29500."))
        made[-1].write_text(unit.read_text().replace("/usr/bin/flotilla", f"{BIN}/flotilla"))
    return made


def verify(unit):
    # It says what it does not know, and ends with 0 all the same.
    result = run("systemd-analyze", "verify", "--man=no", unit)
    lines = (result.stdout + result.stderr).splitlines()
    return result.returncode, [line for line in lines if unit.name in line or "Unknown" in line]


def test_units_are_known_to_systemd(units):
    for unit in units:
        assert verify(unit) == (0, []), unit.name


def test_a_typo_in_a_unit_is_noticed(units, tmp_path):
    wrong = tmp_path / units[0].name
    wrong.write_text(units[0].read_text().replace("PrivateTmp=", "PrivatTmp="))
    assert verify(wrong)[1]


def test_units_are_confined(units):
    for unit in units:
        result = run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", unit)
        assert result.returncode == 0, result.stdout


def test_units_give_flags_that_the_programs_know(units):
    for unit in units:
        text = unit.read_text().replace("\\\n", " ")
        words = next(line for line in text.splitlines() if line.startswith("ExecStart=")).split("=", 1)[1].split()
        help_text = run(words[0], "--help").stdout
        for word in words[1:]:
            assert word.split("=")[0].lstrip("-") in help_text, word


def test_the_tools_are_there():
    assert shutil.which("systemd-analyze") and (TOOLS / "shellcheck").exists() and (TOOLS / "hadolint").exists()


MANIFESTS = [*UNITS, *sorted(DEPLOY.rglob("*.sbatch")), *sorted(DEPLOY.glob("kubernetes/*.yaml"))]
SERVERS = ("flotilla-coordinator", "flotilla-envserver", "serve-envs", "- train", '" train')


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name)
def test_nothing_is_started_without_a_token(manifest):
    text = "\n".join(line for line in manifest.read_text().splitlines() if not line.lstrip().startswith("#"))
    assert "insecure" not in text
    if any(f"{server} " in text + " " or f"{server}\n" in text for server in SERVERS):
        assert "--token-file" in text or "--token_file" in text
