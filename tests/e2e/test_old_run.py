"""A run of an earlier Flotilla: today's programs play its policy and go on with it.

data/run_of_one_vector is what `flotilla train cartpole_ppo --nproc-per-node 2 --set total_env_steps=8192` of commit
9f21a67 left, from before the learner knew spaces of several leaves: config.textproto, summary.json, metrics.jsonl and
its checkpoint. It had no topology.textproto, no token and no episode_window yet, and stays as it is.
"""

import json
import pathlib
import shutil

import pytest
from safetensors.numpy import load_file

from harness import checkpoint_files, summary, training_lines

DATA = pathlib.Path(__file__).parent / "data" / "run_of_one_vector"
UPDATE = 2 * 4 * 128
# What its own `flotilla evaluate --episodes 5` said.
RETURNS = [58, 73, 76, 81, 97]


@pytest.fixture
def old_run(sandbox):
    return shutil.copytree(DATA, sandbox.folder / "old", symlinks=True)


def test_its_policy_plays_as_it_did(sandbox, old_run):
    result = sandbox.run("evaluate", old_run, "--episodes", 5, "--json")
    assert result.returncode == 0, result.stderr
    assert [episode["return"] for episode in json.loads(result.stdout)["episodes"]] == RETURNS


def test_what_is_loaded_is_what_it_saved_bit_for_bit(sandbox, old_run):
    """Resumed with no update left, a run saves what it loaded."""
    checkpoint = old_run / "checkpoints" / "latest"
    job = sandbox.train(old_run / "config.textproto", "--resume", checkpoint, "--nproc-per-node", 2, run_dir="copy")
    result = job.succeeds()
    assert result["updates"] == 8 and result["parameters_sha256"] == summary(DATA)["parameters_sha256"]
    copy = job.run_dir / "checkpoints" / "latest"
    assert checkpoint_files(copy)["weights.safetensors"] == checkpoint_files(checkpoint)["weights.safetensors"]
    before, after = load_file(checkpoint / "state.safetensors"), load_file(copy / "state.safetensors")
    assert before.keys() == after.keys() - {"episode_window"}
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_it_goes_on_in_its_own_folder(sandbox, old_run):
    words = ("--resume", "--nproc-per-node", 2, "--set", f"total_env_steps={12 * UPDATE}")
    job = sandbox.train(*words, run_dir="old")
    result = job.succeeds()
    assert result["status"] == "completed" and result["world_size"] == 2 and result["updates"] == 12
    assert len(set(result["parameters_sha256"])) == 1
    assert result["episodes"] > summary(DATA)["episodes"]
    assert [line["update"] for line in training_lines(old_run)] == list(range(1, 13))
    assert (old_run / "metrics.jsonl").read_bytes().startswith((DATA / "metrics.jsonl").read_bytes())
    played = sandbox.run("evaluate", old_run, "--episodes", 5, "--json")
    assert played.returncode == 0, played.stderr
    assert len(json.loads(played.stdout)["episodes"]) == 5
