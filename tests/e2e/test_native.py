"""Games that step in batches: as the README says, and the same from the same seed."""

import re
import shlex

from harness import BIN, guide, training_lines


def returns(run_dir):
    return [line["charts/episodic_return"] for line in training_lines(run_dir) if "charts/episodic_return" in line]


def test_the_readme_is_true(sandbox):
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", guide("envserver", "Games in batches"))
    (sandbox.folder / "build").mkdir()
    (sandbox.folder / "build" / "bin").symlink_to(BIN)
    for command in block.splitlines():
        done = sandbox.run(*shlex.split(command, comments=True)[1:])
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    runs = sandbox.folder / "runs"
    # Who knows nothing breaks two or three bricks, shoots three invaders, loses each
    # round of Pong, and runs into walls.
    assert returns(runs / "breakout")[0] < 4 < 7 < returns(runs / "breakout")[-1]
    assert returns(runs / "invaders")[0] < 8 < 20 < returns(runs / "invaders")[-1]
    assert returns(runs / "pong")[0] < -18 < 10 < returns(runs / "pong")[-1]
    assert returns(runs / "snake")[-1] > 4
    last = training_lines(runs / "snake")[-1]
    assert last["metrics/food"] > 50 and last["metrics/deaths"] < 10
    assert float(re.search(r"mean return (\S+) over 10 episodes", done.stdout)[1]) > 15


def test_the_same_seed_learns_the_same(sandbox):
    words = ("--set=env.num_envs=256", "--set=env.groups=2", "--set=rollout.length=16", "--steps=40k")
    weights = []
    for seed, run_dir in ((1, "one"), (1, "two"), (2, "other")):
        job = sandbox.train("native_breakout", *words, f"--set=seed={seed}", run_dir=run_dir)
        job.succeeds()
        weights.append((job.run_dir / "checkpoints" / "latest" / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_agents_that_do_not_fit_are_refused(sandbox):
    result = sandbox.run("train", "native_snake", "--set", "env.num_envs=1000", "--dry-run")
    assert result.returncode == 2, result.stderr
    assert "256" in result.stderr and "env.num_envs" in result.stderr
