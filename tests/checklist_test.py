"""Every test that CHECKLIST.md names exists."""
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent
named = set(re.findall(r"`([A-Z]\w+\.\w+|\w+\.py::\w+)`", (TESTS / "CHECKLIST.md").read_text()))
there = set()
for path in TESTS.rglob("*_test.cc"):
    there |= {f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text(), re.M)}
for path in TESTS.rglob("*.py"):
    there |= {f"{path.name}::{name}" for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
assert len(named) > 60, "CHECKLIST.md is not read right"
missing = sorted(named - there)
sys.exit("\n".join(f"CHECKLIST.md names {name}, which no file has" for name in missing) or None)
