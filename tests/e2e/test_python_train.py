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

from harness import BIN, SOURCE, TIMEOUT, guide, poll, summary, training_lines
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
EVALUATED = {"evaluation": {"every_updates": 5, "episodes": 10, "num_envs": 10, "stop_return": 0.75, "min_training_return": -9}}
ENDLESS = 10**9
CERTIFICATES = {"coordinator,learner,envserver": "all", "coordinator,learner": "less"}
# The first is only looked at; the second is made once the run has begun, and leaves a process behind that ends by a
# signal alone.
FORKS = """
import os, signal

class Forks(Corridor):
    made = 0

    def __init__(self):
        super().__init__()
        Forks.made += 1
        if Forks.made == 2 and os.fork() == 0:
            os.closerange(0, 3)  # the test waits for their end
            while True:
                signal.pause()
"""


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
        pipes = pipes or {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, path], cwd=self.sandbox.folder, env=self.env, text=True, **pipes)

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
            "cartpole_ppo", env=Corridor, learners={learners}, steps=100_000, seed=3, run_dir="run",
            overrides={SMALL | {"env.options.kwargs.size": 5, "env.num_workers": 2, "env.retry": "retry_renew"}}, **{EVALUATED},
        )
        assert trained.run.config.env.server.endswith(" --renew_failed=1")
        assert trained.status == "solved" and trained.summary["world_size"] == {learners}
        assert trained.run.config.seed == 3 and list(trained.run.config.model.hidden) == [16]
        assert np.nanmax(trained.metrics["charts/episodic_return"]) > 0
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
    assert re.search(r"^cartpole_ppo: .* / 100,000 steps .* return ", out, re.M), out
    # The run is whole without the script: it may be evaluated again.
    done = scripts.sandbox.run("evaluate", "run", "--episodes", 5, env=scripts.env)
    assert done.returncode == 0 and "0.8" in done.stdout, done.stdout + done.stderr


def test_who_is_refused_leaves_a_run_the_environment_that_it_has(scripts):
    out = scripts.run(f"""
        import pathlib
        class Longer(Corridor):
            def __init__(self):
                super().__init__(size=9)

        def attempt(**more):
            try:
                flotilla.train("cartpole_ppo", run_dir="run", steps=2048, progress="none", **more)
                print("trained")
            except flotilla.Error as error:
                print(" ".join(str(error).splitlines()))
            print(sorted(path.name for path in pathlib.Path("run").glob("*.pickle")))

        attempt(env=Corridor, overrides={SMALL})
        attempt(env=Longer, overrides={SMALL})
        attempt(env=Longer, overrides={SMALL}, resume=True)
        attempt(env=Longer, ppo={{"epoks": 3}})
    """)
    trained, first, *others = out.splitlines()
    assert trained == "trained" and re.fullmatch(r"\['environment-[0-9a-f]{12}\.pickle'\]", first)
    for said, wanted in zip(others[::2], ["holds a run already", "env.id was", "holds a run already"], strict=True):
        assert wanted in said
    assert set(others[1::2]) == {first}
    # Without it, the way on is told.
    (scripts.sandbox.folder / "run").rename(scripts.sandbox.folder / "moved")
    done = scripts.sandbox.run("evaluate", "moved", env=scripts.env)
    assert done.returncode != 0 and "if that was moved or renamed, move it back, or go on with flotilla.train" in done.stderr


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

        # Its arguments may be the configuration's, and what would be evaluated is not.
        import pathlib
        words = pathlib.Path("{SOURCE / "deploy" / "configs" / "cartpole_fast.textproto"}").read_text()
        pathlib.Path("mine.textproto").write_text(words.replace("env {{", 'env {{ options {{ kwargs {{ key: "size" value: "5" }} }}', 1))
        class Sized(Corridor):
            def __init__(self, size):
                super().__init__(size)
        flotilla.train("mine.textproto", env=Sized, in_process=True, steps=4096, run_dir="mine", overrides={SMALL})
    """)
    assert "closed" not in out and "evaluation.stop_return is 475, and nothing is evaluated" in out


def test_what_steps_here_shows_what_the_run_asks_for(scripts):
    """A token of the caller's, nothing, or a certificate, which has to be an env server's, too."""
    certs = scripts.sandbox.folder / "certs"
    for words in (["ca"], ["token"], *([roles, name, "localhost", "127.0.0.1"] for roles, name in CERTIFICATES.items())):
        subprocess.run([SOURCE / "deploy" / "certs.sh", certs, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    scripts.run(f"""
        def attempt(run_dir, *flags):
            return flotilla.train(
                "cartpole_ppo", env=Corridor(), steps=1000, run_dir=run_dir, progress="none", flags=flags,
                overrides={SMALL | {"rollout.length": 128, "env.num_envs": 1}},
            )

        def tls(name):
            return [f"--tls-cert=certs/{{name}}.pem", f"--tls_key=certs/{{name}}.key", "--tls-ca", "certs/ca.pem"]

        assert attempt("token", "--token-file", "certs/token").status == "completed"
        assert attempt("insecure", "--insecure").status == "completed"
        assert attempt("tls", *tls("all")).status == "completed"
        assert attempt("both", *tls("all"), "--token-file=certs/token").status == "completed"
        try:
            attempt("refused", *tls("less"))
        except flotilla.Error as error:
            assert "the environment cannot be played" in str(error) and "envserver" in str(error), error
        else:
            raise AssertionError("it was taken for an env server")
    """)


def test_a_process_with_a_rank_trains_the_learner_of_it(scripts):
    """As srun starts a task."""
    scripts.env |= {
        "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "1",
        "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "localhost",
    }  # fmt: skip
    scripts.run(f"""
        import os

        for here in (False, True):
            trained = flotilla.train("cartpole_ppo", env=Corridor, in_process=here, steps=2048, overrides={SMALL | {"evaluation.every_updates": 0}})
            assert trained.status == "completed" and trained.summary["world_size"] == 1
        os.environ["SLURM_NTASKS"] = "2"
        for here, told in ((False, "2 processes share this run's folder; name it with run_dir"), (True, "2 processes train together")):
            try:
                flotilla.train("cartpole_ppo", env=Corridor, in_process=here, overrides={SMALL})
            except flotilla.Error as error:
                assert told in str(error), error
            else:
                raise AssertionError("it trained")
    """)


def test_a_dry_run_prints_the_plan(scripts):
    out = scripts.run(f"""
        for here in (False, True):
            planned = flotilla.train("cartpole_ppo", env=Corridor, in_process=here, progress="none", flags=["--dry-run"], overrides={SMALL})
            assert planned is None
            print("=====")
    """)
    plans = out.split("=====")[:-1]
    assert len(plans) == 2
    for plan in plans:
        assert 'id: "Corridor"' in plan and "run folder" in plan, out
    assert not list((scripts.sandbox.folder / "runs").iterdir())


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


def test_it_is_made_with_the_runs_arguments(scripts):
    """By workers, in this process, and where the policy asks for its spaces."""
    arguments = {"env.options.kwargs.size": 5, "env.options.kwargs.name": "a b", "evaluation.every_updates": 0}
    scripts.run(f"""
        class Sized(Corridor):
            broken = False

            def __init__(self, size, name):
                if (size, name) != (5, "a b") or Sized.broken:
                    raise ValueError("no simulator here")
                super().__init__(size)

        for here in (False, True):
            trained = flotilla.train(
                "cartpole_ppo", env=Sized, in_process=here, steps=2048, run_dir=f"run/{{here}}", overrides={SMALL | arguments}
            )
            assert trained.policy.act(np.zeros(2, np.float32)) in (1, 2)
        del trained.policy
        Sized.broken = True
        try:
            trained.policy
        except flotilla.Error as error:
            assert "Sized(name='a b', size=5) raised ValueError: no simulator here" in str(error), error
            assert isinstance(error.__cause__, ValueError)
        else:
            raise AssertionError("it was made")
    """)


# ---- Ends


def endless(scripts, more=', run_dir="run"', env="Corridor", begin="", **pipes):
    code = f"""
        try:
            flotilla.train("cartpole_ppo", env={env}, steps={ENDLESS}, overrides={SMALL}{more})
        except KeyboardInterrupt as interrupt:
            print("interrupted:", interrupt)
        """
    process = scripts.start(begin + textwrap.dedent(code), **pipes)

    def trains():
        assert process.poll() is None, process.communicate()
        runs = [path.parent for path in scripts.sandbox.folder.glob("**/metrics.jsonl")]
        return runs and len(training_lines(runs[0])) > 3 and runs[0]

    return process, poll(trains, "updates")


def test_an_interrupt_saves_and_leaves_nothing_running(scripts):
    process, run = endless(scripts)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    assert "interrupted: the run in run was stopped; resume=True, run_dir='run' goes on with it" in out and "once a checkpoint is saved" in out
    scripts.sandbox.await_no_process()
    saved = summary(run)
    assert saved["status"] == "stopped"
    assert (run / "checkpoints" / "latest").resolve().name == f"step_{saved['global_steps']:012d}"
    more = saved["global_steps"] + 3000
    scripts.run(f"""
        trained = flotilla.train("cartpole_ppo", env=Corridor, steps={more}, run_dir="run", resume=True, overrides={SMALL})
        assert trained.summary["global_steps"] >= {more} and trained.status == "completed"
    """)


def test_a_run_that_nobody_named_goes_on_with_as_many_learners(scripts):
    process, run = endless(scripts, ", learners=2")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert f"resume=True, run_dir='runs/{run.name}' goes on with it" in out, err
    scripts.sandbox.await_no_process()
    more = summary(run)["global_steps"] + 3000
    # Here, both are to be dialled.
    scripts.run(f"""
        trained = flotilla.train("cartpole_ppo", env=Corridor, in_process=True, steps={more}, resume=True, overrides={SMALL})
        assert trained.summary["global_steps"] >= {more} and trained.summary["world_size"] == 2
    """)
    assert list(run.parent.iterdir()) == [run]
    more += 3000
    scripts.run(f"""
        trained = flotilla.train("cartpole_ppo", env=Corridor, steps={more}, resume="runs/{run.name}/checkpoints/latest", overrides={SMALL})
        assert trained.summary["global_steps"] >= {more} and trained.summary["world_size"] == 2
    """)
    assert list(run.parent.iterdir()) == [run]
    more += 3000
    scripts.run(f"""
        trained = flotilla.train("cartpole_ppo", env=Corridor, learners=1, steps={more}, resume="runs/{run.name}", run_dir="other", overrides={SMALL})
        assert trained.summary["global_steps"] >= {more} and trained.summary["world_size"] == 1
    """)


def assert_ended_by(number, process, run, scripts):
    """Once it had saved."""
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == -number, f"{out}\n{err}"
    scripts.sandbox.await_no_process()
    saved = summary(run)
    assert saved["status"] == "preempted"
    assert (run / "checkpoints" / "latest").resolve().name == f"step_{saved['global_steps']:012d}"
    return out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_signal_ends_the_script_once_the_run_has_saved(scripts, number):
    process, run = endless(scripts)
    process.send_signal(number)
    out = assert_ended_by(number, process, run, scripts)
    assert f"{number.name}: ending, once a checkpoint is saved" in out and "interrupted" not in out


def test_a_terminal_that_is_gone_keeps_no_run_from_saving(scripts):
    ours, its = pty.openpty()
    process, run = endless(scripts, stdin=its, stdout=its, stderr=its)
    os.close(its)
    process.send_signal(signal.SIGSTOP)  # it is told before it writes there
    process.send_signal(signal.SIGHUP)
    os.close(ours)
    process.send_signal(signal.SIGCONT)
    assert_ended_by(signal.SIGHUP, process, run, scripts)


def test_a_signal_that_the_script_handles_is_the_scripts(scripts):
    own = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('mine'))\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process, run = endless(scripts, begin=own)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    before = len(training_lines(run))
    poll(lambda: len(training_lines(run)) > before + 3, "more updates")
    process.send_signal(signal.SIGTERM)
    assert "mine" in assert_ended_by(signal.SIGTERM, process, run, scripts)


@pytest.mark.parametrize("more", ["", ", in_process=True"])
def test_what_is_killed_takes_its_run_along(scripts, more):
    process, run = endless(scripts, f', run_dir="run"{more}')
    assert len(scripts.sandbox.processes()) > 3
    process.kill()
    process.communicate()
    scripts.sandbox.await_no_process()
    assert not (run / "summary.json").exists()


def test_what_is_forked_here_keeps_no_run(scripts):
    process, run = endless(scripts, ', run_dir="run", in_process=True', env="Forks", begin=FORKS)
    process.kill()
    process.communicate()
    (forked,) = poll(lambda: len(left := scripts.sandbox.processes()) == 1 and left, "the run to be gone")
    os.kill(forked, signal.SIGTERM)  # which is not the run's to it
    scripts.sandbox.await_no_process()
    assert not (run / "summary.json").exists()


def test_a_terminal_has_one_line(scripts):
    ours, its = pty.openpty()
    process, _ = endless(scripts, stdin=its, stdout=its, stderr=its)
    os.close(its)
    said, told = b"", False
    while True:
        if not told and said.count(b"cartpole_ppo [") > 3:
            process.send_signal(signal.SIGINT)
            told = True
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # nobody has the other end any more
            break
        said += part
    os.close(ours)
    assert process.wait(TIMEOUT) == 0, said
    frames = said.decode().split("\r\x1b[K")
    assert sum(bool(re.match(r"cartpole_ppo \[-{20}\]   0%", frame)) for frame in frames) > 3, said
    assert not any("\n" in frame for frame in frames if re.match(r"cartpole_ppo \[", frame) and frame is not frames[-1]), said


# ---- What cannot be trained


def test_what_is_wrong_is_told_in_one_exception(scripts):
    out = scripts.run(f"""
        import threading
        from gymnasium import spaces

        class Text(Corridor):
            observation_space = spaces.Text(5)

        class Broken(Corridor):
            def __init__(self, **options):
                raise ValueError("no simulator here")

        lock = threading.Lock()

        def attempt(*words, **more):
            more = dict(steps=2048, progress="none") | more
            try:
                flotilla.train(*words, **more)
                print("nothing is wrong")
            except flotilla.Error as error:
                print(" | ".join(str(error).splitlines()))

        attempt("cartpole_ppo", Corridor, ppo={{"epocs": 8}})
        attempt("cartpole_ppo", Corridor, overrides={{"ppo.epochs": "many"}})
        attempt("cartpole_ppo", Corridor, overrides={{"ppo.epochs": object()}})
        attempt("cartpole_pqo", Corridor)
        attempt("cartpole_ppo", Text)
        attempt("cartpole_ppo", Text, in_process=True)
        attempt("cartpole_ppo", Broken)
        attempt("cartpole_ppo", Broken, in_process=True)
        attempt("cartpole_ppo", lambda: lock)
        attempt("cartpole_ppo", lambda: 5)
        attempt("cartpole_ppo", lambda: 5, in_process=True)
        attempt("cartpole_ppo", 5)
        attempt("cartpole_ppo", Corridor(), learners=2)
        attempt("cartpole_ppo", Corridor(), overrides={{"env.num_envs": 16}})
        attempt("cartpole_ppo", Corridor(), overrides={{"env.options.kwargs.size": 5}})
        attempt("cartpole_ppo", Corridor, in_process=True, evaluation={{"every_updates": 5}})
        made = []
        attempt("cartpole_ppo", lambda: made.append(5) or (Corridor() if len(made) == 1 else 5), in_process=True, run_dir="unplayable")
        attempt("cartpole_ppo", gymnasium.vector.SyncVectorEnv([Corridor] * 2))
        attempt("cartpole_ppo", "CartPole-v7")
        attempt("cartpole_ppo", "no_module:Thing")
        attempt("cartpole_ppo", learners=0)
        attempt("cartpole_ppo", Corridor, resume=True)
        attempt("cartpole_ppo", Corridor, resume="latest")
        attempt("cartpole_ppo", overrides={{"env.max_failed_share": 0.1, "env.failed_seconds": 0.2}} | {SMALL}, run_dir="fails", steps={ENDLESS}, env=type("Falls", (Corridor,), {{
            "step": lambda self, action: 1 / 0}}))
        import os
        os.environ["FLOTILLA_BIN"] = "/no/where"
        attempt("cartpole_ppo")
    """)
    wanted = [
        ('there is no field "ppo.epocs"', 'did you mean "ppo.epochs"'),
        ("ppo.epochs", '"many"'),
        ("ppo.epochs is <object", "want a bool, a number, a string"),
        ('"cartpole_pqo"', "cartpole_ppo"),
        ("Text: the observation space has Text(", "no array of the protocol holds"),
        ("Text: the observation space has Text(", "no array of the protocol holds"),
        ("Broken: ValueError: no simulator here",),
        ("Broken() raised ValueError: no simulator here", "overrides={'env.options.kwargs.size': 5}"),
        ("cannot be taken to processes of its own", "lock", "in_process=True"),
        ("returned a int, want a gymnasium.Env",),
        ("returned a int, want a gymnasium.Env",),
        ("env is a int; want a Gymnasium environment, a class or function",),
        ("learners is 2, and one environment plays for 1",),
        ("env.num_envs is 16, and one environment that is there already has 1; leave it out",),
        ("Corridor is made already, and takes no env.options.kwargs",),
        ("evaluation.every_updates is 5, and what steps in this process (in_process=True) has 0",),
        ("the environment cannot be played: what makes lambda returned a int, want a gymnasium.Env",),
        ("env is a vector of environments",),
        ("CartPole-v7",),
        ("no_module cannot be imported",),
        ("learners is 0",),
        ('there is no run "runs/cartpole_ppo-DATE-TIME" to go on with', "name its folder with run_dir"),
        ('there is no run "runs/cartpole_ppo-DATE-TIME" to go on with', "name its folder with run_dir"),
        ("the run in fails ended with exit code 1", "ZeroDivisionError"),
        ("FLOTILLA_BIN is /no/where",),
    ]
    for line, words in zip(out.splitlines(), wanted, strict=True):
        assert all(word in line for word in words), f"{words}: {line}"
    assert "environment-" not in out
    # What never began leaves nothing.
    assert not list((scripts.sandbox.folder / "runs").iterdir())


def test_one_that_cannot_be_made_a_second_time_ends_the_run(scripts):
    scripts.run(f"""
        made, closed = [], []

        class Arm(Corridor):
            def __init__(self):
                if len(made) > len(closed):
                    raise RuntimeError("there is but one arm")
                super().__init__()
                made.append(self)

            def close(self):
                closed.append(self)

        try:
            flotilla.train("cartpole_ppo", env=Arm, in_process=True, steps=2048, run_dir="run", overrides={SMALL})
        except flotilla.Error as error:
            assert "the environment cannot be played: Arm raised RuntimeError: there is but one arm" in str(error), error
        else:
            raise AssertionError("it trained")
        assert len(made) > 1 and closed == made
    """)


# ---- In a notebook


# Runs cells in a real kernel, interrupts the last, and prints what they left as JSON.
DRIVER = """
import json, os, pathlib, signal, sys, threading, time
import nbclient, nbformat

cells = json.load(open(sys.argv[1]))
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
client = nbclient.NotebookClient(notebook, kernel_name="python3", timeout=90, allow_errors=True)

def interrupt():
    metrics = pathlib.Path("endless/metrics.jsonl")
    while not metrics.exists() or metrics.read_text().count(chr(10)) < 4:
        time.sleep(0.02)
    os.kill(client.km.provisioner.pid, signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
client.execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""


def text_of(outputs):
    return "".join("".join(output.get("text", "")) or output.get("evalue", "") for output in outputs)


def test_a_notebook(scripts):
    """A class that a cell defines is trained on, an output shows how it goes, and an interrupt stops the run and not the kernel."""
    cells = [
        CORRIDOR, "import flotilla",
        f"trained = flotilla.train('cartpole_ppo', env=Corridor, steps=20_000, run_dir='run', overrides={SMALL}, **{EVALUATED})",
        "trained",
        "there = flotilla.train('cartpole_ppo', env=Corridor(), steps=1500, overrides={'rollout.length': 128, 'runtime.device': 'cpu'}); print(there.status, Corridor.steps)",
        f"flotilla.train('cartpole_ppo', env=Corridor, steps={ENDLESS}, run_dir='endless', overrides={SMALL})",
        "print('alive', flotilla.Run('endless').summary['status'])",
    ]  # fmt: skip
    (scripts.sandbox.folder / "driver.py").write_text(DRIVER)
    (scripts.sandbox.folder / "cells.json").write_text(json.dumps(cells))
    done = subprocess.run(
        [sys.executable, "driver.py", "cells.json"], cwd=scripts.sandbox.folder, env=scripts.env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=2 * TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    _, _, train, shown, there, interrupted, alive = json.loads(done.stdout.splitlines()[-1])
    # One output, rewritten to the last, whatever the run's own words are around it.
    (bar,) = [output for output in train if output["output_type"] == "display_data"]
    assert re.search(r"cartpole_ppo: .*% .* return ", bar["data"]["text/plain"])
    assert re.search(r'<progress max="1" value="(?!0\.0000)[\d.]+">', bar["data"]["text/html"])
    assert shown[0]["data"]["text/plain"] in ("<flotilla.Training run: solved>", "<flotilla.Training run: completed>")
    status, steps = re.search(r"^(\w+) (\d+)$", text_of(there), re.M).groups()
    assert status == "completed" and int(steps) >= 1400
    assert interrupted[-1]["ename"] == "KeyboardInterrupt" and "the run in endless was stopped" in interrupted[-1]["evalue"]
    assert text_of(alive) == "alive stopped\n"
    scripts.sandbox.await_no_process()


# ---- As the README says


def test_the_readme_is_true(scripts):
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", guide("launcher", "Train from Python"))
    scripts.run(code)
