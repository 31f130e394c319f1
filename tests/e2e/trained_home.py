"""Runs of every kind of network, trained when they are asked for, and a Python that takes their policies home."""

import subprocess

import pytest

from harness import BIN, SOURCE, TIMEOUT
from torch_python import TorchPython

TASKS = SOURCE / "tests" / "envserver"
PACKAGE = BIN.parent / "share" / "flotilla" / "python"
# Everything that a network of ours can be made of, somewhere: what is trained, in how many steps, with which words.
KINDS = {
    "mlp": ("cartpole_fast", 4096),
    "lstm": ("diagnostics", 4096, "env.id=Memory", "model.recurrent=LSTM", "model.recurrent_layers=2", "model.recurrent_size=16"),
    "gru": ("diagnostics", 4096, "env.id=Memory", "model.recurrent=GRU", "model.normalize_observations=true"),
    "image": ("diagnostics", 4096, "env.id=Spaces"),
    "mask": ("diagnostics", 4096, "env.id=Mask"),
    "continuous": ("diagnostics", 4096, "env.id=Continuous", "model.normalize_observations=true", "model.share_trunk=false"),
    "squashed": ("pendulum_sac", 640),
    "q": ("cartpole_dqn", 1280),
    "agents": ("diagnostics", 4096, "env.id=Multiagent"),
    "tuple": ("blackjack_ppo", 2048),
    "info": ("taxi_ppo", 2048),
    "nested": ("signals", 2048),
}
# A Dict of an image through RESNET, a stacked vector, an embedding and masks of two choices, with memory.
SIGNALS = """
total_env_steps: 2048
env { id: "gym:task_envs:Signals-v0" num_envs: 32 }
rollout { length: 32 }
model {
  leaf { path: "rgb" hidden: [8] encoder: RESNET frame_stack: 2 }
  leaf { path: "goal" frame_stack: 3 hidden: [8] }
  leaf { path: "hint" encoder: EMBEDDING hidden: [4, 6] }
  hidden: [32]
  recurrent: LSTM
  recurrent_size: 8
}
ppo { epochs: 1 minibatches: 4 }
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return TorchPython(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture(scope="module")
def home(shared_sandbox, python):
    """The programs, with a Python that has torch and our package; and runs, trained when they are asked for."""
    paths = [PACKAGE, TASKS, python.env["PYTHONPATH"]]
    python.env["PYTHONPATH"] = ":".join(map(str, paths))
    shared_sandbox.env |= python.env

    def run(kind):
        folder = shared_sandbox.folder / kind
        if not folder.exists():
            shipped, steps, *words = KINDS[kind]
            if shipped == "signals":
                config = shared_sandbox.folder / "signals.textproto"
                config.write_text(SIGNALS)
            else:
                config = shared_sandbox.config(shipped)  # an evaluation takes longer than this training
            job = shared_sandbox.train(
                config, f"--set=total_env_steps={steps}", *(f"--set={word}" for word in words),
                *(["--set=sac.learning_starts=320"] if kind == "squashed" else []), run_dir=kind,
            )  # fmt: skip
            job.succeeds()
        return folder

    shared_sandbox.trained = run
    return shared_sandbox


@pytest.fixture
def script(home, python, tmp_path):
    """What a script prints, with our package imported."""
    return lambda text: python.run("import flotilla\nimport numpy as np\n" + text, tmp_path)


def recorded(home, run, count=512):
    """Decisions of the program's own policy: learner/eval/decisions.h."""
    path = run / "decisions.safetensors"
    if not path.exists():
        done = subprocess.run(
            [BIN / "flotilla-learner", f"--evaluate={run}/checkpoints/latest", f"--decisions={count}", f"--output={path}"],
            cwd=home.folder, env=home.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    return path


# Acts in the recorded episodes, one row after another, each observation as its environment has it: prints how many
# decisions there were, how many choices were others, and how far numbers lay apart.
ACT = """
from flotilla.checkpoint import parse_safetensors

def act(run, decisions):
    data = parse_safetensors(open(decisions, "rb").read(), "it")
    policy = flotilla.load(run)
    leaves, paths = policy.module.spaces.actions, [leaf.path for leaf in policy.spec.observation]
    wrong, apart, compared = 0, 0.0, 0
    for row in np.unique(data["row"]):
        for i in np.flatnonzero(data["row"] == row):
            if data["begins"][i]:
                policy.reset()
            seen = {path: data["observation." + path][i] for path in paths}
            action = policy.act(seen if paths != [""] else seen[""])
            for leaf in leaves:
                own = action if leaf.path == "" else action[leaf.path] if isinstance(action, dict) else action[int(leaf.path)]
                wanted = data["discrete" if leaf.discrete else "continuous"][i, leaf.first : leaf.first + leaf.elements]
                if leaf.discrete:
                    assert isinstance(own, int) or own.dtype == np.int64
                    wrong += not np.array_equal(np.ravel(own), wanted)
                else:
                    low, high = policy.module.low.numpy(), policy.module.high.numpy()
                    apart = max(apart, np.abs(np.ravel(own) - np.clip(wanted, low, high)).max())
            if policy.module.algorithm == "ppo":
                apart = max(apart, abs(policy.last_value[0] - data["value"][i]))
            compared += 1
    print(compared, wrong, apart)
"""


def acts(home, script, *runs):
    """(decisions, wrong choices, largest difference) of each (policy, run whose decisions they are)."""
    pairs = [(str(policy), str(recorded(home, run))) for policy, run in runs]
    said = script(ACT + f"\nfor pair in {pairs!r}:\n    act(*pair)\n")
    return [(int(compared), int(wrong), float(apart)) for compared, wrong, apart in map(str.split, said.splitlines())]


def refused(done, *words, code=2):
    """One line that has the words."""
    assert done.returncode == code, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
