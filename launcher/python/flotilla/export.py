"""`flotilla export`: a policy as an ONNX file, checked against decisions of the program's own policy."""

import io
import os
import pathlib
import warnings

import numpy as np
import torch

from flotilla import network
from flotilla.checkpoint import Checkpoint
from flotilla.decisions import Check, Decisions, difference, tolerance, unit_of_actions
from flotilla.errors import Error
from flotilla.push import ONNX_WEIGHTS

OPSET = 17
# Of numbers between 0 and 1, by which samples are drawn.
NUDGE = 1e-6


class Exported(torch.nn.Module):
    """PolicyModule.decide with positional arguments, named by `inputs` and `outputs`."""

    def __init__(self, module, sample):
        super().__init__()
        self.module, self.sample, self.spaces = module, sample, module.spaces
        if sample and module.algorithm == "dqn":
            raise Error("a Q-network has no distribution to draw from; leave --sample out")

        def free(name):
            while name in self.inputs:
                name += "_"
            return name

        # The exporter takes names that are numbers, a Tuple's, for its own.
        paths = [leaf.path for leaf in module.spec.observation]
        self.inputs = ["observation" if not path else f"observation/{path}" if path.isdigit() else path for path in paths]
        if module.state_size:
            self.inputs.append(free("state"))
        self.uniform = free("uniform")
        if sample and self.spaces.num_values:
            self.inputs.append(self.uniform)
        if sample and self.spaces.continuous:
            self.inputs.append(free("normal"))
        self.outputs = [free(f"action/{leaf.path}" if leaf.path else "action") for leaf in self.spaces.actions]
        if self.has_value:
            self.outputs.append(free("value"))
        if module.state_size:
            self.outputs.append(free("next_state"))

    @property
    def has_value(self):
        return self.module.algorithm != "sac"

    def forward(self, *tensors):
        tensors = list(tensors)
        observation = {leaf.path: tensors.pop(0) for leaf in self.module.spec.observation}
        state = tensors.pop(0) if self.module.state_size else None
        uniform = tensors.pop(0) if self.sample and self.spaces.num_values else None
        normal = tensors.pop(0) if self.sample and self.spaces.continuous else None
        discrete, continuous, value, state = self.module.decide(observation, state, uniform, normal)
        out = []
        for leaf in self.spaces.actions:
            columns = (discrete if leaf.discrete else continuous)[:, leaf.first : leaf.first + leaf.elements]
            out.append(columns.reshape([-1, *leaf.shape]))
        if self.has_value:
            out.append(value)
        if self.module.state_size:
            out.append(state)
        return tuple(out)

    def noise(self, rows, random):
        noise = []
        if self.sample and self.spaces.num_values:
            noise.append(random.random((rows, len(self.spaces.num_values)), np.float32))
        if self.sample and self.spaces.continuous:
            noise.append(random.standard_normal((rows, self.spaces.continuous), np.float32))
        return noise


def session(data):
    try:
        import onnxruntime
    except ImportError as error:
        raise Error(f"the check needs onnxruntime ({error}); run: python -m pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def to_onnx(exported, decisions):
    """The bytes of the file."""
    indices = next(iter(decisions.steps()))[:2]
    leaves = []
    for leaf in exported.module.spec.observation:
        k, x = exported.module.frames[leaf.path], torch.tensor(decisions.tensors[f"observation.{leaf.path}"][indices])
        leaves.append(x.unsqueeze(1).repeat_interleave(k, 1) if k > 1 else x)
    size = exported.module.state_size
    example = [*leaves, *([torch.zeros(len(indices), size)] if size else [])]
    example += [torch.tensor(x) for x in exported.noise(len(indices), np.random.default_rng(0))]
    out = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = exported
            if isinstance(exported.module, network.OwnNetwork):  # the exporter's own trace cannot enter TorchScript
                program = torch.jit.trace(exported, tuple(example), check_trace=False)
            # The exporter behind dynamo=True would need onnxscript besides.
            torch.onnx.export(
                program, tuple(example), out, input_names=exported.inputs, output_names=exported.outputs, opset_version=OPSET,
                dynamic_axes={name: {0: "N"} for name in exported.inputs + exported.outputs}, dynamo=False,
            )  # fmt: skip
    except (RuntimeError, torch.onnx.OnnxExporterError) as error:
        gist = str(error).strip().splitlines()
        raise Error(f"torch {torch.__version__} cannot write this network as ONNX: {gist[0] if gist else repr(error)}") from None
    return out.getvalue()


def _signed(data, weights):
    """The file, saying whose weights it has."""
    import onnx  # which the exporter needs, too

    model = onnx.load_from_string(data)
    model.metadata_props.add(key=ONNX_WEIGHTS, value=weights)
    return model.SerializeToString()


def check_greedy(exported, run, decisions, check):
    """`run(feeds)` returns the outputs in order."""
    spaces = exported.spaces

    def decide(leaves, state):
        arrays = [*leaves, *([state] if state is not None else [])]
        out = dict(zip(exported.outputs, run(dict(zip(exported.inputs, arrays)))))
        rows = len(leaves[0])
        told = {"discrete": np.zeros((rows, len(spaces.num_values)), np.int64), "continuous": np.zeros((rows, spaces.continuous), np.float32)}
        for name, leaf in zip(exported.outputs, spaces.actions):
            told["discrete" if leaf.discrete else "continuous"][:, leaf.first : leaf.first + leaf.elements] = out[name].reshape(rows, -1)
        rest = exported.outputs[len(spaces.actions) :]
        if exported.has_value:
            told["value"] = out[rest.pop(0)]
        if rest:
            told["state"] = out[rest.pop(0)]
        return told

    check.recorded(decisions, decide)


def check_samples(exported, run, decisions, check):
    """The file's samples are the module's, by the same numbers."""
    random, units = np.random.default_rng(1), unit_of_actions(exported.module)
    of_output = {
        name: units[leaf.first : leaf.first + leaf.elements].reshape(leaf.shape)
        for name, leaf in zip(exported.outputs, exported.spaces.actions)
        if not leaf.discrete
    }
    for _, leaves, state in decisions.play(exported.module):
        arrays = [*leaves, *([state] if state is not None else []), *exported.noise(len(leaves[0]), random)]
        wanted, below, above = (_nudged(exported, arrays, by) for by in (0, -NUDGE, NUDGE))
        outputs = run(dict(zip(exported.inputs, arrays)))
        for i, (name, got) in enumerate(zip(exported.outputs, outputs)):
            apart = difference(got, wanted[i], of_output.get(name, 1.0))
            if apart and got.dtype == np.int64:  # a number at the border of two values is either's
                near = (got == wanted[i]) | (got == below[i]) | (got == above[i])
                check.ties += int((got != wanted[i]).sum())
                apart = 0.0 if near.all() else np.inf
            check.note(f'"{name}" of a sample', apart)
        check.decisions += len(leaves[0])


def _nudged(exported, arrays, by):
    """What it samples by uniform numbers that are a little off."""
    arrays = [np.clip(x + np.float32(by), 0, 1) if name == exported.uniform else x for name, x in zip(exported.inputs, arrays)]
    with torch.no_grad():
        return [x.numpy() for x in exported(*map(torch.tensor, arrays))]


def export(checkpoint, path, decisions, sample=False):
    """Writes `path`, or leaves it as it was. Returns a line to print."""
    weights = checkpoint.weights_sha256
    module = network.make(checkpoint)
    exported = Exported(module, sample).eval()

    def torch_run(feeds):
        with torch.no_grad():
            return [x.numpy() for x in greedy(*(torch.tensor(x) for x in feeds.values()))]

    greedy = exported if not sample else Exported(module, sample=False).eval()
    allowed = tolerance(module, decisions)
    check = Check(module, allowed)
    check_greedy(greedy, torch_run, decisions, check)
    check.refuse(path, "the policy in torch")
    data = _signed(to_onnx(exported, decisions), weights)
    runtime = session(data)
    check = Check(module, allowed)
    (check_samples if sample else check_greedy)(exported, lambda feeds: runtime.run(None, feeds), decisions, check)
    check.refuse(path, "the file in onnxruntime")
    temporary = pathlib.Path(f"{path}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Error(f"cannot write {path}: {error.strerror}") from None
    ties = f" ({check.ties} between equals)" if check.ties else ""
    kind = "samples by the same numbers" if sample else "greedy decisions of the program's own policy"
    return (
        f"{path}: {', '.join(exported.inputs)} -> {', '.join(exported.outputs)}\n"
        f"checked with onnxruntime against {check.decisions} {kind}{ties}: the largest difference is {check.largest:.2g} of {check.tolerance:.2g}"
    )


def main(options):
    decisions = Decisions(options.decisions)
    checkpoint = Checkpoint(options.run, spec=decisions.spec)
    print(export(checkpoint, options.onnx, decisions, options.sample))
