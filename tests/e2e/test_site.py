"""The site of the guides: make site."""

import html
import os
import re
import subprocess
import sys

import pytest

from harness import SOURCE

BUILD = SOURCE / "cmake" / "site" / "build.py"


def test_make_site_makes_it():
    said = subprocess.run(["make", "-n", "--no-print-directory", "site"], cwd=SOURCE, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.splitlines() == ["cmake/setup.sh site", "${FLOTILLA_DEPS:-.deps}/sitevenv/bin/python cmake/site/build.py build/site"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "out"
    done = subprocess.run([sys.executable, BUILD, out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip() == f"site: {out.resolve()}/index.html"
    return out


def test_pages_link_to_what_is_there_and_ask_nothing_of_others(site):
    pages = list(site.rglob("*.html"))
    for guide in ("index", "launcher/index", "learner/index", "envserver/index", "deploy/index", "configuration", "results/index"):
        assert site / f"{guide}.html" in pages
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*\b(?:src|href)=\"?([^\"> ]+)", text)
        assert loaded and not [url for url in loaded if re.match("(https?:)?//", url)], page
        if page.name == "404.html":  # its links are those of a server's root
            continue
        for target in re.findall(r"\b(?:src|href)=\"?([^\"> ]+)", text):
            path = html.unescape(target).partition("#")[0]
            if path and not re.match("[a-z]+:", path):
                assert os.path.exists(page.parent / path), f"{page}: {target}"


def test_the_reference_has_every_field_and_what_it_says(site, sandbox):
    text = html.unescape(re.sub(r"<[^>]+>", " ", (site / "configuration.html").read_text()))
    words = re.sub(r"\s+", " ", text)

    def paths(begin=""):
        for line in sandbox.run("__complete", "explain", begin).stdout.splitlines():
            path = line.split("\t")[0]
            if path.endswith(".") and path != begin:
                yield from paths(path)
            elif not path.startswith(":"):
                yield path

    paths = set(paths())
    assert {"seed", "env.num_envs", "dqn.n_step", "env.options.atari.noop_max"} <= paths
    # By section: what comes behind its heading, up to the next one.
    parts = re.split(r'<h2 id="([^"]*)"', (site / "configuration.html").read_text())
    sections = {"" if name == "the-run" else name: text for name, text in zip(parts[1::2], parts[2::2])}

    def has(path):
        section, _, name = path.rstrip(".").rpartition(".")
        text = sections.get(re.sub(r"\W", "", section.replace("leaf", "leafi")), "")
        return f"<td><code>{name}</code></td>" in text

    missing = [path for path in sorted(paths) if not has(path)]
    assert not missing
    assert "Nothing is gained by moving an action's probability ratio further than this from 1." in words
    assert "RETRY_RESET by a reset RETRY_RENEW with an environment made anew" in words


def test_a_link_to_nothing_is_an_error(tmp_path):
    tree = tmp_path / "tree"
    for folder in ("cmake/site", "proto"):
        subprocess.run(["cp", "-r", "--parents", folder, _made(tree)], cwd=SOURCE, check=True)
    for guide in ("README.md", "launcher/README.md", "learner/README.md", "envserver/README.md", "deploy/README.md"):
        (tree / guide).parent.mkdir(exist_ok=True)
        (tree / guide).write_text("# Guide\n\nSee `[this](of/code.md)` and [that](nowhere.md).\n" if guide == "learner/README.md" else "# Guide\n")
    done = subprocess.run([sys.executable, tree / "cmake/site/build.py", tmp_path / "out"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 1 and done.stdout == "site: learner/README.md links to nowhere.md, which is not there\n"
    assert not (tmp_path / "out").exists()


def _made(folder):
    folder.mkdir(exist_ok=True)
    return folder
