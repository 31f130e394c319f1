"""What the package `flotilla` decides without a run."""

import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("FLOTILLA_BIN", SOURCE / "build" / "bin"))
sys.path.insert(0, str(BIN.parent / "share" / "flotilla" / "python"))
from flotilla import checkpoint, display, own_env, push  # noqa: E402
from flotilla.flags import Flags  # noqa: E402
from flotilla.given_rank import count_processes  # noqa: E402
from flotilla.overrides import assignments  # noqa: E402
from flotilla.v1 import config_pb2, env_pb2  # noqa: E402
from google.protobuf import text_format  # noqa: E402


# ---- Words


def test_an_argument_of_an_environment_is_one_value():
    weights = {"a": 1.0, "b": [1, 2]}
    for fields in ({"env.options.kwargs.w": weights}, {"env": {"options": {"kwargs": {"w": weights}}}}):
        assert assignments(fields) == ['env.options.kwargs.w={"a": 1.0, "b": [1, 2]}']
    assert assignments({"ppo": {"epochs": 8}}) == ["ppo.epochs=8"]


def test_names_in_capitals_are_no_enumerations_where_texts_are_wanted():
    leaves = [{"path": "RGB", "encoder": "MLP"}, {"path": "goal"}]
    assert assignments({"model": {"leaf": leaves}}) == ['model.leaf={path: "RGB" encoder: MLP}', 'model.leaf={path: "goal"}']


def test_flags_are_read_as_the_program_reads_them():
    flags = Flags(["--token-file", "a", "--token_file=b", "--dry_run", "--insecure=false", "--tls-ca", "c", "--", "--nnodes"])
    assert flags.text("--token-file") == "b" and flags.text("--tls-ca") == "c" and flags.text("--tls-key") == ""
    assert flags.switch("--dry-run") and not flags.switch("--insecure") and not flags.switch("--standalone")
    assert not flags.name_topology and Flags(["--nproc=2"]).name_topology and Flags(["--standalone"]).name_topology
    words = ["--set", "ppo.epochs=8", "--seed=3", "--set=env.id=A", "--env", "B"]
    assert Flags(words).assignments == ["ppo.epochs=8", "seed=3", "env.id=A", "env.id=B"]
    assert Flags(["--total_timesteps=9", "--env-id", "C"]).assignments == ["total_env_steps=9", "env.id=C"]


@pytest.mark.parametrize(
    "processes, variables",
    [
        (0, {}),
        (4, {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}),
        (1, {"RANK": "0"}),  # not all of them, which the program says
        (2, {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"}),
        (1, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "2"}),
        (0, {"SLURM_STEP_ID": "4294967291", "SLURM_NTASKS": "2"}),  # a batch script
        (0, {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_PTY_PORT": "7"}),
        (0, {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}),
        (3, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}),
    ],
)
def test_processes_that_another_launcher_started_are_counted(processes, variables):
    assert count_processes(variables) == processes


# ---- Environments


class Made(gymnasium.Env):
    pass


@pytest.mark.parametrize("words", [["--set", "env.retry=retry-renew"], ["--set=env.retry=Retry_Renew"], ["--set=env.retry=RETRY_RESET"], []])
def test_workers_are_told_what_becomes_of_what_failed(words, tmp_path):
    sets = ["env.retry=retry_renew"] if not words else []
    served = own_env.of(Made, False, "cartpole_ppo", sets, Flags(words))
    server = served.fields(tmp_path, 1)["env.server"]
    assert server.endswith(" --renew_failed=1") == ("RESET" not in str(words)), server


# ---- Progress


def update(step):
    return json.dumps({"global_step": step, "charts/SPS": 1.0}) + "\n"


_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib, gymnasium
from flotilla import own_env
from flotilla.flags import Flags

class Corridor(gymnasium.Wrapper):
    size = {size}
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))

def short():
    return Corridor()

for make in (Corridor, short):
    print(own_env.of(make, False, "cartpole_ppo", [], Flags([])).fields(pathlib.Path(sys.argv[2]), 1)["env.server"])
"""


def test_every_process_of_a_script_names_the_same_environment(tmp_path):
    """As the ranks of a run have to, and a run that goes on."""

    def named(size):
        words = [sys.executable, "-c", _SCRIPT.format(size=size), sys.path[0], tmp_path]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

    first, again, other = named(5), named(5), named(6)
    assert len(set(first)) == 2 and first == again and not set(first) & set(other)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("lines", [2, 9])
def test_progress_goes_on_with_the_file_that_a_resumed_run_has(lines, tmp_path):
    path, new = tmp_path / "metrics.jsonl", tmp_path / "new"
    progress = display.Progress(path)
    assert not progress.poll() and progress.row == {}
    path.write_text("".join(map(update, range(100, 105))))
    assert progress.poll() and progress.row["global_step"] == 104
    assert not progress.poll()
    new.write_text("".join(map(update, range(200, 200 + lines))))
    os.replace(new, path)
    assert progress.poll() and progress.row["global_step"] == 199 + lines
    with open(path, "a") as file:
        file.write(update(300))
    assert progress.poll() and progress.row["global_step"] == 300


# ---- What a policy decides


@pytest.mark.parametrize("low, high", [(0.0, 1e6), (-1e5, 1e5), (-1e6, 0.0), (-2.0, 2.0), (-3e38, 3e38)])
def test_squashed_actions_are_the_learners_however_wide_their_bounds(low, high):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from flotilla.network import Output, SquashedActor

    class Squashed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("low", torch.tensor([low], dtype=torch.float32))
            self.register_buffer("high", torch.tensor([high], dtype=torch.float32))

        def forward(self, mean, log_std, normal):
            output = Output(mean, log_std, None, None)
            return SquashedActor._continuous(self, output, None), SquashedActor._continuous(self, output, normal)

    random = np.random.default_rng(1)
    mean = np.linspace(-8, 8, 161, dtype=np.float32)[:, None]
    log_std = np.full_like(mean, -1)
    normal = random.standard_normal(mean.shape, np.float32)
    least, most = np.float32(low), np.float32(high)

    def wanted(u):  # as SquashKernel of learner/cuda/sampling.h
        share = (np.tanh(u) + 1) / 2
        return np.clip((np.float64(least) + (np.float64(most) - np.float64(least)) * share).astype(np.float32), least, most)

    module, inputs = Squashed().eval(), (mean, log_std, normal)
    tensors = tuple(map(torch.tensor, inputs))
    out = io.BytesIO()
    names = ["mean", "log_std", "normal"]
    torch.onnx.export(module, tensors, out, input_names=names, opset_version=17, dynamo=False)
    session = onnxruntime.InferenceSession(out.getvalue(), providers=["CPUExecutionProvider"])
    double = mean.astype(np.float64)
    want = wanted(double), wanted(double + np.exp(log_std.astype(np.float64)) * normal)
    traced = torch.jit.trace(module, tensors)
    for got in (module(*tensors), traced(*tensors), session.run(None, dict(zip(names, inputs)))):
        for one, other in zip(got, want):
            one = np.asarray(one)
            assert one.dtype == np.float32
            near = 1e-11 * (float(most) - float(least))  # where numbers near 0 are differences of large ones
            assert np.allclose(one, other, rtol=3e-7, atol=near)


# ---- What is shared


def write_checkpoint(run, model):
    config = config_pb2.RunConfig()
    text_format.Parse(f'env {{ id: "CartPole-v1" }} model {{ hidden: 16 {model} }} ppo {{ epochs: 3 }}', config)
    spec = env_pb2.EnvSpec(
        env_id="CartPole-v1",
        observation=[env_pb2.Leaf(dtype=env_pb2.FLOAT32, shape=[4])],
        action=[env_pb2.Leaf(dtype=env_pb2.INT64, num_values=2)],
    )
    files = {
        checkpoint.WEIGHTS: checkpoint.format_safetensors({"policy.weight": np.zeros(3, np.float32)}),
        checkpoint.STATE: checkpoint.format_safetensors({}),
        checkpoint.PROGRESS: b'{"global_step": 4096, "update": 4}',
        checkpoint.CONFIG: text_format.MessageToString(config).encode(),
    }
    run.mkdir()
    for name, data in files.items():
        (run / name).write_bytes(data)
    (run / checkpoint.SUMS).write_text("".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()))
    (run / checkpoint.ENVIRONMENT).write_text(text_format.MessageToString(spec))
    return config


def test_what_is_pushed_names_no_path_of_the_run_that_it_began_with(tmp_path):
    run, hub = tmp_path / "run", tmp_path / "hub"
    config = write_checkpoint(run, 'init_from: "/home/me/runs/first"')
    shared = push.write(checkpoint.Checkpoint(run), hub, "someone/it")
    assert not any(b"/home/me" in path.read_bytes() for path in shared)
    assert "began with what another one had learned" in (hub / push.CARD).read_text()
    config.model.ClearField("init_from")
    assert checkpoint.Checkpoint(hub).config == config  # by its own sum


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("names", [[checkpoint.SUMS, checkpoint.WEIGHTS], ["README.md"], ["config.textproto"], ["policy.onnx"]])
def test_what_is_pushed_replaces_nothing_that_push_did_not_write(names, tmp_path):
    write_checkpoint(tmp_path / "run", "")
    there = tmp_path / "there"
    there.mkdir()
    for name in names:
        (there / name).write_text("mine")
    with pytest.raises(push.Error, match=f"holds what push did not write .*{names[0]}"):
        push.write(checkpoint.Checkpoint(tmp_path / "run"), there, "someone/it")
    assert contents(there) == {name: b"mine" for name in names}


def test_what_cannot_be_pushed_leaves_what_was_there(tmp_path):
    write_checkpoint(tmp_path / "run", "")
    write_checkpoint(tmp_path / "other", 'torchscript: "net.pt"')
    hub = tmp_path / "hub"
    push.write(checkpoint.Checkpoint(tmp_path / "run"), hub, "someone/it")
    before = contents(hub)
    with pytest.raises(push.Error, match="there is no network.pt"):
        push.write(checkpoint.Checkpoint(tmp_path / "other"), hub, "someone/it")
    assert contents(hub) == before
    push.write(checkpoint.Checkpoint(tmp_path / "run"), hub, "someone/it")
    assert contents(hub) == before
