"""Evaluation goes on beside training, in no collective's time."""

import hashlib
import json
import re
import shutil
import statistics
import subprocess

import pytest
from safetensors.numpy import load_file, save_file

from harness import BIN, TIMEOUT, read_jsonl, training_lines
from torch_python import TorchPython

ROWS, LENGTH, UPDATES = 4, 8, 50


def test_an_evaluation_may_take_longer_than_a_collective(sandbox):
    # An episode sleeps for 6 s, three times what a collective may take.
    job = sandbox.train(
        "sleep_scaling", "--nproc-per-node=2", "--set=env.num_workers=1", "--set=env.groups=1",
        f"--set=env.num_envs={ROWS}", f"--set=rollout.length={LENGTH}", "--set=env.options.sleep.step_ms=10",
        "--set=env.options.sleep.episode_steps=600", f"--set=total_env_steps={2 * UPDATES * ROWS * LENGTH}",
        "--set=distributed.timeout_seconds=2", "--set=evaluation.every_updates=2", "--set=evaluation.episodes=2",
        "--set=evaluation.num_envs=2",
    )  # fmt: skip
    result = job.succeeds()
    assert result["status"] == "completed" and result["restarts"] == {"learner": 0, "env_worker": 0}
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, UPDATES + 1))
    evaluations = [line for line in read_jsonl(job.run_dir / "metrics.jsonl") if "eval/mean_return" in line]
    first = next(line for line in evaluations if line["eval/update"] == 2)
    assert first["update"] > 10  # training went on meanwhile
    assert evaluations[-1]["eval/update"] == UPDATES  # and waited for the last one


def test_the_untrained_policy_may_be_evaluated_and_cannot_end_the_run(sandbox):
    job = sandbox.train(
        "cartpole_fast", "--set=evaluation.at_start=true", "--set=evaluation.every_updates=1000",
        "--set=evaluation.stop_return=1", "--set=evaluation.episodes=4", "--set=evaluation.num_envs=4",
        f"--set=total_env_steps={100 * 64 * 32}",
    )  # fmt: skip
    assert job.wait() == 2 and "evaluation.min_training_return" in job.output()

    evaluation = "evaluation { at_start: true every_updates: 1000 stop_return: 1 episodes: 4 num_envs: 4 }"
    job = sandbox.train(
        sandbox.config("cartpole_fast", evaluation), "--nproc-per-node=2", f"--set=total_env_steps={100 * 4096}",
        run_dir="start",
    )  # fmt: skip
    assert job.succeeds()["updates"] == 100
    evaluations = [line for line in read_jsonl(job.run_dir / "metrics.jsonl") if "eval/mean_return" in line]
    assert [line["eval/update"] for line in evaluations] == [0, 100]
    assert evaluations[0]["eval/mean_return"] >= 1  # it would have, later


@pytest.fixture(scope="module")
def maze(shared_sandbox):
    """A run whose episodes have metrics of their own."""
    job = shared_sandbox.train(
        "maze_ppo", "--set=model.recurrent=NONE", "--set=env.options.maze.size=5", "--set=evaluation.every_updates=0",
        f"--set=total_env_steps={10 * 64 * 128}",
    )  # fmt: skip
    job.succeeds()
    return job


def test_evaluate_prints_every_episode_as_json(maze):
    before = (maze.run_dir / "metrics.jsonl").read_bytes()
    result = maze.sandbox.run("evaluate", maze.run_dir, "--episodes", 7, "--json")
    assert result.returncode == 0, result.stderr
    played = json.loads(result.stdout)
    assert played.keys() == {"env_id", "checkpoint", "mean_return", "min_return", "max_return", "episodes"}
    assert played["env_id"] == "Maze"
    assert (maze.run_dir / "checkpoints" / "latest").samefile(played["checkpoint"])
    assert len(played["episodes"]) == 7
    for episode in played["episodes"]:
        assert episode.keys() == {"return", "length", "spl", "success"}
        assert 1 <= episode["length"] <= 128
        assert episode["return"] == episode["success"] == (episode["spl"] > 0)
        assert episode["success"] or episode["length"] == 128
    returns = [episode["return"] for episode in played["episodes"]]
    assert played["mean_return"] == pytest.approx(statistics.mean(returns))
    assert played["min_return"] == min(returns) and played["max_return"] == max(returns)
    assert (maze.run_dir / "metrics.jsonl").read_bytes() == before  # it only looks


def test_evaluate_says_it_in_one_line(maze):
    result = maze.sandbox.run("evaluate", maze.run_dir / "checkpoints" / "latest", "--episodes", 3)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"Maze  mean return \d\.\d\d over 3 episodes \(\d\.0 to \d\.0\)\n", result.stdout)


def test_a_run_whose_best_is_not_its_newest_says_so(maze):
    folder = maze.sandbox.folder / "copy"
    shutil.copytree(maze.run_dir, folder, symlinks=True)
    newest = (folder / "checkpoints" / "latest").resolve()
    best = folder / "checkpoints" / "best"
    best.unlink(missing_ok=True)
    best.symlink_to(newest.name)
    words = ("evaluate", folder, "--episodes", 3)
    assert "best" not in maze.sandbox.run(*words).stderr
    shutil.copytree(newest, folder / "checkpoints" / "step_000000000001")
    best.unlink()
    best.symlink_to("step_000000000001")
    said = maze.sandbox.run(*words).stderr
    assert f"newest checkpoint, {newest.name}; step_000000000001 evaluated best" in said
    assert said.rstrip().endswith(f"flotilla evaluate {best}")
    assert maze.sandbox.run("evaluate", best, "--episodes", 3).stderr == ""
    assert maze.sandbox.run(*words, "--json").stderr == ""


# ---- Of a checkpoint that lies elsewhere


def pushed(run, folder):
    """What `flotilla push` writes of a run's checkpoint: all that a policy needs."""
    checkpoint = run / "checkpoints" / "latest"
    folder.mkdir(parents=True)
    state = load_file(checkpoint / "state.safetensors")
    save_file({name: tensor for name, tensor in state.items() if name.startswith("normalizer.")}, folder / "state.safetensors")
    for name in ("weights.safetensors", "progress.json", "config.textproto"):
        shutil.copyfile(checkpoint / name, folder / name)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


def played(sandbox, path):
    result = sandbox.run("evaluate", path, "--episodes", 5, "--json")
    assert result.returncode == 0, result.stderr
    episodes = json.loads(result.stdout)["episodes"]
    return sorted((episode["return"], episode["length"]) for episode in episodes)


@pytest.mark.parametrize("scales", ("true", "false"))
def test_what_was_pushed_plays_as_its_run_does(sandbox, scales):
    job = sandbox.train(
        sandbox.config("cartpole_fast"), f"--set=model.normalize_observations={scales}", f"--set=total_env_steps={20 * 64 * 32}"
    )  # fmt: skip
    job.succeeds()
    hub = pushed(job.run_dir, sandbox.folder / "hub")
    state = load_file(hub / "state.safetensors")
    assert ("normalizer.observation_sums" in state) == (scales == "true")
    assert played(sandbox, hub) == played(sandbox, job.run_dir)


def test_earlier_selves_are_missing_in_one_line(sandbox):
    job = sandbox.train(
        "diagnostics", "--set=env.id=Selfplay", "--set=selfplay.pool_size=2", "--set=evaluation.every_updates=0",
        "--set=total_env_steps=4096",
    )  # fmt: skip
    job.succeeds()
    hub = pushed(job.run_dir, sandbox.folder / "hub")
    refused = sandbox.run("evaluate", hub, "--episodes", 2)
    assert refused.returncode == 2
    (line,) = [line for line in refused.stderr.splitlines() if "the checkpoint lacks the earlier selves" in line]
    assert '"selfplay.weights"' in line and "name the run's folder" in line
    # The newest weights decide alone, as `flotilla export` records them.
    learner = [BIN / "flotilla-learner", f"--evaluate={hub}", "--decisions=20", f"--output={sandbox.folder / 'decisions'}"]
    done = subprocess.run(learner, cwd=sandbox.folder, env=sandbox.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    assert len(load_file(sandbox.folder / "decisions")["row"]) >= 20


NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.policy, self.value = torch.nn.Linear(inputs, 2), torch.nn.Linear(inputs, 1)

    def forward(self, observation: torch.Tensor):
        return self.policy(observation), self.value(observation)

torch.jit.script(Net(4)).save("net.pt")
torch.jit.script(Net(5)).save("other.pt")
"""


def test_a_network_is_found_with_its_checkpoint_and_not_above_another_folder(sandbox, tmp_path_factory):
    python = TorchPython(tmp_path_factory.mktemp("stand_ins"))
    python.run(NETWORK, sandbox.folder)
    job = sandbox.train(
        sandbox.config("cartpole_fast"), "--set=model.torchscript=net.pt", f"--set=total_env_steps={5 * 64 * 32}"
    )  # fmt: skip
    job.succeeds()
    as_trained = played(sandbox, job.run_dir)
    # Two levels above lies a network of somebody else.
    hub = pushed(job.run_dir, sandbox.folder / "models" / "hub")
    shutil.copyfile(sandbox.folder / "other.pt", sandbox.folder / "network.pt")
    assert played(sandbox, hub) == as_trained
    # The run is gone from where its configuration says; what was copied has its network beside it.
    moved = sandbox.folder / "moved"
    shutil.move(job.run_dir, moved)
    shutil.copyfile(moved / "network.pt", hub / "network.pt")
    assert played(sandbox, hub) == as_trained
    assert played(sandbox, moved) == played(sandbox, moved / "checkpoints" / "latest") == as_trained
    followed = sandbox.run("evaluate", moved, "--follow", "--episodes", 1)
    assert followed.returncode == 0, followed.stderr
    assert read_jsonl(moved / "evaluations.jsonl")
