"""`flotilla evaluate RUN --follow`: every checkpoint, once, beside training and after it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from harness import BIN, guide, poll, read_jsonl

EPISODES = 4


class Follower:
    def __init__(self, sandbox, run_dir, *words):
        self.sandbox = sandbox
        self.out = open(sandbox.folder / "follow.out", "ab+")
        self.err = open(sandbox.folder / "follow.err", "ab+")
        command = [BIN / "flotilla", "evaluate", run_dir, "--follow", f"--episodes={EPISODES}", *words]
        self.process = subprocess.Popen(
            command, cwd=sandbox.folder, env=sandbox.env, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err
        )

    def said(self):
        self.err.seek(0)
        return self.err.read().decode()

    def ends(self, timeout=120):
        return self.process.wait(timeout)


def lines_of(run_dir):
    path = run_dir / "evaluations.jsonl"
    return read_jsonl(path) if path.exists() else []


def names_of(run_dir):
    return [line["checkpoint"] for line in lines_of(run_dir)]


def kept_by(run_dir):
    return sorted(folder.name for folder in (run_dir / "checkpoints").glob("step_*"))


@pytest.fixture(scope="module")
def followed(shared_sandbox):
    """A run and a follower of it that was killed and started again."""
    job = shared_sandbox.train(
        "cartpole_fast", "--steps=1000000000", "--set=evaluation.stop_return=1e9", "--set=evaluation.every_updates=1000000",
        "--set=checkpoint.every_updates=20", "--set=checkpoint.keep=3",
    )  # fmt: skip
    job.poll(lambda: kept_by(job.run_dir), "a checkpoint")
    follower = Follower(shared_sandbox, job.run_dir)
    job.poll(lambda: len(lines_of(job.run_dir)) >= 2, "two evaluations")
    poll(lambda: any("--evaluate=" in line for line in shared_sandbox.processes().values()), "a player")
    follower.process.kill()
    follower.ends()
    poll(lambda: not any("--evaluate=" in line for line in shared_sandbox.processes().values()), "the player is gone too")
    # Of a write that the kill came into.
    with open(job.run_dir / "evaluations.jsonl", "a") as file:
        file.write('{"checkpoint": "step_0000')
    before = lines_of(job.run_dir)

    follower = Follower(shared_sandbox, job.run_dir)
    job.poll(lambda: len(lines_of(job.run_dir)) > len(before), "the second follower's first")
    second = shared_sandbox.run("evaluate", job.run_dir, "--follow")
    stopped = shared_sandbox.run("stop", "--run-dir", job.run_dir)
    assert stopped.returncode == 0, stopped.stderr
    assert job.process.wait(60) == 0, job.diagnosis()
    assert follower.ends() == 0, follower.said()
    shared_sandbox.await_no_process()
    job.before, job.second = before, second
    return job


def test_every_checkpoint_is_evaluated_once_over_a_kill(followed):
    run_dir = followed.run_dir
    names = names_of(run_dir)
    assert len(names) == len(set(names)) and names == sorted(names)
    assert lines_of(run_dir)[: len(followed.before)] == followed.before  # only appended to
    kept = set(kept_by(run_dir))
    assert kept and kept <= set(names)
    assert len(names) > len(kept)  # those, too, that were removed since
    assert not (run_dir / ".following").exists()


def test_results_are_those_of_evaluate(followed):
    lines = {line["checkpoint"]: line for line in lines_of(followed.run_dir)}
    for name in (kept_by(followed.run_dir)[0], kept_by(followed.run_dir)[-1]):
        line = lines[name]
        folder = followed.run_dir / "checkpoints" / name
        played = json.loads(followed.sandbox.run("evaluate", folder, f"--episodes={EPISODES}", "--json").stdout)
        for number in ("mean_return", "min_return", "max_return"):
            assert line[f"eval/{number}"] == played[number]
        progress = json.loads((folder / "progress.json").read_text())
        for number in ("global_step", "update", "wall_seconds"):
            assert line[number] == progress[number]
        assert line["episodes"] == EPISODES and line["seconds"] > 0
        lengths = [episode["length"] for episode in played["episodes"]]
        assert line["eval/mean_length"] == sum(lengths) / EPISODES


def test_two_followers_do_not_work_twice(followed):
    assert followed.second.returncode == 1 and followed.second.stdout == ""
    assert len(followed.second.stderr.splitlines()) == 1 and "is being followed already" in followed.second.stderr


def test_when_all_is_evaluated_it_ends_at_once(followed):
    before = (followed.run_dir / "evaluations.jsonl").read_bytes()
    again = followed.sandbox.run("evaluate", followed.run_dir, "--follow", "--json")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert (followed.run_dir / "evaluations.jsonl").read_bytes() == before


def test_python_has_them_beside_the_runs_own(followed):
    package = BIN.parent / "share" / "flotilla" / "python"
    script = "import flotilla.run, json, sys; print(json.dumps(flotilla.run.Run(sys.argv[1]).evaluations()))"
    said = subprocess.run([sys.executable, "-c", script, followed.run_dir], env=os.environ | {"PYTHONPATH": str(package)}, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert [row["checkpoint"] for row in found if row["source"] == "follow"] == names_of(followed.run_dir)
    assert all("eval/mean_return" in row for row in found)


def test_the_dashboard_has_a_curve_of_them(followed):
    package = BIN.parent / "share" / "flotilla" / "python"
    script = """
import json, sys
from flotilla_watch.watched_run import WatchedRun
run = WatchedRun(0, "run", sys.argv[1])
while run.poll_metrics() or run.poll_followed():
    pass
print(json.dumps(run.series["follow/mean_return"].since(0)))
"""
    said = subprocess.run([sys.executable, "-c", script, followed.run_dir], env=os.environ | {"PYTHONPATH": str(package)}, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    steps, _, values = json.loads(said.stdout)
    lines = lines_of(followed.run_dir)
    assert steps == [line["global_step"] for line in lines]
    assert values == pytest.approx([line["eval/mean_return"] for line in lines], rel=1e-5)


def test_a_damaged_checkpoint_is_left_out_and_told(followed, tmp_path):
    run_dir = followed.sandbox.folder / "damaged"
    subprocess.run(["cp", "-a", followed.run_dir, run_dir], check=True)
    (run_dir / "evaluations.jsonl").unlink()
    kept = kept_by(run_dir)
    (run_dir / "checkpoints" / kept[0] / "state.safetensors").unlink()
    result = followed.sandbox.run("evaluate", run_dir, "--follow", "--episodes=1", "--json")
    assert result.returncode == 1
    assert [json.loads(line)["checkpoint"] for line in result.stdout.splitlines()] == kept[1:] == names_of(run_dir)
    assert len(result.stderr.splitlines()) == 1 and kept[0] in result.stderr and "state.safetensors is missing" in result.stderr


def test_ctrl_c_ends_it(followed):
    run_dir = followed.sandbox.folder / "going"
    subprocess.run(["cp", "-a", followed.run_dir, run_dir], check=True)
    (run_dir / "summary.json").unlink()  # as of a run that goes on
    newest = lines_of(run_dir)[-1]["checkpoint"]
    lines = (run_dir / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (run_dir / "evaluations.jsonl").write_text("".join(lines[:-1]))
    follower = Follower(followed.sandbox, run_dir)
    poll(lambda: newest in names_of(run_dir), "the newest one's evaluation")
    assert follower.process.poll() is None
    follower.process.send_signal(signal.SIGINT)
    assert follower.ends(20) == 130
    followed.sandbox.await_no_process()


def test_what_is_no_run_is_said_in_a_line(followed):
    sandbox = followed.sandbox
    checkpoint = followed.run_dir / "checkpoints" / "latest"
    for what, why in (("nothing", "is no run's folder"), (checkpoint, "is a checkpoint; --follow wants its run's folder")):
        result = sandbox.run("evaluate", what, "--follow")
        assert result.returncode == 2 and result.stdout == ""
        assert len(result.stderr.splitlines()) == 1 and why in result.stderr
    assert not (sandbox.folder / "nothing").exists()


def test_the_guide_is_true(followed):
    block = guide("launcher", "Evaluate beside a run").split("```")[1].strip()
    words = block.split("#")[0].split()
    assert words[:2] == ["build/bin/flotilla", "evaluate"] and "--follow" in words
    words = [str(followed.run_dir) if word == "runs/first" else word for word in words[1:]]
    assert followed.sandbox.run(*words).returncode == 0
