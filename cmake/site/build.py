"""Makes one site of the guides: `make site`, or build.py OUT.

The READMEs are the guides and stay where they are; here they become pages, with the configuration's reference out of
config.proto and the results of our measurements. What they link to is taken along, and a link to nothing is an error.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import config_reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = "tests/bench/results"
GUIDES = ("README.md", *(f"{folder}/README.md" for folder in ("launcher", "learner", "envserver", "deploy")))
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")


def page_of(source):
    """Where in the site the page is that a file of ours becomes."""
    if source.startswith(RESULTS):
        return "results/" + pathlib.Path(source).name
    return "index.md" if source == "README.md" else source.replace("README.md", "index.md")


class Site:
    def __init__(self, docs):
        self.docs = docs
        results = sorted(path.name for path in (ROOT / RESULTS).glob("*.md"))
        self.sources = {source: page_of(source) for source in (*GUIDES, *(f"{RESULTS}/{name}" for name in results))}

    def write(self, page, text):
        path = self.docs / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add(self, source):
        page = self.sources[source]
        self.write(page, self._linked((ROOT / source).read_text(), source, page))

    def add_results(self):
        lines = ["# Results", "", "What we measured, with the commands, the machine and its load.", ""]
        for source, page in self.sources.items():
            if source.startswith(RESULTS):
                title = re.search(r"(?m)^# (.*)$", (ROOT / source).read_text())
                name = pathlib.Path(page).stem
                lines.append(f"- [{title[1] if title else name}]({name}.md), {name}")
        self.write("results/index.md", "\n".join(lines) + "\n")

    def _linked(self, text, source, page):
        """The text with links to where things are in the site. Code is left as it is."""
        parts = re.split(r"(?ms)(^```.*?^```$|`[^`\n]+`)", text)
        return "".join(part if i % 2 else LINK.sub(lambda m: m[1] + self._target(m[2], source, page) + m[3], part) for i, part in enumerate(parts))

    def _target(self, target, source, page):
        if re.match(r"[a-z]+:|#", target):
            return target
        path, _, anchor = target.partition("#")
        found = (ROOT / source).parent.joinpath(path).resolve()
        if not found.exists() or not found.is_relative_to(ROOT):
            sys.exit(f"site: {source} links to {target}, which is not there")
        name = str(found.relative_to(ROOT))
        if found.is_dir() and f"{name}/README.md" in self.sources:
            name += "/README.md"
        to = self.sources.get(name) or self._along(found, name)
        up = "../" * page.count("/")
        return up + to + (f"#{anchor}" if anchor else "")

    def _along(self, found, name):
        """A file that is no page is taken along; of a folder a list of its files is a page."""
        to = pathlib.Path("files") / name
        if found.is_dir():
            lines = [f"# {name}", ""]
            for file in sorted(path for path in found.iterdir() if path.is_file()):
                along = self._along(file, f"{name}/{file.name}")
                lines.append(f"- [{file.name}]({pathlib.Path(along).name})")
            self.write(to / "index.md", "\n".join(lines) + "\n")
            return str(to / "index.md")
        if found.suffix == ".md":  # else it would be a page that no menu has
            to = to.with_suffix(".txt")
        (self.docs / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, self.docs / to)
        return str(to)


def main(out):
    out = pathlib.Path(out).resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        site = Site(work / "docs")
        for source in site.sources:
            site.add(source)
        site.add_results()
        site.write("extra.css", ".md-typeset td code { white-space: nowrap; }\n")  # names of fields are one word
        site.write("configuration.md", config_reference.page(ROOT / "proto"))
        shutil.copy(pathlib.Path(__file__).with_name("mkdocs.yml"), work)
        result = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out],
            cwd=work, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        )  # fmt: skip
    if result.returncode == 0:
        print(f"site: {out}/index.html")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["build/site"]))
