"""A network of one's own, from the Python that makes it back to Python."""

import os
import re
import shutil
import signal
import subprocess

import pytest
from safetensors.numpy import load_file

from harness import BIN, SOURCE, TIMEOUT, guide, summary, training_lines
from torch_python import TorchPython

MLP = """
import torch

class Net(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(inputs, 32), torch.nn.Tanh())
        self.policy, self.value = torch.nn.Linear(32, outputs), torch.nn.Linear(32, 1)

    def forward(self, observation: torch.Tensor):
        x = self.trunk(observation)
        return self.policy(x), self.value(x)

"""
UPDATE = 64 * 32  # steps of one learner, as cartpole_fast has them


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return TorchPython(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture
def net(sandbox, python):
    """Makes the file of an MLP, and says where it is."""

    def make(inputs=4, outputs=2, name="net.pt", seed=1):
        path = sandbox.folder / name
        python.run(MLP + f"torch.manual_seed({seed})\ntorch.jit.script(Net({inputs}, {outputs})).save({str(path)!r})", sandbox.folder)
        return path

    return make


def train(sandbox, updates, *words, config=None, learners=2, **kwargs):
    return sandbox.train(
        config or sandbox.config("cartpole_fast"), "--nproc-per-node", learners,
        f"--set=total_env_steps={updates * learners * UPDATE}", *words, **kwargs,
    )  # fmt: skip


def test_the_readme_is_true(sandbox, python):
    section = guide("learner", "Bring your own network")
    blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", section)
    assert [language for language, _ in blocks] == ["python", "", "python"]
    scripts = ""
    for language, text in blocks:
        if language == "python":
            scripts += text  # the second goes on from the first
            python.run(scripts, sandbox.folder)
            continue
        (sandbox.folder / "build").mkdir()
        (sandbox.folder / "build" / "bin").symlink_to(BIN)
        for command in text.splitlines():
            said = subprocess.run(
                ["bash", "-c", command], cwd=sandbox.folder, env=sandbox.env, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            assert said.returncode == 0, f"{command}\n{said.stdout}"
    result = summary(sandbox.folder / "runs" / "own")
    assert len(set(result["parameters_sha256"])) == 1 and len(result["parameters_sha256"]) == 2
    assert result["mean_return"] > 150  # 22 where nothing is learned


def test_a_killed_learner_comes_back_though_the_file_is_gone(sandbox, net):
    path = net()
    job = train(sandbox, 1000000, f"--set=model.torchscript={path}")
    before = job.await_update(10)
    path.unlink()
    os.kill(before.learner[1].pid, signal.SIGKILL)
    job.await_status(lambda s: s.generation == 2 and s.world_size == 2 and s.update > before.update, "training again")
    updates = job.completes_after(50, 2 * UPDATE)
    result = job.succeeds()
    assert result["restarts"]["learner"] == 1 and result["updates"] == updates
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1


def test_a_run_that_was_moved_resumes_and_plays(sandbox, net, python):
    path = net()
    first = path.read_bytes()
    train(sandbox, 6, "--set=model.torchscript=net.pt", learners=1).succeeds()
    run, moved = sandbox.folder / "run", sandbox.folder / "moved"
    assert (run / "network.pt").read_bytes() == first
    shutil.move(run, moved)
    path.unlink()
    played = sandbox.run("evaluate", moved, "--episodes", 3)
    assert played.returncode == 0, played.stderr

    job = sandbox.train("--resume", f"--set=total_env_steps={9 * UPDATE}", run_dir="moved")
    assert job.succeeds()["updates"] == 9
    assert [line["update"] for line in training_lines(moved)] == list(range(1, 10))
    weights = moved / "checkpoints" / "latest" / "weights.safetensors"
    python.run(
        MLP + f"""
import safetensors.torch
net, was = Net(4, 2), torch.jit.load({str(moved / "network.pt")!r})
weights = safetensors.torch.load_file({str(weights)!r})
net.load_state_dict(weights)
was.load_state_dict(weights)
seen = torch.randn(5, 4)
for ours, theirs in zip(net(seen), was(seen)):
    assert torch.equal(ours, theirs)
""", sandbox.folder)  # fmt: skip

    # The command line that began the run goes on with it, and not with another network.
    again = ["--resume", "--set=model.torchscript=net.pt"]
    path.write_bytes(first)
    job = train(sandbox, 12, *again, learners=1, run_dir="moved")
    assert job.succeeds()["updates"] == 12
    net(seed=2)
    job = train(sandbox, 15, *again, learners=1, run_dir="moved")
    assert job.wait() == 2 and "another file than the run's own" in job.output()


def test_the_same_seed_gives_the_same_bits(sandbox, net):
    net()
    digests = [
        train(sandbox, 8, "--set=model.torchscript=net.pt", run_dir=name).succeeds()["parameters_sha256"] for name in ("one", "two")
    ]
    assert digests[0] == digests[1] and len(set(digests[0])) == 1


@pytest.mark.parametrize("config", ["cartpole_appo", "cartpole_impala"])
def test_copies_act_while_it_learns(sandbox, net, config):
    net()
    job = sandbox.train(sandbox.config(config), "--set=model.torchscript=net.pt", "--set=total_env_steps=40000")
    result = job.succeeds()
    assert result["status"] == "completed" and result["updates"] > 3


def test_leaves_come_by_path_and_a_mask_is_applied(sandbox, python):
    python.run("""
import torch
from typing import Dict

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rgb, self.hint = torch.nn.Linear(3, 16), torch.nn.Embedding(5, 4)
        self.policy, self.value = torch.nn.Linear(16 + 4 + 2, 5), torch.nn.Linear(16 + 4 + 2, 1)

    def forward(self, seen: Dict[str, torch.Tensor]):
        pixels = seen["rgb"].float()[:, -1].mean(dim=(1, 2)) / 255
        x = torch.cat([torch.relu(self.rgb(pixels)), self.hint(seen["hint"][:, 0]), seen["goal"]], 1)
        return self.policy(x), self.value(x).squeeze(1)

torch.jit.script(Net()).save("net.pt")
""", sandbox.folder)
    config = sandbox.folder / "signals.textproto"
    config.write_text("""
total_env_steps: 20480
env { id: "gym:task_envs:Signals-v0" num_envs: 32 }
rollout { length: 32 }
model { torchscript: "net.pt" leaf { path: "hint" encoder: EMBEDDING } }
optimizer { learning_rate: 1e-2 }
ppo { epochs: 2 minibatches: 4 discount: 0 }
evaluation { every_updates: 0 }
""")
    sandbox.env["PYTHONPATH"] = str(SOURCE / "tests" / "envserver")
    job = sandbox.train(config)
    result = job.succeeds()
    assert result["failed_rows"] == 0  # the environment fails a row that does what is forbidden
    assert result["mean_return"] > 10  # 8 where nothing is learned
    weights = load_file(job.run_dir / "checkpoints" / "latest" / "weights.safetensors")
    assert weights.keys() == {f"{name}.{part}" for name in ("rgb", "policy", "value") for part in ("weight", "bias")} | {"hint.weight"}


def test_what_is_no_network_for_the_task_is_refused_by_name(sandbox, net):
    (sandbox.folder / "text.pt").write_text("no zip archive\n")
    net(outputs=3)
    for config, words, said in [
        ("cartpole_ppo", ["missing.pt"], ['model.torchscript is "missing.pt"', "no file that can be read"]),
        ("cartpole_ppo", ["text.pt"], ["is no TorchScript that LibTorch", "torch.jit.script(module).save"]),
        ("cartpole_ppo", ["net.pt"], ["its policy has shape [1, 3], want [1, 2]: one logit for each of the action's 2 values"]),
        ("pendulum_ppo", ["net.pt"], ["its forward fails on zeros (the observation float32 [1, 3])"]),
        ("cartpole_ppo", ["net.pt", "--set=model.recurrent=LSTM"], ["model.recurrent", "none with memory is supported yet"]),
        ("cartpole_dqn", ["net.pt"], ["model.torchscript", "dqn builds its own network"]),
    ]:
        job = sandbox.train(config, f"--set=model.torchscript={words[0]}", *words[1:], run_dir=f"{config}-{words[0]}-{len(words)}")
        assert job.wait() == 2, job.diagnosis()
        for words in said:
            assert words in job.output(), job.output()
