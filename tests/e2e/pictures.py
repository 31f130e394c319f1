"""Makes the pictures of the guides again: `make pictures`, or pictures.py OUT.

It trains short runs with our programs and takes what they show: the dashboard, as a browser without a screen draws it; a
plot; frames of a game that is played again, and a film of one. OUT changes only when all of them are made.
"""

import argparse
import pathlib
import re
import shutil
import sys
import tempfile

import chromium
from harness import BIN, Sandbox, poll

MOST_BYTES = 150_000
WIDTH = 1200
LIMIT = 1800  # seconds for one command: the machine may be busy
RATES = ("2.5e-3", "5e-4")
SEEDS = (1, 2, 3)
FRAMES = 4


class Failed(Exception):
    """What went wrong, in words for people."""


def flotilla(sandbox, *words):
    done = sandbox.run(*words, timeout=LIMIT)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["(nothing)"]
        raise Failed(f"flotilla {' '.join(words)} ended with {done.returncode}: {said[-1]}")


def train(sandbox, short):
    """runs/cartpole, two learning rates with three seeds each, and runs/breakout."""
    every = ("--set=evaluation.every_updates=5", "--set=evaluation.stop_return=1e9")
    for rate in RATES:
        for seed in SEEDS:
            steps = "60k" if short else "300k"
            place = f"--run-dir=runs/cartpole/lr={rate},seed={seed}"
            flotilla(sandbox, "train", "cartpole_fast", "--nproc-per-node=2", f"--lr={rate}", f"--seed={seed}", f"--steps={steps}", *every, place)
    flotilla(sandbox, "train", "native_breakout", f"--steps={'300k' if short else '10M'}", "--run-dir=runs/breakout")


def dashboard(sandbox, out):
    """Its head: the runs, and the first two rows of their curves."""
    from PIL import Image

    serving = sandbox.serve("flotilla", "dashboard", "runs/cartpole", "--listen=127.0.0.1:0")
    log = sandbox.folder / "flotilla.log"

    def url():
        if serving.poll() is not None:
            raise Failed(f"flotilla dashboard ended: {log.read_text().strip()}")
        return re.search(r"https?://\S+/", log.read_text())

    page = None
    try:
        at = poll(url, "the dashboard's address")[0]
        page = chromium.Browser(sandbox, width=WIDTH)
        page.call("Emulation.setScrollbarsHidden", hidden=True)
        page.open(at)
        page.await_true(f"document.querySelectorAll('#run-table input').length === {len(RATES) * len(SEEDS)}")
        page.await_true(f"document.querySelectorAll('figure[data-metric=\"charts/episodic_return\"] polyline').length >= {len(RATES) * len(SEEDS)}")
        figures = "[...document.querySelectorAll('#groups figure:not([hidden])')].filter(f => f.offsetParent !== null)"
        # As high as what is wanted: what is out of sight is not drawn.
        page.resize(WIDTH, page.js(f"Math.ceil({figures}[3].getBoundingClientRect().bottom + scrollY) + 6"))
        page.await_true(f"{figures}.slice(0, 4).every(f => f.querySelector('polyline'))")
        if page.errors:
            raise Failed(f"the dashboard's page complains: {page.errors[0]}")
        shot = sandbox.folder / "dashboard.png"
        page.screenshot(shot)
        with Image.open(shot) as image:
            image.convert("RGB").quantize(256, dither=Image.Dither.NONE).convert("RGB").save(out, "webp", lossless=True, quality=100, method=6)
    finally:
        if page:
            page.close()
        serving.terminate()
        serving.wait()


def frames(film, out):
    """Some of a film's frames side by side, each half as large."""
    from PIL import Image

    with Image.open(film) as moving:
        chosen = []
        for i in range(FRAMES):
            moving.seek((i + 1) * (moving.n_frames - 1) // FRAMES)
            chosen.append(moving.convert("RGB").reduce(2))
    width, height = chosen[0].size
    gap = 4
    row = Image.new("RGB", (FRAMES * (width + gap) - gap, height), "white")
    for i, image in enumerate(chosen):
        row.paste(image, (i * (width + gap), 0))
    row.save(out, "webp", quality=80, method=6)


def make(out, short):
    with tempfile.TemporaryDirectory(prefix="flotilla-pictures-") as folder:
        sandbox = Sandbox(folder)
        sandbox.env["FLOTILLA_PYTHON"] = sys.executable  # which makes films
        made = pathlib.Path(folder) / "made"
        made.mkdir()
        try:
            train(sandbox, short)
            dashboard(sandbox, made / "dashboard.webp")
            flotilla(sandbox, "plot", "runs/cartpole", "--out", str(made / "plot.svg"))
            flotilla(sandbox, "replay", "runs/breakout", "--video", "breakout.webp")
            frames(sandbox.folder / "breakout.webp", made / "breakout.webp")
            run = f"runs/cartpole/lr={RATES[-1]},seed={SEEDS[0]}"
            flotilla(sandbox, "replay", run, "--episode=median", "--video", str(made / "cartpole.webp"))
        finally:
            sandbox.close()
        for path in made.iterdir():
            if path.stat().st_size > MOST_BYTES:
                raise Failed(f"{path.name} has {path.stat().st_size:,} bytes, and may have {MOST_BYTES:,}")
        out.mkdir(parents=True, exist_ok=True)
        for path in sorted(made.iterdir()):
            shutil.move(path, out / path.name)
            print(f"{out / path.name}  {(out / path.name).stat().st_size:,} bytes")


def main():
    parser = argparse.ArgumentParser(description="Makes the pictures of the guides.")
    parser.add_argument("out", type=pathlib.Path, help="the folder that they go to")
    parser.add_argument("--short", action="store_true", help="train for a moment only, to see whether all of it works")
    options = parser.parse_args()
    try:
        chromium.find()
        import PIL  # noqa: F401
    except (AssertionError, ImportError) as error:
        sys.exit(f"pictures: {error}")
    if not (BIN / "flotilla").exists():
        sys.exit(f"pictures: there is no {BIN / 'flotilla'}; `make build` makes it")
    try:
        make(options.out, options.short)
    except KeyboardInterrupt:
        print(f"pictures: interrupted; {options.out} is as it was", file=sys.stderr)
        sys.exit(130)
    except (Failed, AssertionError, OSError) as error:
        sys.exit(f"pictures: {error}")


if __name__ == "__main__":
    main()
