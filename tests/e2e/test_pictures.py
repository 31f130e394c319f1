"""The pictures of the guides are there, show something, and are made again by the command that README names."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
from PIL import Image

from harness import SOURCE, poll

SCRIPT = SOURCE / "tests" / "e2e" / "pictures.py"
THERE = SOURCE / "launcher" / "pictures"
SIZES = {"dashboard.webp": (1200, (700, 1500)), "breakout.webp": (1164, (165, 165)), "cartpole.webp": (480, (320, 320))}
SVG = "{http://www.w3.org/2000/svg}"


def make(sandbox, *words, **env):
    return subprocess.Popen(
        [sys.executable, SCRIPT, *map(str, words)], cwd=sandbox.folder, env=sandbox.env | env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def processes_of(sandbox):
    """Its programs carry a mark of their own, and our folder in their TMPDIR."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(sandbox.tmp) in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


def drawn(picture, what):
    colours = picture.getcolors(1 << 24)
    assert len(colours) > 8 and max(count for count, _ in colours) < 0.995 * picture.width * picture.height, what


def looks_right(folder):
    assert {path.name for path in folder.iterdir()} == {*SIZES, "plot.svg"}
    for path in folder.iterdir():
        assert path.stat().st_size < 150_000, path
    for name, (width, (low, high)) in SIZES.items():
        with Image.open(folder / name) as picture:
            assert picture.width == width and low <= picture.height <= high, (name, picture.size)
            drawn(picture.convert("RGB"), name)
            if name == "dashboard.webp":  # down to its end
                drawn(picture.convert("RGB").crop((0, picture.height * 4 // 5, *picture.size)), "its end")
            if name == "cartpole.webp":
                assert picture.n_frames > 20
    with Image.open(folder / "breakout.webp") as row:
        frames = [row.convert("RGB").crop((x, 0, x + 288, row.height)) for x in range(0, row.width, 292)]
        assert len({frame.tobytes() for frame in frames}) == 4
    plot = xml.parse(folder / "plot.svg").getroot()
    assert plot.tag == f"{SVG}svg" and len(plot.findall(f".//{SVG}polyline") + plot.findall(f".//{SVG}path")) >= 4
    text = "".join(plot.itertext())
    assert "charts/episodic_return" in text and "0.0025 (3 runs)" in text and "0.0005 (3 runs)" in text


def test_the_guides_show_them_and_name_the_command():
    looks_right(THERE)
    shown = {}
    for guide, prefix in (("README.md", "launcher/pictures/"), ("launcher/README.md", "pictures/")):
        text = (SOURCE / guide).read_text()
        for alt, name in re.findall(rf"!\[([^\]]*)\]\({prefix}([^)]+)\)", text):
            shown[name] = alt
        assert "`make pictures`" in text
    assert set(shown) == {path.name for path in THERE.iterdir()} and all(len(alt) > 20 for alt in shown.values())
    said = subprocess.run(["make", "-n", "--no-print-directory", "pictures"], cwd=SOURCE, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.splitlines()[-1].endswith("python tests/e2e/pictures.py launcher/pictures")


def test_the_command_makes_them_again(sandbox):
    out = sandbox.folder / "out"
    making = make(sandbox, out, "--short")
    said, errors = making.communicate(timeout=540)
    assert making.returncode == 0, said + errors
    assert len(said.splitlines()) == 4
    looks_right(out)
    assert not processes_of(sandbox)


def test_ctrl_c_in_the_middle_changes_nothing(sandbox):
    out = sandbox.folder / "out"
    making = make(sandbox, out)
    poll(lambda: list(sandbox.tmp.glob("flotilla-pictures-*/runs/cartpole/*/metrics.jsonl")), "its first training")
    os.killpg(making.pid, signal.SIGINT)
    said, errors = making.communicate(timeout=60)
    assert making.returncode == 130 and errors == f"pictures: interrupted; {out} is as it was\n" and not said
    assert not out.exists() and not list(sandbox.tmp.glob("flotilla-pictures-*"))
    poll(lambda: not processes_of(sandbox), "none of its processes is left")


@pytest.mark.parametrize(
    "env, says",
    [
        ({"PATH": "/nowhere"}, r"pictures: none of chromium-headless-shell, .* is on PATH; cmake/setup.sh test installs one"),
        ({"FLOTILLA_BIN": "/nowhere"}, r"pictures: there is no /nowhere/flotilla; `make build` makes it"),
    ],
)
def test_what_is_missing_is_one_line(sandbox, env, says):
    making = make(sandbox, "out", **env)
    said, errors = making.communicate(timeout=60)
    assert making.returncode == 1 and re.fullmatch(says + "\n", errors) and not said
    assert not (sandbox.folder / "out").exists()
