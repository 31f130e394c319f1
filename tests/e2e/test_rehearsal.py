"""Runs on the rehearsal device, whose memory no host thread can touch, learn what they learn on the CPU."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness import BIN, SOURCE, TIMEOUT, read_jsonl, summary, training_lines
from torch_python import TorchPython

REHEARSAL, CPU = ("--set=runtime.device=rehearsal",), ("--set=runtime.device=cpu",)


@pytest.fixture
def sandbox(sandbox):
    """Its learner is the one that knows the rehearsal device, too."""
    folder = sandbox.folder / "programs"
    folder.mkdir()
    for name in ("flotilla-coordinator", "flotilla-envserver"):
        (folder / name).symlink_to(BIN / name)
    (folder / "flotilla-learner").symlink_to(BIN / "flotilla-learner-rehearsal")
    sandbox.env["FLOTILLA_PROGRAM_FOLDER"] = str(folder)
    return sandbox


def start(sandbox, run_dir, updates, learners, *more, config="cartpole_ppo", evaluation=""):
    return sandbox.train(
        sandbox.config(config, evaluation), "--nproc-per-node", learners, f"--set=total_updates={updates}",
        *more, run_dir=run_dir,
    )  # fmt: skip


def trained(sandbox, run_dir, updates, *what, **more):
    """The finished job."""
    job = start(sandbox, run_dir, updates, *what, **more)
    assert job.succeeds()["updates"] == updates
    return job


def latest(job):
    return job.run_dir / "checkpoints" / "latest"


def rehearsed_ranks(job):
    """How many ranks say that they computed on the device; none overwrote what was on its way there."""
    logs = [log.read_text() for log in job.run_dir.glob("logs/rank_*.log")]
    rehearsed = [log for log in logs if "computes on the rehearsal device" in log]
    assert all(re.search(r"^overwritten pinned sources +0$", log, re.MULTILINE) for log in rehearsed)
    return len(rehearsed)


def assert_same_weights(ours, theirs):
    ours, theirs = (load_file(latest(job) / "weights.safetensors") for job in (ours, theirs))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        np.testing.assert_allclose(ours[name], tensor, rtol=0, atol=1e-5, err_msg=name)


MAZE = ("--set=env.num_envs=8", "--set=env.options.maze.episode_steps=24", "--set=rollout.length=32")


@pytest.mark.parametrize(
    "config, updates, learners, more",
    [
        ("cartpole_ppo", 5, 1, ()),
        ("cartpole_ppo", 5, 2, ()),
        ("cartpole_ppo", 5, 2, ("--set=distributed.gradients=BUCKETS",)),
        ("maze_ppo", 3, 2, MAZE),  # its policy has an LSTM
        ("cartpole_impala", 10, 2, ("--set=impala.deterministic_lag=true",)),
        # On the CPU, Adam's steps are made by kernels, which round otherwise than Torch: units that
        # hardly learn anything learn that. Muon's are Torch's.
        ("cartpole_dqn", 20, 2, ("--set=optimizer.type=MUON",)),
    ],
    ids=["ppo", "two-learners", "buckets", "lstm", "impala", "dqn"],
)
def test_learns_what_the_cpu_learns(sandbox, config, updates, learners, more):
    on_cpu = trained(sandbox, "cpu", updates, learners, *CPU, *more, config=config)
    rehearsed = trained(sandbox, "rehearsed", updates, learners, *REHEARSAL, *more, config=config)
    assert rehearsed_ranks(on_cpu) == 0 and rehearsed_ranks(rehearsed) == learners
    assert_same_weights(rehearsed, on_cpu)


# An image, numbers, a discrete value that is embedded and a mask; two choices and two bits to do.
SIGNALS = """
env { id: "gym:task_envs:Signals-v0" num_envs: 8 }
rollout { length: 16 }
model {
  leaf { path: "rgb" hidden: [32] conv_channels: [8, 16, 16] }
  leaf { path: "hint" encoder: EMBEDDING hidden: [4] }
  hidden: [32]
}
metrics { tensorboard: false }
"""
ALGORITHMS = {
    # Adam's steps are the CPU's kernels': see above.
    "ppo": "ppo { epochs: 2 minibatches: 2 } optimizer { epsilon: 1e-3 }",
    "lstm": "ppo { epochs: 2 minibatches: 2 } optimizer { type: MUON }",
    "impala": "impala { deterministic_lag: true } optimizer { type: MUON }",
    "dqn": "dqn { n_step: 2 batch_size: 32 learning_starts: 0 replay_capacity: 1000 priority_alpha: 0.6 } optimizer { type: MUON }",
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_several_leaves_and_choices_are_learned_as_on_the_cpu(sandbox, algorithm):
    sandbox.env["PYTHONPATH"] = str(SOURCE / "tests" / "envserver")
    config = sandbox.folder / "signals.textproto"
    config.write_text(SIGNALS + ALGORITHMS[algorithm])
    more = ("--set=model.recurrent=LSTM", "--set=model.recurrent_size=16") if algorithm == "lstm" else ()

    def learned(name, device):
        job = sandbox.train(config, "--nproc-per-node=2", "--set=total_updates=4", *device, *more, run_dir=name)
        result = job.succeeds()
        assert result["updates"] == 4 and result["failed_rows"] == 0
        return job

    on_cpu, rehearsed = learned("cpu", CPU), learned("rehearsed", REHEARSAL)
    assert rehearsed_ranks(on_cpu) == 0 and rehearsed_ranks(rehearsed) == 2
    assert_same_weights(rehearsed, on_cpu)


NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh())
        self.policy, self.value = torch.nn.Linear(32, 2), torch.nn.Linear(32, 1)

    def forward(self, observation: torch.Tensor):
        x = self.trunk(observation)
        return self.policy(x), self.value(x)

torch.manual_seed(1)
torch.jit.script(Net()).save("net.pt")
"""


@pytest.mark.parametrize("config", ["cartpole_ppo", "cartpole_impala"])
def test_a_network_of_ones_own_learns_what_it_learns_on_the_cpu(sandbox, tmp_path_factory, config):
    TorchPython(tmp_path_factory.mktemp("stand_ins")).run(NETWORK, sandbox.folder)
    more = [f"--set=model.torchscript={sandbox.folder / 'net.pt'}", "--set=optimizer.type=MUON"]
    if config == "cartpole_impala":
        more.append("--set=impala.deterministic_lag=true")
    on_cpu = trained(sandbox, "cpu", 4, 2, *CPU, *more, config=config)
    rehearsed = trained(sandbox, "rehearsed", 4, 2, *REHEARSAL, *more, config=config)
    assert rehearsed_ranks(on_cpu) == 0 and rehearsed_ranks(rehearsed) == 2
    assert_same_weights(rehearsed, on_cpu)
    assert played(rehearsed) == played(on_cpu)


@pytest.mark.parametrize("device", [REHEARSAL, CPU], ids=["rehearsal", "cpu"])
def test_a_checkpoint_of_the_device_goes_on_there_and_on_the_cpu(sandbox, device):
    first = trained(sandbox, "first", 3, 2, *REHEARSAL)
    again = trained(sandbox, "again", 6, 2, *device, f"--resume={latest(first)}")
    first_on_cpu = trained(sandbox, "first-cpu", 3, 2, *CPU)
    assert_same_weights(again, trained(sandbox, "again-cpu", 6, 2, *CPU, f"--resume={latest(first_on_cpu)}"))


def evaluations(job):
    lines = read_jsonl(job.run_dir / "metrics.jsonl")
    return [line["eval/mean_return"] for line in lines if "eval/mean_return" in line]


def played(job):
    result = job.sandbox.run("evaluate", job.run_dir, "--episodes", 5, "--json")
    assert result.returncode == 0, result.stderr
    return [(episode["return"], episode["length"]) for episode in json.loads(result.stdout)["episodes"]]


def test_evaluates_as_the_cpu_does(sandbox):
    """While it trains; above, afterwards: which episodes those are goes by how many evaluations there were, and how many
    were over when a run ended is a matter of time."""
    evaluation = "evaluation { every_updates: 2 episodes: 5 num_envs: 5 }"
    on_cpu = trained(sandbox, "cpu", 4, 1, *CPU, evaluation=evaluation)
    rehearsed = trained(sandbox, "rehearsed", 4, 1, *REHEARSAL, evaluation=evaluation)
    assert rehearsed_ranks(rehearsed) == 1
    assert len(evaluations(on_cpu)) == 2 and evaluations(rehearsed) == evaluations(on_cpu)


def test_a_preempted_run_goes_on(sandbox):
    job = start(sandbox, "run", 100000, 2, *REHEARSAL)
    job.await_update(5)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 75, job.diagnosis()
    done = summary(job.run_dir)["updates"]
    result = sandbox.train("--resume", f"--set=total_updates={done + 3}", run_dir="run").succeeds()
    assert result["updates"] == done + 3
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, done + 4))


@pytest.mark.parametrize("rank", [1, 0])
def test_a_killed_learner_is_replaced(sandbox, rank):
    job = start(sandbox, "run", 1000000, 2, *REHEARSAL)
    before = job.await_update(5)
    os.kill(before.learner[rank].pid, signal.SIGKILL)
    job.await_status(lambda s: s.generation == 2 and s.world_size == 2 and s.update > before.update, "training again")
    updates = job.completes_after(300, 2 * 4 * 128)
    result = job.succeeds()
    assert result["status"] == "completed" and result["world_size"] == 2
    assert result["restarts"]["learner"] == 1 and result["updates"] == updates
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1
    assert [line["update"] for line in training_lines(job.run_dir)] == list(range(1, updates + 1))


def test_the_shipped_learner_has_no_such_device(sandbox):
    del sandbox.env["FLOTILLA_PROGRAM_FOLDER"]
    job = start(sandbox, "run", 1, 1, *REHEARSAL)
    assert job.wait() == 2, job.diagnosis()
    assert 'runtime.device is "rehearsal", which only the tests\' learner has' in job.output()


PROVE = SOURCE / "tests" / "gpu"


def test_what_proves_gpus_proves_the_rehearsal_device(sandbox):
    def prove(*words):
        command = [sys.executable, PROVE / "prove_runs.py", "--device=rehearsal", f"--flotilla={BIN / 'flotilla'}", "--out=r.md", *words]
        done = subprocess.run(command, cwd=sandbox.folder, env=sandbox.env, capture_output=True, text=True, timeout=3 * TIMEOUT)
        return done.returncode, (sandbox.folder / "r.md").read_text()

    code, report = prove("--only", "same", "learning")
    assert code == 0 and "All passed." in report
    assert len(re.findall(r"^- `\w+`: weights at most \d\.\de-\d\d apart after \d+ updates \(\d+ s\)$", report, re.M)) == 6
    assert re.search(r"^- `cartpole_fast`: [45]\d\d\.\d after [\d,]+ steps, [\d.]+ s \(\d+ s\)$", report, re.M)

    # This machine has no NCCL for it, and no time.
    code, report = prove("--only", "nccl")
    assert code == 1 and "**Something failed.**" in report
    assert report.count("**FAILED**") == 2 and "distributed.backend is NCCL, which needs a GPU" in report
    code, report = prove("--only", "same", "--minutes=0")
    assert code == 1 and report.count("**FAILED**: the 0.0 minutes are over") == 6


def test_without_a_gpu_there_is_nothing_to_prove(sandbox):
    nothing = sandbox.folder / "path"
    nothing.mkdir()
    (nothing / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (nothing / "nvidia-smi").chmod(0o755)
    env = sandbox.env | {"PATH": f"{nothing}:{os.environ['PATH']}"}
    for device, says in (("cuda", "nvidia-smi lists no GPU"), ("gpu", "--device is 'gpu', want rehearsal or cuda")):
        done = subprocess.run([PROVE / "prove.sh", "--device", device], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and says in done.stderr and not done.stdout
