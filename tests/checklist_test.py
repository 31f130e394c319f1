"""CHECKLIST.md has a row for each item of the checklists, in the item's own words,
with what shows it: tests that exist, a run by hand that is recorded, or why it is
not done. Where the checklists themselves are beside the checkout, the words are
compared with them."""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent
REFERENCE = TESTS.parents[1] / "shared" / "reference" / "systems.md"

# How many items each list has; X is the contract over all of them.
LISTS = {"H": 18, "D": 14, "P": 17, "C": 14, "S": 8, "X": 8}
ITEMS = [f"{letter}{number}" for letter, count in LISTS.items() for number in range(1, count + 1)]

NAME = re.compile(r"`([A-Z]\w+\.\w+|\w+\.py::\w+)`")
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.*) \| (.*) \|$", re.M)
NOT_DONE = re.compile(r"not done: ([^;|]*)")
BY_HAND = re.compile(r"by hand: `[^`]+`, recorded in `([^`]+)`")


def tests():
    there = set()
    for path in TESTS.rglob("*_test.cc"):
        there |= {f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text(), re.M)}
    for path in TESTS.rglob("*.py"):
        there |= {f"{path.name}::{name}" for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    return there


def reference():
    """The words of each item, or None where the checklists are not there."""
    if not REFERENCE.exists():
        return None
    text = REFERENCE.read_text()
    words = {item: " ".join(said.split()) for item, said in re.findall(r"^([A-Z]\d+) \[[^]]*\] (.*)$", text, re.M)}
    contract = text[text.index("Cross-row contract") :].split("\n## ")[0]
    return words | {f"X{number}": said for number, said in re.findall(r"^(\d)\. (.*)$", contract, re.M)}


def problems(checklist, there, said):
    found = []
    rows = ROW.findall(checklist)
    numbers = [item for item, _, _ in rows]
    found += [f"{item} has no row" for item in ITEMS if item not in numbers]
    found += [f"{item} has {numbers.count(item)} rows" for item in sorted(set(numbers)) if numbers.count(item) > 1]
    found += [f"{item} is no item" for item in numbers if item not in ITEMS]
    if said is not None:
        found += [f"{item} is an item there and not here" for item in said if item not in ITEMS]
    for item, words, shown in rows:
        if said is not None and words != said.get(item, "").replace("|", "\\|"):
            found.append(f"{item} is not in its own words, which are: {said.get(item)}")
        reasons = NOT_DONE.findall(shown)
        if not (NAME.search(shown) or reasons or BY_HAND.search(shown)):
            found.append(f"{item} has neither a test, nor a run by hand with its record, nor a reason")
        found += [f"{item} is not done for no reason" for reason in reasons if len(reason.split()) < 4]
        if shown.count("by hand:") != len(BY_HAND.findall(shown)):
            found.append(f"{item}: write by hand: `command`, recorded in `file`")
        found += [f"{item}: there is no {path}" for path in BY_HAND.findall(shown) if not (TESTS.parent / path).exists()]
    found += [f"{name} is named, and no file has it" for name in sorted(set(NAME.findall(checklist)) - there)]
    return found


def finds_what_is_planted(checklist, there, said):
    """Each kind of lie, told once, is found out."""
    row = next(row for row in checklist.splitlines() if row.startswith("| H1 |"))
    first, words, shown = ROW.match(row).groups()
    lies = {
        "a row is missing": checklist.replace(row + "\n", ""),
        "a row is there twice": checklist.replace(row, row + "\n" + row),
        "an item of no list": checklist.replace("| H1 |", "| H99 |"),
        "nothing shows it": checklist.replace(row, f"| H1 | {words} | |"),
        "a word about tests": checklist.replace(row, f"| H1 | {words} | tested well |"),
        "no reason": checklist.replace(row, f"| H1 | {words} | not done: later |"),
        "by hand, without a record": checklist.replace(row, f"| H1 | {words} | by hand: `make bench` |"),
        "a record that is not there": checklist.replace(row, f"| H1 | {words} | by hand: `x`, recorded in `no/such` |"),
        "a test that is not there": checklist.replace(row, f"| H1 | {words} | `NoSuchTest.IsThere` |"),
    }
    if said is not None:
        lies["other words"] = checklist.replace(row, f"| H1 | it works | {shown} |")
    before = problems(checklist, there, said)
    return [f"not found: {lie}" for lie, text in lies.items() if len(problems(text, there, said)) <= len(before)]


if __name__ == "__main__":
    checklist = (TESTS / "CHECKLIST.md").read_text()
    found = problems(checklist, tests(), reference())
    found += finds_what_is_planted(checklist, tests(), reference())
    sys.exit("\n".join(found) or None)
