"""A record is made only of turns in which nobody else used the cores, of a machine that stayed the same."""
import json
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
import probe  # noqa: E402
import report  # noqa: E402
import watched  # noqa: E402

TRIES = contender.Turns.TRIES

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
    assert f"{TRIES} times in a row" in done.stdout
    assert done.stderr.count("once more") == TRIES


def test_a_disturbed_turn_is_taken_again_and_leaves_no_number(runs):
    runs += [("7", 0.0), ("1000", 0.5), ("9", 0.05)]
    who, turns = sleeper(), contender.Turns(cores=1, quiet_s=0, recorded=True)
    turns([who], 2)
    assert who.metrics == {"steps_per_second": [7, 9]}
    assert who.other_cpu == [0.0, 0.05]
    assert turns.again == ["sleeper, round 2"]


@pytest.fixture
def probed(monkeypatch):
    """What each next probe gives."""
    script = []
    monkeypatch.setattr(probe, "measure", lambda program, cores: script.pop(0))
    return script


def machine(fma=100.0, copy=10.0, ping_pong=500.0):
    return {"fma_gflops": fma, "copy_gb_s": copy, "ping_pong_ns": ping_pong}


@pytest.mark.parametrize("fma", [94, 106])
def test_a_machine_that_became_slower_or_faster_takes_the_turn_again(runs, probed, fma):
    runs += [("7", 0.0), ("1000", 0.0), ("9", 0.0)]
    probed += [machine(), machine(fma=96, copy=10.4, ping_pong=900), machine(), machine(fma=fma), machine(), machine()]
    who, turns = sleeper(), contender.Turns(cores=1, quiet_s=0, recorded=True)
    turns([who], 2)
    assert who.metrics == {"steps_per_second": [7, 9]}
    assert turns.again == ["sleeper, round 2"]
    assert turns.limit("fma_gflops") == 100 and turns.limit("copy_gb_s") == 10
    assert "100 GFLOP/s of float32 multiply-adds (96.00 to 100)" in report.machine_after(turns)
    assert turns.limit("fma_gflops") is None  # the next comparison has its own


def test_one_that_is_a_little_above_and_a_little_below_its_own_is_the_same(runs, probed):
    runs += [("7", 0.0), ("8", 0.0), ("9", 0.0)]
    probed += [machine()] * 2 + [machine(fma=96)] * 2 + [machine(fma=102)] * 2
    who, turns = sleeper(), contender.Turns(cores=1, quiet_s=0, recorded=True)
    turns([who], 3)
    assert who.metrics == {"steps_per_second": [7, 8, 9]} and not turns.again


def test_one_that_never_stays_the_same_is_not_recorded(runs, probed):
    runs += [("7", 0.0)] * TRIES
    probed += [machine(), machine(fma=90)] * TRIES
    with pytest.raises(contender.Disturbed, match=f"fma_gflops was 90 of 100, {TRIES} times in a row"):
        contender.Turns(cores=1, quiet_s=0, recorded=True)([sleeper()], 1)


def test_one_that_is_slower_than_it_was_is_waited_for(runs, probed, monkeypatch):
    monkeypatch.setattr(contender.Turns, "PAUSE", 0)
    runs += [("7", 0.0), ("1000", 0.0), ("9", 0.0)]
    probed += [machine(), machine(), *[machine(fma=50)] * TRIES, machine(fma=50)]  # it stays slow: the turn is taken
    probed += [machine(fma=50), machine(copy=3), machine(copy=30)]
    who, turns = sleeper(), contender.Turns(cores=1, quiet_s=0, recorded=True)
    turns([who], 2)
    assert who.metrics == {"steps_per_second": [7, 9]}
    assert turns.again == ["sleeper, round 2"]


def test_the_probe_measures_this_machine():
    program, missing = ours.program("flotilla_machine_probe", ours.BENCH_BIN)
    assert not missing
    found = probe.measure(program, 1)
    assert found["fma_gflops"] > 0.1 and found["copy_gb_s"] > 0.01 and found["ping_pong_ns"] == 0
    watched = subprocess.run([program, "1", "0.2"], capture_output=True, text=True, timeout=60, check=True)
    (share,) = json.loads(watched.stdout)["slow_shares"]
    assert 0 <= share <= 1
    beside = subprocess.run([program, "1", "0.2", "0.05"], capture_output=True, text=True, timeout=60, check=True)
    assert list(json.loads(beside.stdout)) == ["slow_shares"]


def test_turns_go_there_and_back(runs):
    runs += [(str(n), 0.0) for n in range(1, 7)]
    a, b = sleeper(), sleeper()
    contender.Turns(cores=1, quiet_s=0, recorded=False)([a, b], 3)
    assert a.metrics == {"steps_per_second": [1, 4, 5]} and b.metrics == {"steps_per_second": [2, 3, 6]}


def test_a_peer_is_given_its_fastest_count_of_threads(runs):
    runs += [("7", 0.0), ("9", 0.0), ("8", 0.0), ("1", 0.0)]
    who = sleeper()
    who.threads = (1, 2, 4)
    contender.Turns(cores=4, quiet_s=0, recorded=False)([who], 1)
    assert who.env["OMP_NUM_THREADS"] == "2" and who.metrics == {"steps_per_second": [1]}


def test_a_ratio_is_as_sure_as_its_rounds():
    assert report.interval([2, 2, 2], [1, 1, 1]) == (2, 2)
    low, high = report.interval([10, 12, 9, 11, 10, 30, 10], [5, 6, 5, 5, 5, 5, 5])
    assert low == pytest.approx(1.8, abs=0.2) and 2 <= high <= 6
    assert report.interval([2, 2], [1, 1]) is None and report.interval([2, None, 2], [1, 1, 1]) is None


BURN = """
import os, subprocess, sys
if sys.argv[1:] == ["below"]:
    kept = b"x" * (64 << 20)
    while sum(os.times()[:2]) < 0.5: pass  # the clock of /proc, whose two parts are each cut to 10 ms
    print("burnt", flush=True)
    sys.stdin.read()
else:
    sys.exit(subprocess.call([sys.executable, "-c", sys.argv[1], "below"]))
"""


def test_what_a_run_uses_is_that_of_all_its_processes(monkeypatch):
    monkeypatch.setattr(bounded.Use, "EVERY", 0.0)
    use = bounded.Use()
    use._memory_due = 0.0
    burner = subprocess.Popen([sys.executable, "-c", BURN, BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert burner.stdout.readline() == b"burnt\n"
        use.look()
    finally:
        burner.communicate()
    assert use.samples[-1][1] >= 0.5 and use.bytes > 64 << 20
    use.samples = [(second, 0.5 * second) for second in range(10)]
    assert use.cpu_between(1.5, 8) == 0.5 and use.cpu_between(1.5, 3.5) is None
    assert contender.used(use, 1.5, 8.5, 7e6) == {"cpu_seconds_per_million_steps": 0.5, "resident_mb": use.bytes / 1e6}


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
    output = "coordinator: here\n" + "".join(
        f"turn {what} {10.0 * (n + 1)}\n" for n, what in enumerate([*2 * watched.WHAT, "held", "over"]))
    steps, updates = 0, []
    # 900 and 990 a second while it goes, 1,000, 1,060 and 1,150 while it is held, much less while it makes up for that.
    speeds = {1: 1000, 2: 500, 3: 900, 4: 1060, 5: 400, 6: 990, 7: 1150}
    for tenth in range(900):
        steps += speeds.get((tenth - 1) // 100, 300) / 10
        updates.append((tenth / 10, steps))
    assert watched.shares(output, updates) == pytest.approx([900 / 1040, 990 / 1120])
    assert watched.shares(output, updates[:400]) == []
    assert watched.shares(output.replace("turn over 80.0\n", ""), updates) == []


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
    monkeypatch.setattr(ours, "program", lambda name, folder="": (name, ""))
    monkeypatch.setattr(probe, "measure", lambda program, cores: machine())

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["run.sh", "--save", "--quiet-seconds=0", *flags])
        with pytest.raises(SystemExit) as ended:
            main.main()
        written = list(tmp_path.rglob("*.md"))
        return ended.value.code, written[0].read_text() if written else None

    return run


def test_a_record_is_of_seven_rounds_and_says_what_the_machine_did(runs, record):
    runs += [(str(n), 0.0) for n in range(1, 8)]
    failures, text = record()
    assert failures is None
    assert "median 4" in text
    assert "- 7 rounds; a turn in which others used more than 0.1 cores, or around which the machine's" in text
    assert text.count("load average") == 2


def test_a_disturbed_comparison_writes_nothing(runs, record):
    runs += [("1", 0.0)] + [("2", 0.4)] * TRIES
    failure, text = record()
    assert "sleeper, round 2: others used 0.40 cores" in failure
    assert text is None


def test_fewer_rounds_are_not_recorded(runs, record, capsys):
    for flags in (["--rounds=6"], ["--quick"]):
        code, text = record(*flags)
        assert (code, text) == (2, None)
        assert "at least 7 rounds" in capsys.readouterr().err
