"""flotilla.train: scripts and a notebook that train, on environments of their own."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from harness import BIN, TIMEOUT, guide, poll, summary, training_lines
from torch_python import TorchPython

PACKAGE = BIN.parent / "share" / "flotilla" / "python"
# Walks to the right are worth 1, less 0.05 a step; chance is below 0.
CORRIDOR = """
import gymnasium
import numpy as np

class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2, start=1)
    steps = 0

    def __init__(self, size=4):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.left = 0, 4 * self.size
        return self.seen(), {}

    def seen(self):
        return np.array([self.at / self.size, self.left / (4 * self.size)], np.float32)

    def step(self, action):
        Corridor.steps += 1
        assert action in (1, 2)
        self.at = max(0, self.at + 2 * int(action) - 3)
        self.left -= 1
        there = self.at == self.size
        return self.seen(), 1.0 if there else -0.05, there, self.left == 0, {}
"""
SMALL = {
    "env.num_envs": 16, "rollout.length": 64, "ppo.epochs": 2, "optimizer.learning_rate": 3e-3, "optimizer.schedule": "CONSTANT",
    "model.hidden": [16], "runtime.device": "cpu",
}  # fmt: skip
EVALUATED = {"evaluation": {"every_updates": 5, "episodes": 10, "num_envs": 10, "stop_return": 0.8, "min_training_return": -9}}
ENDLESS = 10**9


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return TorchPython(tmp_path_factory.mktemp("stand_ins"))


class Scripts:
    """Scripts that import flotilla and have Corridor; everything that they start carries the sandbox' mark."""

    def __init__(self, sandbox, torch):
        self.sandbox = sandbox
        self.env = sandbox.env | torch.env | {"PYTHONPATH": f"{PACKAGE}:{torch.env['PYTHONPATH']}"}
        self.env.pop("FLOTILLA_BIN", None)  # the program is beside the package
        self.env.pop("FLOTILLA_PYTHON", None)

    def start(self, code, name="script", **pipes):
        path = self.sandbox.folder / f"{name}.py"
        path.write_text(f"import flotilla\n{CORRIDOR}\n{textwrap.dedent(code)}")
        pipes = pipes or {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [sys.executable, path], cwd=self.sandbox.folder, env=self.env, stdin=subprocess.DEVNULL, text=True, **pipes
        )

    def run(self, code):
        """What it prints; nothing of it is left."""
        process = self.start(code)
        out, err = process.communicate(timeout=2 * TIMEOUT)
        assert process.returncode == 0, f"{out}\n{err}"
        self.sandbox.await_no_process()
        return out


@pytest.fixture
def scripts(sandbox, python):
    return Scripts(sandbox, python)


# ---- Training


@pytest.mark.parametrize("learners", [1, 2])
def test_a_class_of_the_script_is_trained_on_until_it_is_solved(scripts, learners):
    out = scripts.run(f"""
        trained = flotilla.train(
            "cartpole_ppo", env=Corridor, learners={learners}, steps=200_000, seed=3, run_dir="run",
            overrides={SMALL | {"env.options.kwargs.size": 5, "env.num_workers": 2}}, **{EVALUATED},
        )
        assert trained.status == "solved" and trained.summary["world_size"] == {learners}
        assert trained.run.config.seed == 3 and list(trained.run.config.model.hidden) == [16]
        assert trained.metrics["charts/episodic_return"][-2] > 0
        assert Corridor.steps == 0  # they were in other processes
        env, policy = Corridor(size=5), trained.policy
        seen, _ = env.reset()
        total, over = 0, False
        while not over:
            seen, reward, ended, cut, _ = env.step(policy.act(seen))
            total, over = total + reward, ended or cut
        print(f"{{trained!r}} earned {{total:.2f}}")
    """)
    assert "<flotilla.Training run: solved> earned 0.80" in out, out
    assert "run folder: run" in out and "Corridor" in out  # the program's own words
    assert re.search(r"^cartpole_ppo: .*100,000|^cartpole_ppo: .* / 200,000 steps .* return ", out, re.M), out
    # The run is whole without the script: it may be evaluated again.
    done = scripts.sandbox.run("evaluate", "run", "--episodes", 5, env=scripts.env)
    assert done.returncode == 0 and "0.8" in done.stdout, done.stdout + done.stderr


def test_an_environment_that_is_there_steps_in_this_process(scripts):
    out = scripts.run(f"""
        env = Corridor()
        env.close = lambda: print("closed")
        trained = flotilla.train("cartpole_ppo", env=env, steps=2000, run_dir="run", overrides={SMALL | {"rollout.length": 128, "env.num_envs": 1}})
        assert trained.status == "completed" and trained.summary["episodes"] > 0
        assert Corridor.steps >= trained.summary["global_steps"] - 10, Corridor.steps
        assert trained.policy.act(env.reset()[0]) in (1, 2)

        # And what makes some, for two learners.
        made = []
        def make():
            made.append(Corridor())
            return made[-1]
        two = flotilla.train("cartpole_ppo", env=make, learners=2, in_process=True, steps=4096, overrides={SMALL | {"env.num_envs": 4}})
        assert len(made) >= 8 and two.run_dir.parent.name == "runs"
    """)
    assert "closed" not in out


def test_ids(scripts):
    """The program's own, Gymnasium's, a class in a module, and one that was registered here."""
    (scripts.sandbox.folder / "own_module.py").write_text(CORRIDOR)
    scripts.run(f"""
        gymnasium.register("Here-v0", entry_point=Corridor, max_episode_steps=7)
        short = dict(steps=2048, progress="none", overrides={SMALL | {"evaluation.every_updates": 0}})
        for env, named in {{"CartPole-v1": "CartPole-v1", "Acrobot-v1": "gym:Acrobot-v1", "own_module:Corridor": "Corridor", "Here-v0": "Here-v0"}}.items():
            trained = flotilla.train("cartpole_ppo", env=env, run_dir="run/" + named.replace(":", "_"), **short)
            assert trained.summary["env_id"] == named, trained.summary
        assert max(trained.metrics["charts/episodic_length"]) <= 7
    """)


# ---- Ends


def endless(scripts, more="", **pipes):
    process = scripts.start(
        f"""
        try:
            flotilla.train("cartpole_ppo", env=Corridor, steps={ENDLESS}, run_dir="run", overrides={SMALL}{more})
        except KeyboardInterrupt as interrupt:
            print("interrupted:", interrupt)
        """,
        **pipes,
    )
    run = scripts.sandbox.folder / "run"

    def trains():
        assert process.poll() is None, process.communicate()
        return (run / "metrics.jsonl").exists() and len(training_lines(run)) > 3

    poll(trains, "updates")
    return process, run


def test_an_interrupt_saves_and_leaves_nothing_running(scripts):
    process, run = endless(scripts)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    assert "interrupted: the run in run was stopped" in out and "once a checkpoint is saved" in out
    scripts.sandbox.await_no_process()
    saved = summary(run)
    assert saved["status"] == "stopped"
    assert (run / "checkpoints" / "latest").resolve().name == f"step_{saved['global_steps']:012d}"
    more = saved["global_steps"] + 3000
    scripts.run(f"""
        trained = flotilla.train("cartpole_ppo", env=Corridor, steps={more}, run_dir="run", resume=True, overrides={SMALL})
        assert trained.summary["global_steps"] >= {more} and trained.status == "completed"
    """)


@pytest.mark.parametrize("more", ["", ", in_process=True"])
def test_what_is_killed_takes_its_run_along(scripts, more):
    process, run = endless(scripts, more)
    assert len(scripts.sandbox.processes()) > 3
    process.kill()
    process.communicate()
    scripts.sandbox.await_no_process()
    assert not (run / "summary.json").exists()


def test_a_terminal_has_one_line(scripts):
    ours, its = pty.openpty()
    process, _ = endless(scripts, stdin=its, stdout=its, stderr=its)
    os.close(its)
    process.send_signal(signal.SIGINT)
    said = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # nobody has the other end any more
            break
        said += part
    os.close(ours)
    assert process.wait(TIMEOUT) == 0, said
    frames = said.decode().split("\r\x1b[K")
    assert sum(bool(re.match(r"cartpole_ppo \[-{20}\]   0%", frame)) for frame in frames) > 2, said
    assert not any("\n" in frame for frame in frames if re.match(r"cartpole_ppo \[", frame) and frame is not frames[-1]), said
