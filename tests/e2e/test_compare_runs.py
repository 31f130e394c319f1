"""Runs compared, by README's commands and by what can be wrong with runs."""

import json
import os
import pty
import re
import shutil
import signal
import xml.etree.ElementTree as ElementTree

import pytest

from harness import BIN, guide, poll, training_lines


def test_the_readme_is_true(sandbox):
    section = guide("launcher", "Compare runs")
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", section)
    said = {}
    for command in block.splitlines():
        said[re.search(r"flotilla (\w+)", command)[1]] = sandbox.bash(command)
    assert "How often an update goes through its rollout." in said["explain"]

    runs = json.loads(sandbox.bash("build/bin/flotilla runs runs/study --json"))
    assert [run["run"] for run in runs] == [f"runs/study/{epochs}-{seed}" for epochs in (4, 8) for seed in (1, 2, 3)]
    for run in runs:
        epochs, seed = run["run"][-3:].split("-")
        assert run["status"] in ("completed", "solved") and run["status_from"] == "summary.json"
        assert (run["configuration"], run["algorithm"], run["env_id"]) == ("cartpole_fast", "ppo", "CartPole-v1")
        assert run["differs"] == {"ppo.epochs": epochs} and run["seed"] == int(seed)
        assert run["score"] > 20 and run["global_steps"] > 0 and run["wall_seconds"] > 0 and run["notes"] == []
    # The table has them by score, the highest first.
    best = max(runs, key=lambda run: run["score"])
    assert said["runs"].splitlines()[1].split()[0] == best["run"]

    for file, words in {"study.svg": "charts/episodic_return on CartPole-v1", "study.html": "losses/entropy on CartPole-v1"}.items():
        text = (sandbox.folder / file).read_text()
        assert words in text and "ppo.epochs=4 (3 runs)" in text and "ppo.epochs=8 (3 runs)" in text
    picture = ElementTree.parse(sandbox.folder / "study.svg")
    drawn = picture.findall(".//{*}g/{*}path[@fill='none']")
    assert len(drawn) == 2 and all(len(line.get("d").split("L")) == 160 for line in drawn)

    # The table's numbers are those of the files.
    sandbox.bash("build/bin/flotilla plot runs/study --out study.md")
    final = [training_lines(sandbox.folder / run["run"])[-1]["charts/episodic_return"] for run in runs[:3]]
    row = next(line for line in (sandbox.folder / "study.md").read_text().splitlines() if "ppo.epochs=4" in line)
    assert float(row.split(" | ")[2]) == pytest.approx(sum(final) / 3, rel=1e-4)


def test_a_running_run_and_a_killed_one(sandbox):
    job = sandbox.train("sleep_scaling", "--set=total_env_steps=100000000")
    poll(lambda: (job.run_dir / "metrics.jsonl").exists() and training_lines(job.run_dir), "it trains")
    (run,) = json.loads(sandbox.run("runs", job.run_dir, "--json").stdout)
    assert run["status"] == "running" and run["status_from"].startswith(f"pid {job.process.pid} on ")
    assert run["global_steps"] > 0
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()
    sandbox.await_no_process()
    # Killed in the middle of a line.
    metrics = (job.run_dir / "metrics.jsonl").read_bytes()
    (job.run_dir / "metrics.jsonl").write_bytes(metrics + metrics[:20])
    listed = sandbox.run("runs", sandbox.folder)
    assert listed.returncode == 0 and "unfinished" in listed.stdout
    assert "ends in the middle of a line" in listed.stderr and len(listed.stderr.splitlines()) == 1
    plotted = sandbox.run("plot", job.run_dir, "--metric=charts/SPS", "--out=sps.svg")
    assert plotted.returncode == 0 and "ends in the middle of a line" in plotted.stderr


@pytest.mark.parametrize(
    "words, says",
    [
        (["runs", "nowhere"], "there is no folder nowhere"),
        (["runs", "file"], "file is a file; expected a run's folder or one that holds runs"),
        (["runs", "--sort=scor"], 'did you mean "score"?'),
        (["plot"], "name runs, or folders of runs"),
        (["plot", "empty"], "there is no run in empty"),
        (["plot", "fresh"], "fresh has no metrics yet"),
        (["plot", "a", "b"], "a is of CartPole-v1 and b of Pendulum-v1"),
        (["plot", "a", "--metric=charts/episodic_retrun"], 'did you mean "charts/episodic_return"?'),
        (["plot", "nan"], "nan has no finite value of charts/episodic_return"),
        (["plot", "a", "--group-by=ppo.epoch"], 'did you mean "ppo.epochs"?'),
        (["plot", "a", "--out=a.pdf"], '--out is "a.pdf"; expected a name that ends in .svg'),
        (["plot", "a", "--out=nowhere/a.svg"], "nowhere/a.svg"),
        (["explain", "ppo.epoch"], 'did you mean "ppo.epochs"?'),
    ],
)
def test_bad_input_is_one_line(sandbox, words, says):
    (sandbox.folder / "file").write_text("")
    (sandbox.folder / "empty").mkdir()
    for name, env, value in [("a", "CartPole-v1", "1.5"), ("b", "Pendulum-v1", "2"), ("nan", "CartPole-v1", "null"), ("fresh", "CartPole-v1", "")]:
        (sandbox.folder / name).mkdir()
        (sandbox.folder / name / "config.textproto").write_text(f'env {{ id: "{env}" }} ppo {{}}')
        line = f'{{"global_step":512,"update":1,"wall_seconds":0.25,"charts/episodic_return":{value}}}\n'
        (sandbox.folder / name / "metrics.jsonl").write_text(line if value else "")
    refused = sandbox.run(*words)
    assert refused.returncode in (1, 2) and says in refused.stderr
    assert len(refused.stderr.replace(f"`flotilla {words[0]} --help` lists the flags\n", "").splitlines()) == 1


def test_a_folder_without_runs_is_no_error(sandbox):
    listed = sandbox.run("runs", ".")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "there is no run in .\n")
    assert json.loads(sandbox.run("runs", ".", "--json").stdout) == []


def test_a_png_where_there_is_a_converter(sandbox):
    (sandbox.folder / "a").mkdir()
    (sandbox.folder / "a" / "config.textproto").write_text("ppo {}")
    (sandbox.folder / "a" / "metrics.jsonl").write_text('{"global_step":512,"charts/episodic_return":1}\n')
    bare = sandbox.run("plot", "a", "--out=a.png", env={"PATH": "/nowhere"})
    assert bare.returncode == 1 and "librsvg2-bin" in bare.stderr and not (sandbox.folder / "a.png").exists()
    if shutil.which("rsvg-convert") is None:
        pytest.skip("no rsvg-convert is installed")
    drawn = sandbox.run("plot", "a", "--out=a.png")
    assert drawn.returncode == 0 and (sandbox.folder / "a.png").read_bytes().startswith(b"\x89PNG")


def test_lines_fit_the_terminal_and_are_whole_in_a_pipe(sandbox):
    for name, epochs in [("a", 4), ("a_run_with_a_rather_long_name", 8)]:
        (sandbox.folder / name).mkdir()
        (sandbox.folder / name / "config.textproto").write_text(f"ppo {{ epochs: {epochs} minibatches: 2 }} rollout {{ length: {16 * epochs} }}")
    assert "rollout.length=128" in sandbox.run("runs", ".").stdout
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(sandbox.folder)
        os.execvpe("bash", ["bash", "-c", f"stty cols 60 && {BIN}/flotilla runs ."], sandbox.env)
    said = b""
    try:
        while piece := os.read(terminal, 65536):
            said += piece
    except OSError:  # the other end is closed
        pass
    os.waitpid(pid, 0)
    table = said.decode().splitlines()[:3]
    assert len(table) == 3 and all(len(line) <= 60 for line in table) and table[0].endswith("...")
