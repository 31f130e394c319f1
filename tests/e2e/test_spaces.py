"""Observations and actions of every kind, from an environment to what was learned and back."""

import re

import pytest

from harness import SOURCE, guide, summary, training_lines

TASKS = {"PYTHONPATH": str(SOURCE / "tests" / "envserver")}
SIGNALS = """
total_env_steps: {steps}
env {{ id: "gym:task_envs:Signals-v0" num_envs: 32 }}
rollout {{ length: 32 }}
model {{
  leaf {{ path: "rgb" hidden: [32] conv_channels: [8, 16, 16] }}
  leaf {{ path: "hint" encoder: EMBEDDING hidden: [4] }}
  hidden: [64]
}}
optimizer {{ learning_rate: 2e-3 epsilon: 1e-5 }}
{algorithm}
evaluation {{ every_updates: 20 episodes: 50 num_envs: 25 }}
"""
# A random player of allowed actions gets 8 of 16 for each episode, a perfect one 16. IMPALA's run is long enough to say
# that what is forbidden is never done: 100,000 steps, at each of which it easily could be.
ALGORITHMS = {
    "ppo": ("ppo { epochs: 2 minibatches: 4 discount: 0 entropy_cost: 0.001 }", 30720, 13),
    "impala": ("impala { discount: 0 entropy_cost: 0.001 deterministic_lag: true }", 100352, 12),
    "dqn": (
        "dqn { discount: 0 n_step: 1 updates_per_rollout: 20 batch_size: 64 learning_starts: 2000"
        " replay_capacity: 20000 epsilon_decay_steps: 5000 target_update_every: 100 }",
        30720,
        13,
    ),
}


@pytest.fixture
def signals(sandbox, tmp_path):
    sandbox.env |= TASKS

    def train(algorithm, *words, steps=None):
        text, default_steps, _ = ALGORITHMS[algorithm]
        config = tmp_path / f"{algorithm}.textproto"
        config.write_text(SIGNALS.format(steps=steps or default_steps, algorithm=text))
        return sandbox.train(str(config), *words)

    return train


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_images_vectors_masks_and_several_choices_are_learned(signals, algorithm):
    job = signals(algorithm)
    result = job.succeeds(timeout=300)
    assert result["status"] == "completed"
    # The environment fails a row that does what is forbidden.
    assert result["failed_rows"] == 0
    assert result["eval_mean_return"] >= ALGORITHMS[algorithm][2]


@pytest.mark.parametrize("recurrent", ["ppo", "impala", "segments"])
def test_with_memory_on_two_learners_a_run_resumes(signals, sandbox, recurrent):
    words = ["--set=model.recurrent=LSTM", "--set=model.recurrent_size=16", "--set=evaluation.every_updates=0"]
    if recurrent == "segments":
        words.append("--set=ppo.minibatch=SEGMENTS")
    algorithm = "impala" if recurrent == "impala" else "ppo"
    job = signals(algorithm, "--nproc-per-node=2", "--set=checkpoint.every_updates=1", *words, steps=4 * 2048)
    result = job.succeeds()
    assert result["failed_rows"] == 0 and len(set(result["parameters_sha256"])) == 1
    resumed = sandbox.train("--resume", "--nproc-per-node=2", f"--set=total_env_steps={6 * 2048}")
    result = resumed.succeeds()
    assert result["failed_rows"] == 0 and len(set(result["parameters_sha256"])) == 1
    assert training_lines(resumed.run_dir)[-1]["update"] == 6
    assert summary(resumed.run_dir)["global_steps"] == 6 * 2048


ROOMS = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Rooms(gymnasium.Env):
    observation_space = Dict(rgb=Box(0, 255, (64, 64, 3), np.uint8), room=Discrete(50))
    action_space = Discrete(4)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return {"rgb": np.zeros((64, 64, 3), np.uint8), "room": 0}, {}

    def step(self, action):
        return {"rgb": np.zeros((64, 64, 3), np.uint8), "room": 0}, 0.0, False, False, {}


gymnasium.register("Rooms-v0", entry_point=Rooms)
"""


def test_the_guides_leaves_are_encoded_on_their_own_terms(sandbox):
    (sandbox.folder / "rooms.py").write_text(ROOMS)
    _, model = re.findall(r"(?ms)^```\n(.*?)^```$", guide("envserver", "Any Gymnasium environment"))
    config = sandbox.folder / "rooms.textproto"
    config.write_text(f'env {{ id: "gym:rooms:Rooms-v0" num_envs: 4 }}\n{model}ppo {{ }}\n')
    result = sandbox.run("train", config, "--dry-run", env={"PYTHONPATH": str(sandbox.folder)})
    assert result.returncode == 0, result.stderr
