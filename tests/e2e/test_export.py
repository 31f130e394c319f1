"""A policy taken home: loaded in Python and as ONNX. What the program's own policy decides is the
measure of all of them."""

import re
import shutil
import subprocess
import sys

from harness import BIN, SOURCE, TIMEOUT, guide
from trained_home import KINDS, acts, home, python, recorded, refused, script  # noqa: F401

LARGEST = re.compile(r"against (\d+) (.*): the largest difference is (\S+) of (\S+)$", re.M)


# ---- In Python

def test_it_acts_as_the_program_does(home, script):
    runs = [home.trained(kind) for kind in KINDS]
    for kind, (compared, wrong, apart) in zip(KINDS, acts(home, script, *zip(runs, runs)), strict=True):
        assert compared == 512 and wrong == 0 and apart < 1e-5, kind


def test_rows_are_played_together_and_begin_alone(home, script):
    """As vector environments have them: what one row remembers is its own."""
    said = script(f"""
from flotilla.checkpoint import parse_safetensors
data = parse_safetensors(open({str(recorded(home, home.trained("lstm")))!r}, "rb").read(), "it")
policy = flotilla.load({str(home.trained("lstm"))!r})
rows = [np.flatnonzero(data["row"] == row)[:60] for row in np.unique(data["row"])]
for t in range(60):
    at = np.array([row[t] for row in rows])
    policy.reset(data["begins"][at] != 0)
    policy.reset([])  # none of them
    assert np.array_equal(policy.act(data["observation."][at]), data["discrete"][at, 0])
policy.reset()
try:
    policy.act(data["observation."][:3]), policy.act(data["observation."][:4])
except flotilla.Error as error:
    print(error)
""")
    assert said == "there are 4 rows of observations, and before there were 3; reset() comes between\n"


def test_samples_follow_the_seed_and_the_probabilities(home, script):
    said = script(f"""
import torch
policies = [flotilla.load({str(home.trained("mlp"))!r}, seed=seed) for seed in (3, 3, 4)]
seen = np.tile(np.float32([0.01, 0.02, 0.03, 0.04]), (4000, 1))
drawn = [policy.act(seen, deterministic=False) for policy in policies]
assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
p = policies[0].module(torch.tensor(seen[:1])).policy.softmax(1)[0, 1].item()
print(p, drawn[0].mean())
masked = flotilla.load({str(home.trained("mask"))!r})
leaf = masked.spec.observation[1]
clue, mask = np.zeros((500, 4), np.float32), np.zeros((500, 8), np.uint8)
mask[:, 2:4] = 1
print(np.unique(masked.act({{"clue": clue, "mask": mask}}, deterministic=False)))
""")
    wanted, drawn = map(float, said.split("\n")[0].split())
    assert abs(drawn - wanted) < 0.03 and 0.1 < wanted < 0.9
    assert said.split("\n")[1] == "[2 3]"


def test_it_is_a_torch_module_with_the_checkpoints_names(home, script):
    script(f"""
import copy, torch
from flotilla.checkpoint import Checkpoint
for run in {[str(home.trained(kind)) for kind in ("nested", "q", "squashed")]!r}:
    policy = flotilla.load(run)
    weights, own = Checkpoint(run).weights, policy.module.state_dict()
    assert set(weights) == set(own) and all(np.array_equal(own[name].numpy(), weights[name]) for name in weights)
    other = copy.deepcopy(policy.module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert all(np.array_equal(own[name].numpy(), weights[name]) for name in weights)
    assert isinstance(policy.module, torch.nn.Module) and all(p.requires_grad for p in policy.module.parameters())
""")


def test_it_plays_its_gymnasium_environment(home, script):
    """Whose structure and first values it takes from the environment."""
    said = script(f"""
import gymnasium, task_envs
env = gymnasium.make("Signals-v0")
policy = flotilla.load({str(home.trained("nested"))!r}, env=env)
seen, _ = env.reset(seed=1)
total = 0
for _ in range(16):
    action = policy.act(seen)
    assert env.action_space.contains(action), action
    seen, reward, _, truncated, _ = env.step(action)
    total += reward
assert truncated

env = gymnasium.make("Blackjack-v1")
policy = flotilla.load({str(home.trained("tuple"))!r}, env=env)
seen, _ = env.reset(seed=1)
assert isinstance(seen, tuple) and env.action_space.contains(policy.act(seen))

env = gymnasium.make("Taxi-v4")  # which says in `info` what is allowed
policy = flotilla.load({str(home.trained("info"))!r}, env=env)
seen, info = env.reset(seed=1)
for _ in range(20):
    only = np.zeros(6, np.int8)
    only[np.flatnonzero(info["action_mask"])[-1]] = 1
    assert info["action_mask"][policy.act(seen, mask=info["action_mask"])] == 1
    action = policy.act(seen, mask=only)
    assert only[action] == 1
    seen, _, _, _, info = env.step(action)

class Shifted:
    observation_space = gymnasium.spaces.Box(-9, 9, (4,))
    action_space = gymnasium.spaces.Discrete(2, start=5)

cartpole = {str(home.trained("mlp"))!r}
seen = np.zeros(4, np.float32)
assert flotilla.load(cartpole, env=Shifted()).act(seen) == flotilla.load(cartpole).act(seen) + 5
""")
    assert said == ""


# A policy without training for any spaces: it likes the last of choices best, and continuous actions of `MEAN`.
BLANK = """
import types
import torch
from flotilla import network, policy
from flotilla.v1 import config_pb2
from flotilla_gym import rows
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

MEAN = [0.0]

class Blank(network.PolicyModule):
    def network(self, leaves, state):
        n, spaces = leaves[0].shape[0], self.spaces
        liked = torch.cat([torch.arange(spaces.logits) * 1.0, torch.full([spaces.continuous], MEAN[0])])
        return network.Output(liked.repeat(n, 1), None, torch.zeros(n), None)

network.make = Blank

def blank(seen, does, info={}, env=None):
    fields = {"max_episode_steps": 0, "reward_threshold": 0, "agents": 1, "renders": False}
    game = types.SimpleNamespace(observation_space=seen, action_space=does, **fields)
    spec = rows.describe("it", game, lambda: info)[0]
    return policy.Policy(types.SimpleNamespace(config=config_pb2.RunConfig(), spec=spec, step=0), env=game if env == "its" else env)
"""


def test_actions_are_of_the_environments_own_space(home, script):
    """Whatever its keys, dtypes and bounds are: one, several rows, and those of a vector environment."""
    script(f"""{BLANK}
from gymnasium.vector.utils import batch_space
nested = Dict({{"a/b": Discrete(3, start=-1), "a": Dict({{"0": Box(-2, 2, (2,), np.int32), "1": MultiBinary(2)}}), "c": Tuple([Discrete(2)])}})
numbered = Dict({{"0": Discrete(2), "1": Box(0.1, 0.3, (2,), np.float64)}})
half = Box(np.float16([-65504, 0.1]), np.float16([65504, 0.3]), dtype=np.float16)
several = Tuple((MultiDiscrete([3, 2], start=[5, -1]), half, numbered))
alone = [Box(3, 7, (), np.int32), Box(0.1, 0.3, (), np.float64), Box(250, 255, (2,), np.uint8), Discrete(3, start=4)]
alone += [MultiDiscrete([2, 4], dtype=np.int32), MultiBinary((2, 2)), Box(-1, 1, (2,))]
seen = np.zeros((3, 4), np.float32)
for space in [nested, numbered, several, *alone]:
    batch = batch_space(space, 3)
    vector = types.SimpleNamespace(action_space=batch, single_action_space=space)
    for MEAN[0] in (-1e30, 0.2, 1e30):
        for env in ("its", vector):
            its = blank(Box(-9, 9, (4,)), space, env=env)
            one = its.act(seen[0])
            assert type(one) is int or isinstance(one, (np.ndarray, dict, tuple)), type(one)
            assert space.contains(one), (space, one)
            its.reset()
            assert batch.contains(its.act(seen)), space
            its.reset()
            its.act(seen[:2])
bare = blank(Box(-9, 9, (4,)), numbered).act(seen[0])
assert isinstance(bare, tuple) and bare[1].dtype == np.float32  # as the paths say
try:
    blank(Box(-9, 9, (4,)), numbered, env=types.SimpleNamespace(action_space=nested))
except flotilla.Error as error:
    assert "env.action_space has leaves ['a/0', 'a/1', 'a/b', 'c/0'], want ['0', '1']" in str(error), error
else:
    raise AssertionError("another environment's spaces were taken")
""")


def test_a_mask_is_heeded_however_it_is_told(home, script):
    """As environments may tell it, flotilla_gym/masks.py: end to end in the action's own order, or nested like it."""
    script(f"""{BLANK}
does = Dict([("b", Discrete(3)), ("a", MultiDiscrete([2, 3]))])
flat = np.int8([1, 0, 0, 1, 0, 0, 1, 0])
nested = {{"b": flat[:3], "a": (flat[3:5], flat[5:])}}
wanted = {{"b": 0, "a": [0, 1]}}

def check(action, n=None):
    for key, value in wanted.items():
        assert np.array_equal(action[key], value if n is None else [value] * n), action

seen = np.zeros(4, np.float32)
told = blank(Box(-9, 9, (4,)), does, {{"action_mask": flat}}, "its")
for mask in (flat, list(flat), [flat[:3], flat[3:5], flat[5:]], nested):
    check(told.act(seen, mask=mask))
free = told.act(seen, mask=True)
assert free["b"] == 2 and list(free["a"]) == [1, 2]
told.reset()
check(told.act(np.stack([seen] * 2), mask=np.stack([flat] * 2)), 2)
whole = MultiBinary(8)
for mask, space in ((flat, whole), (nested, Dict({{"b": MultiBinary(3), "a": Tuple([MultiBinary(2), MultiBinary(3)])}}))):
    own = blank(Dict({{"x": Box(-9, 9, (4,)), "action_mask": space}}), does, env="its")
    check(own.act({{"x": seen, "action_mask": mask}}))
one = blank(Box(-9, 9, (4,)), does["a"], {{"action_mask": nested["a"]}})
assert list(one.act(seen, mask=nested["a"])) == list(one.act(seen, mask=list(nested["a"]))) == [0, 1]
assert one.reset() is None and one.act(seen[None], mask=[flat[3:]]).tolist() == [[0, 1]]

def refused(act, *words):
    try:
        act()
    except flotilla.Error as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError("it acted")

told.reset()
refused(lambda: told.act(seen), 'observation "action_mask/a" is missing, want uint8 [5]', 'mask=info["action_mask"]', "mask=True")
refused(lambda: own.act({{"x": seen}}), 'observation "action_mask/a" is missing')
refused(lambda: told.act(seen, mask=flat[:7]), "the mask is int8 [7], want 8 values")
refused(lambda: told.act(seen, mask=False), "the mask is bool [], want 8 values")
""")


def test_metrics_and_configuration_are_read(home, script):
    run = home.trained("mlp")
    said = script(f"""
run = flotilla.Run({str(run)!r})
columns, rows = run.metrics(), run.rows()
assert len(rows) == len(columns["global_step"]) == 2 and columns["global_step"][-1] == 4096
assert columns["losses/entropy"][0] == rows[0]["losses/entropy"]
print(run.config.env.id, run.config.ppo.epochs, run.summary["status"], len(run.checkpoints()))
with open(run.path / "metrics.jsonl", "a") as file:
    file.write('{{"global_step": 6144, "upd')
assert len(run.rows()) == 2
from flotilla.v1 import config_pb2, env_pb2
assert isinstance(run.config, config_pb2.RunConfig)
""")
    assert said.split()[0] == "CartPole-v1" and said.split()[2] == "completed"


def test_a_checkpoint_is_read_whole_while_its_run_goes_on(home, script, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(home.trained("mlp"), run, symlinks=True)
    shutil.copytree((home.trained("mask") / "checkpoints" / "latest").resolve(), run / "checkpoints" / "step_next")
    script(f"""
import os, pathlib
from flotilla.checkpoint import Checkpoint

latest = pathlib.Path({str(run)!r}) / "checkpoints" / "latest"

class Meanwhile(Checkpoint):
    def _read_sums(self):
        sums = super()._read_sums()
        os.symlink("step_next", latest.with_name("next"))
        latest.with_name("next").replace(latest)
        return sums

was = latest.resolve()
assert Meanwhile(latest).folder == was != latest.resolve()
""")


def test_generated_messages_elsewhere_are_of_the_same_package(home, python, tmp_path):
    """Those of our services lie in a folder of the user's, as in README's other sections; whichever comes first."""
    (tmp_path / "made").mkdir()
    protos = ["-m", "grpc_tools.protoc", f"-I{SOURCE}/proto", "--python_out=made", "--grpc_python_out=made"]
    files = [f"flotilla/v1/{name}.proto" for name in ("range", "config", "env", "summary", "coordinator")]
    subprocess.run([sys.executable, *protos, *files], cwd=tmp_path, check=True, timeout=TIMEOUT)
    for paths in (f"sys.path.append({str(tmp_path / 'made')!r})", f"sys.path.insert(0, {str(tmp_path / 'made')!r})"):
        python.run(f"import sys\n{paths}\nfrom flotilla.v1 import coordinator_pb2_grpc, env_pb2\nimport flotilla\nassert flotilla.load", tmp_path)


def test_a_torchscript_network_loads_as_itself(home, script, python, tmp_path):
    python.run(
        """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh())
        self.policy, self.value = torch.nn.Linear(32, 2), torch.nn.Linear(32, 1)

    def forward(self, observation: torch.Tensor):
        x = self.trunk(observation)
        return self.policy(x), self.value(x)

torch.jit.script(Net()).save("net.pt")
""",
        tmp_path,
    )
    job = home.train(
        home.config("diagnostics"), "--set=total_env_steps=4096", "--set=env.id=Continuous",
        f"--set=model.torchscript={tmp_path}/net.pt", run_dir="own",
    )  # fmt: skip
    job.succeeds()
    run = home.folder / "own"
    ((compared, _, apart),) = acts(home, script, (run, run))
    assert compared == 512 and apart < 1e-5
    done = home.run("export", run, "--onnx", tmp_path / "own.onnx")
    assert done.returncode == 0, done.stderr
    assert told(done.stdout, "greedy decisions")[1] <= 1e-5
    # What was pushed trains where it is: the folder that the file was named in is not there.
    hub = tmp_path / "hub"
    assert home.run("push", run, "--out", hub, "--dry-run").returncode == 0
    (tmp_path / "net.pt").unlink()
    commands = re.findall(r"^flotilla (train .*)$", (hub / "README.md").read_text(), re.M)
    assert len(commands) == 2 and all("--set model.torchscript=network.pt" in command for command in commands)
    for command in commands:
        done = subprocess.run(
            [BIN / "flotilla", *command.split(), "--dry-run"], cwd=hub, env=home.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"


# ---- As ONNX


def told(text, what):
    """(decisions, largest difference, allowed difference) that an export tells of."""
    count, of, largest, allowed = LARGEST.search(text).groups()
    assert of.startswith(what), text
    return int(count), float(largest), float(allowed)


def exported(home, script, *kinds, sample=False):
    """What exports to KIND.onnx say of their checks. All of one process, for torch takes seconds to import."""
    runs = [(kind, str(home.trained(kind)), str(recorded(home, home.trained(kind)))) for kind in kinds]
    said = script(f"""
from flotilla import export
for kind, run, decisions in {runs!r}:
    print(export.export(export.Checkpoint(run), f"{{kind}}.onnx", export.Decisions(decisions), sample={sample}).splitlines()[1])
""")
    return said.splitlines()


def test_the_file_decides_as_the_program_does(home, script):
    for kind, line in zip(KINDS, exported(home, script, *KINDS), strict=True):
        count, largest, allowed = told(line, "greedy decisions of the program's own policy")
        # RESNET's features are large enough here for the weights' last bits to count.
        assert allowed == 1e-5 or kind == "nested" and allowed < 1e-4, kind
        assert count == 512 and largest <= allowed, kind


def test_a_file_that_samples_draws_as_the_module_does(home, script, tmp_path):
    kinds = ("continuous", "nested")
    for kind, line in zip(kinds, exported(home, script, *kinds, sample=True), strict=True):
        count, largest, allowed = told(line, "samples by the same numbers")
        assert count == 512 and largest <= allowed and (allowed == 1e-5 or kind == "nested" and allowed < 1e-4)
    done = home.run("export", home.trained("q"), "--onnx", tmp_path / "q.onnx", "--sample", "--decisions", 100)
    refused(done, "a Q-network has no distribution to draw from")
    assert not (tmp_path / "q.onnx").exists()


def test_inputs_and_outputs_are_leaves(home, script, tmp_path):
    import onnxruntime

    done = home.run("export", home.trained("nested"), "--onnx", tmp_path / "nested.onnx", "--sample", "--decisions", 20)
    assert done.returncode == 0, done.stderr
    assert told(done.stdout, "samples by the same numbers")[0] == 20
    exported(home, script, "mlp", "image", "tuple")

    def names(kind):
        session = onnxruntime.InferenceSession(tmp_path / f"{kind}.onnx", providers=["CPUExecutionProvider"])
        inputs = {put.name: (put.type, put.shape[1:]) for put in session.get_inputs()}
        assert all(put.shape[0] == "N" for put in session.get_inputs())
        return inputs, [put.name for put in session.get_outputs()]

    assert names("mlp") == ({"observation": ("tensor(float)", [4])}, ["action", "value"])
    inputs, outputs = names("nested")
    # Frames of a stack are an axis of their own; the newest is last.
    assert inputs == {
        "action_mask": ("tensor(uint8)", [5]),
        "goal": ("tensor(float)", [3, 2]),
        "hint": ("tensor(int64)", []),
        "rgb": ("tensor(uint8)", [2, 36, 36, 3]),
        "state": ("tensor(float)", [16]),
        "uniform": ("tensor(float)", [2]),
    }
    assert outputs == ["action", "value", "next_state"]
    assert names("image")[1] == ["action/flags", "action/image", "value"]
    assert list(names("tuple")[0]) == ["observation/0", "observation/1", "observation/2"]


def test_a_file_that_disagrees_is_not_left(home, script, tmp_path):
    """Whatever is wrong: a value, a weight, the scaling, a choice. What was there before stays."""
    (tmp_path / "policy.onnx").write_text("before")
    said = script(f"""
import pathlib
from flotilla import export
from flotilla.checkpoint import Checkpoint

def attempt(run, decisions, spoil):
    checkpoint, data = Checkpoint(run), export.Decisions(decisions)
    spoil(checkpoint, data.tensors)
    try:
        export.export(checkpoint, "policy.onnx", data)
    except flotilla.Error as error:
        print(error)
    assert pathlib.Path("policy.onnx").read_text() == "before"

def value(checkpoint, tensors):
    tensors["value"] = tensors["value"] + np.where(np.arange(512) == 300, np.float32(1e-4), 0)

def choice(checkpoint, tensors):
    tensors["discrete"] = np.where(np.arange(512)[:, None] == 7, 1 - tensors["discrete"], tensors["discrete"])

def scaling(checkpoint, tensors):
    sums = checkpoint.state["normalizer.observation_sums"].copy()
    sums[1] += 1
    checkpoint.state["normalizer.observation_sums"] = sums

def memory(checkpoint, tensors):
    begins = tensors["begins"].copy()
    begins[100] = 1 - begins[100]
    tensors["begins"] = begins

mlp, continuous, lstm = {[(str(home.trained(kind)), str(recorded(home, home.trained(kind)))) for kind in ("mlp", "continuous", "lstm")]!r}
attempt(*mlp, value)
attempt(*mlp, choice)
attempt(*continuous, scaling)
attempt(*lstm, memory)
""")
    lines = said.splitlines()
    assert len(lines) == 4
    for line, of in zip(lines, ("a value has a difference of", "a choice has another value", "a difference of", "a difference of")):
        assert of in line and "policy.onnx was not written" in line and "want at most 1e-05" in line
    assert list(tmp_path.glob("policy.onnx.*")) == []


def test_squashed_actions_are_measured_by_their_bounds(home, script):
    """Where those are wide, the last bits of a mean near 0 are more than 1e-3 of an action."""
    run = home.trained("squashed")
    script(f"""
import copy, torch
from flotilla import decisions, network
from flotilla.checkpoint import Checkpoint

checkpoint, data = Checkpoint({str(run)!r}), decisions.Decisions({str(recorded(home, run))!r})
(action,) = checkpoint.spec.action
action.low[:], action.high[:] = [-1e5], [1e5]
module = network.make(checkpoint)

def seen(leaves):
    return {{leaf.path: torch.tensor(x) for leaf, x in zip(module.spec.observation, leaves)}}

def act(policy, leaves):
    with torch.no_grad():
        return policy.decide(seen(leaves))[1].numpy()

_, leaves, _ = next(data.play(module))
with torch.no_grad():
    module._mean.bias().sub_(module(seen(leaves)).policy[0])  # the first action is 0, but for rounding
    other = copy.deepcopy(module)
    other._mean.bias().add_(3e-7)
assert decisions.difference(act(other, leaves), act(module, leaves)) > 1e-3
data.tensors["continuous"] = np.zeros_like(data.tensors["continuous"])
for indices, leaves, _ in data.play(module):
    data.tensors["continuous"][indices] = act(other, leaves)

check = decisions.Check(module, decisions.tolerance(module, data))
check.recorded(data, lambda leaves, state: {{"continuous": act(module, leaves)}})
assert check.tolerance < 5e-5 and 0 < check.largest < 1e-6, (check.tolerance, check.largest)
check.refuse("it", "the policy")
data.tensors["continuous"] += 10  # of 1e5
check.recorded(data, lambda leaves, state: {{"continuous": act(module, leaves)}})
try:
    check.refuse("it", "the policy")
except flotilla.Error as error:
    assert "an action has a difference of 0.0001" in str(error), error
else:
    raise AssertionError("another policy was taken")
""")


# ---- What is no policy


def test_what_cannot_be_taken_home_is_told_in_one_line(home, script, tmp_path):
    run = home.trained("mlp")

    attempts = []  # (expression, words of the one line that it gives)

    def one_line(expression, *words):
        attempts.append((expression, words))

    def attempt(path, rest="", more=""):
        return f"flotilla.load({str(path)!r}{more}){rest}"

    one_line(attempt(tmp_path / "nowhere"), f'"{tmp_path}/nowhere" is no run\'s folder: it does not exist')
    one_line(attempt(tmp_path), "is no run's folder: it has no config.textproto")
    one_line(attempt(run, more=", checkpoint='bets'"), 'has no checkpoint "bets"', "latest")
    one_line(attempt(run, ".act([1.0, 2.0])"), "the observation is float64 [2], want float32 [4]")
    one_line(attempt(run, ".act({'position': 1.0})"), "the observation is object [], want float32 [4]")
    one_line(attempt(run, ".act([float('nan')] * 4)"), "the observation holds a number that is not finite")
    nested = home.trained("nested")
    one_line(attempt(nested, ".act({'rgb': np.zeros((36, 36, 3), np.uint8)})"), 'observation "goal" is missing, want float32 [2]')
    info = home.trained("info")  # which says in `info` what is allowed
    one_line(attempt(info, ".act(0)"), 'observation "action_mask" is missing, want uint8 [6]', 'give act() mask=info["action_mask"]', "mask=True")
    one_line(attempt(info, ".act(0, mask=True)"), "nothing is wrong")
    one_line(attempt(run, ".act([0.0] * 4, mask=[1, 1])"), "the policy knows of no mask")

    def spoiled(change):
        folder = tmp_path / f"spoiled{len(attempts)}"
        shutil.copytree((run / "checkpoints" / "latest").resolve(), folder)
        shutil.copy(run / "environment.textproto", folder)
        change(folder)
        return folder

    def cut(folder):
        data = (folder / "weights.safetensors").read_bytes()
        (folder / "weights.safetensors").write_bytes(data[: len(data) // 2])

    def configured(was, now):
        def change(folder):
            config = (folder / "config.textproto").read_text()
            assert was in config
            (folder / "config.textproto").write_text(config.replace(was, now, 1))
            sums = subprocess.run("sha256sum *.safetensors *.json config.textproto > SHA256SUMS", shell=True, cwd=folder)
            assert sums.returncode == 0

        return change

    one_line(attempt(spoiled(lambda folder: None)), "nothing is wrong")
    one_line(attempt(spoiled(cut)), "weights.safetensors is not what was written", "use another checkpoint")
    one_line(attempt(spoiled(lambda folder: (folder / "SHA256SUMS").unlink())), "has no SHA256SUMS")
    one_line(attempt(spoiled(lambda folder: (folder / "environment.textproto").unlink())), "no environment.textproto", "resume the run")
    one_line(attempt(spoiled(lambda folder: (folder / "environment.textproto").write_text("observation {"))), "is no EnvSpec")
    vast = "observation { dtype: FLOAT32 shape: 4 } action { dtype: INT64 num_values: 2 shape: 4000000000000 }"
    one_line(attempt(spoiled(lambda folder: (folder / "environment.textproto").write_text(vast))), 'an action "" that no environment')
    one_line(attempt(spoiled(configured("model {", 'model { plugin: "net.so"'))), 'model.plugin is "net.so"', "C++ shared library")
    one_line(attempt(spoiled(configured("share_trunk: false", "share_trunk: true"))), "of another network", 'want a tensor "trunk.0.weight" of')

    said = script(f"""
for expression in {[expression for expression, _ in attempts]!r}:
    try:
        eval(expression)
        print("nothing is wrong")
    except flotilla.Error as error:
        print(error)
""")
    for (expression, words), line in zip(attempts, said.splitlines(), strict=True):
        assert all(word in line for word in words), f"{expression}: {line}"

    refused(home.run("export", tmp_path, "--onnx", "x"), "is neither a run's folder nor a checkpoint")
    refused(home.run("export", run, "--onnx", "/no/where/x.onnx"), "cannot write /no/where/x.onnx: No such file")
    refused(home.run("push", run), "--repo USER/NAME")
    refused(home.run("push", run, "--dry-run", "--onnx", "none.onnx"), "none.onnx is no file")
    done = home.run("export", run, "--onnx", "x", env={"PYTHONPATH": ""})
    refused(done, "this needs torch onnx onnxruntime numpy protobuf", "-m pip install", code=1)


def test_the_readme_is_true(home, python, tmp_path):
    section = guide("launcher", "Take the policy home")
    blocks = dict(re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", section))
    assert set(blocks) == {"", "python"}
    shutil.copytree(home.trained("mlp"), tmp_path / "runs" / "first", symlinks=True)
    (tmp_path / "build").symlink_to(BIN.parent)
    for command in blocks[""].splitlines():
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=home.env, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"
    assert (tmp_path / "policy.onnx").exists()
    python.run(blocks["python"], tmp_path)
