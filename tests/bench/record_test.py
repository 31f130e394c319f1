"""A record is made only of turns in which nobody else used the cores."""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bounded  # noqa: E402
import contender  # noqa: E402
import groups  # noqa: E402
import main  # noqa: E402
import ours  # noqa: E402
import report  # noqa: E402
import watched  # noqa: E402

TURN = """
import contender
who = contender.Contender("sleeper", ["sleep", "0.5"], lambda output, folder: {"steps_per_second": 1})
try:
    contender.Turns(cores=1, quiet_s=0, recorded=True)([who], 1)
except contender.Disturbed as disturbed:
    print("refused:", disturbed)
"""


def sleeper():
    return contender.Contender("sleeper", ["sleep", "0"], lambda output, folder: {"steps_per_second": float(output)})


@pytest.fixture
def runs(monkeypatch):
    """What each next run gives: (its output, the cores that others used)."""
    script = []

    def run(*_, **__):
        output, used = script.pop(0)
        return bounded.Finished(output, 0, False, used)

    monkeypatch.setattr(bounded, "run", run)
    return script


def test_a_load_beside_it_refuses_the_record():
    load = subprocess.Popen([sys.executable, "-c", "print('burning', flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert load.stdout.readline() == b"burning\n"
        done = subprocess.run([sys.executable, "-c", TURN], cwd=HERE, capture_output=True, text=True, timeout=60)
    finally:
        load.kill()
        load.wait()
        load.stdout.close()
    assert done.stdout.startswith("refused: sleeper, round 1: others used "), done
    assert "3 times in a row" in done.stdout
    assert done.stderr.count("once more") == 3


def test_a_disturbed_turn_is_taken_again_and_leaves_no_number(runs):
    runs += [("7", 0.0), ("1000", 0.5), ("9", 0.05)]
    who, turns = sleeper(), contender.Turns(cores=1, quiet_s=0, recorded=True)
    turns([who], 2)
    assert who.metrics == {"steps_per_second": [7, 9]}
    assert who.other_cpu == [0.0, 0.05]
    assert turns.again == ["sleeper, round 2"]


def test_without_a_record_a_disturbed_turn_counts_and_is_shown(runs):
    runs += [("7", 1.5)]
    who = sleeper()
    contender.Turns(cores=1, quiet_s=0, recorded=False)([who], 1)
    assert who.metrics == {"steps_per_second": [7]}
    assert who.other_cpu == [1.5]


def test_the_newest_line_is_the_last_that_is_whole(tmp_path):
    assert ours.newest_line(tmp_path) is None
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"update": 1')
    assert ours.newest_line(tmp_path) is None
    for last in (1, 5000):
        file.write_text("".join(f'{{"update": {u}, "wall_seconds": {u / 100}}}\n' for u in range(1, last + 1)))
        assert ours.newest_line(tmp_path) == ours.metric_lines(tmp_path)[-1]
        with open(file, "a") as more:
            more.write('{"update": 9, "wall')
        assert ours.newest_line(tmp_path)["update"] == last
    assert ours.trained_for(50)(tmp_path) and not ours.trained_for(51)(tmp_path)


def test_what_a_turn_costs_is_beside_the_turns_around_it():
    output = "coordinator: here\nturn held 10.0\nturn going 20.0\nturn held 30.0\nturn going 40.0\nturn held 50.0\nturn over 60.0\n"
    steps, updates = 0, []
    for tenth in range(700):  # 900 a second while it is watched, and 1,000 and 1,100 before and after
        second = tenth / 10
        steps += {1: 100, 2: 90, 3: 110, 4: 99, 5: 110}.get((tenth - 1) // 100, 50)
        updates.append((second, steps))
    assert watched.shares(output, updates) == pytest.approx([90 / 105, 99 / 110])
    assert watched.shares(output, updates[:400]) == []
    assert watched.shares(output.replace("turn over 60.0\n", ""), updates) == []


def test_commands_name_no_folder_of_this_machine():
    who = contender.Contender("us", [sys.executable, ours.BIN + "/flotilla", "train", "{run}"], None)
    assert report.commands([who]) == "- us: `python3 $FLOTILLA_BIN/flotilla train RUN`"


@pytest.fixture
def record(monkeypatch, tmp_path):
    """Runs main with --save over one comparison of one contender; gives what it wrote."""

    def group(options, turns):
        who = sleeper()
        turns([who], options.rounds)
        return f"## Sleep\n\nmedian {who.median('steps_per_second')}"

    monkeypatch.setattr(groups, "ALL", {"sleep": group})
    monkeypatch.setattr(ours, "REPOSITORY", str(tmp_path))
    monkeypatch.setattr(ours, "program", lambda name: (name, ""))

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["run.sh", "--save", "--quiet-seconds=0", *flags])
        with pytest.raises(SystemExit) as ended:
            main.main()
        written = list(tmp_path.rglob("*.md"))
        return ended.value.code, written[0].read_text() if written else None

    return run


def test_a_record_is_of_five_rounds_and_says_what_the_machine_did(runs, record):
    runs += [(str(n), 0.0) for n in range(1, 6)]
    failures, text = record()
    assert failures is None
    assert "median 3" in text
    assert "- 5 rounds; a turn in which others used more than 0.1 cores was taken again" in text
    assert text.count("load average") == 2


def test_a_disturbed_comparison_writes_nothing(runs, record):
    runs += [("1", 0.0)] + [("2", 0.4)] * 3
    failure, text = record()
    assert "sleeper, round 2: others used 0.40 cores" in failure
    assert text is None


def test_fewer_rounds_are_not_recorded(runs, record, capsys):
    for flags in (["--rounds=4"], ["--quick"]):
        code, text = record(*flags)
        assert (code, text) == (2, None)
        assert "at least 5 rounds" in capsys.readouterr().err
