"""What a network sees and does, from an environment's specification and a configuration: what services/env/spaces.cc
and services/env/encoder_plan.cc make of them, with the same names, for specifications that a learner has taken."""

import dataclasses
import math

from flotilla.run import messages

LEAST_IMAGE = 36
LEAST_NATURE = 36
VECTOR, IMAGE, DISCRETE, MASK = "vector", "image", "discrete", "mask"


@dataclasses.dataclass
class Part:
    """Where the numbers of one leaf of the environment go."""

    leaf: int  # of EnvSpec.observation
    elements: int
    one_hot: list  # of each element: how many values; []: as numbers
    column: int = 0
    columns: int = 0


@dataclasses.dataclass
class LeafSpec:
    """One array that a network encodes: a leaf of the environment's, or several joined end to end."""

    path: str
    kind: str = VECTOR
    shape: list = dataclasses.field(default_factory=list)  # of one row, without the stack
    stack: int = 1
    channels: int = 0
    height: int = 0
    width: int = 0
    channels_last: bool = False
    num_values: list = dataclasses.field(default_factory=list)  # DISCRETE
    parts: list = dataclasses.field(default_factory=list)
    numbers: int = 0  # VECTOR: the first columns, which are scaled

    @property
    def elements(self):
        return math.prod(self.shape)


@dataclasses.dataclass
class ActionLeaf:
    path: str
    shape: tuple
    discrete: bool
    first: int  # of the choices, or of the continuous values
    elements: int
    uint8: bool


@dataclasses.dataclass
class Spaces:
    observation: list  # of LeafSpec, joined leaves first
    mask: LeafSpec | None
    actions: list  # of ActionLeaf
    num_values: list  # [K]
    low: list  # [A]
    high: list

    @property
    def continuous(self):
        return len(self.low)

    @property
    def logits(self):
        return sum(self.num_values)

    @property
    def outputs(self):
        return self.logits + self.continuous

    @property
    def normalized(self):
        first = self.observation[0]
        return first.numbers if first.kind == VECTOR and first.stack == 1 else 0


def size(leaf):
    return math.prod(leaf.shape)


def values_of(leaf):
    """How many values each element has; [] for numbers."""
    if leaf.dtype == messages()[1].FLOAT32:
        return []
    if leaf.num_values_each:
        return list(leaf.num_values_each)
    return [leaf.num_values] * size(leaf) if leaf.num_values else []


def frames(leaf, model):
    """How many of its newest steps are seen."""
    config = config_of(model, leaf.path)
    if config is not None and config.frame_stack > 0:
        return config.frame_stack
    return max(1, leaf.frame_stack)


def config_of(model, path):
    return next((leaf for leaf in model.leaf if leaf.path == path), None)


def mask_paths(spec):
    paths = [leaf.mask_path for leaf in spec.action]
    if paths == [""]:
        paths = [spec.action_mask_path]
    return paths


def is_named(spec):
    """Whether the observation is one leaf, "observation", beside masks: one without a path is called that where its
    environment tells masks in `info`."""
    return [leaf.path for leaf in spec.observation if leaf.path not in mask_paths(spec)] == ["observation"]


def describe(spec, model):
    """The Spaces."""
    masks = {path for path in mask_paths(spec) if path}
    seen = [i for i, leaf in enumerate(spec.observation) if leaf.path not in masks]
    joined, alone = LeafSpec(""), []
    for i in seen:
        own = _alone(spec.observation[i], model, i, only=len(seen) == 1)
        if own is not None:
            alone.append(own)
            continue
        joined.path = "vector" if joined.parts else spec.observation[i].path
        _join(spec.observation[i], i, joined)
    if joined.parts:
        while any(leaf.path == joined.path for leaf in alone):
            joined.path += "_"
        _lay_out(joined)
        alone.insert(0, joined)
    actions, num_values, low, high = _actions(spec)
    return Spaces(alone, _mask(spec, actions, num_values), actions, num_values, low, high)


def _image(leaf, asked, out):
    env_pb2 = messages()[1]
    if values_of(leaf) or leaf.dtype == env_pb2.INT64:
        return False
    shape = list(leaf.shape)
    if len(shape) == 2:
        if leaf.dtype != env_pb2.UINT8 and not asked:
            return False
        out.channels, out.height, out.width = 1, *shape
    elif len(shape) == 3:
        out.channels_last = shape[2] <= shape[0]
        out.channels, out.height, out.width = (shape[2], *shape[:2]) if out.channels_last else shape
        if not asked and min(out.height, out.width) < LEAST_IMAGE:
            return False
    else:
        return False
    out.kind, out.shape = IMAGE, shape
    return True


def _join(leaf, index, vector):
    values = values_of(leaf)
    numbers = all(n <= 2 for n in values)
    vector.parts.append(Part(index, size(leaf), [] if numbers else values, columns=size(leaf) if numbers else sum(values)))


def _lay_out(vector):
    """Numbers first, then one-hot vectors."""
    vector.parts.sort(key=lambda part: bool(part.one_hot))
    column = 0
    for part in vector.parts:
        part.column = column
        column += part.columns
    vector.numbers = sum(part.columns for part in vector.parts if not part.one_hot)
    vector.shape = [column]


def _alone(leaf, model, index, only):
    """A leaf that is encoded on its own terms; None: it is joined with others."""
    config_pb2 = messages()[0]
    config = config_of(model, leaf.path)
    out = LeafSpec(leaf.path, stack=frames(leaf, model))
    encoder = config.encoder if config is not None else config_pb2.ENCODER_AUTO
    if encoder == config_pb2.ENCODER_AUTO and only:
        encoder = model.encoder
    cnn = encoder in (config_pb2.NATURE_CNN, config_pb2.RESNET)
    if encoder == config_pb2.EMBEDDING:
        out.kind, out.num_values, out.shape = DISCRETE, values_of(leaf), [size(leaf)]
    elif encoder != config_pb2.MLP and _image(leaf, cnn, out):
        pass
    elif config is None and out.stack == 1:
        return None
    else:
        _join(leaf, index, out)
        _lay_out(out)
        return out
    out.parts = [Part(index, size(leaf), [], columns=size(leaf))]
    return out


def _actions(spec):
    env_pb2 = messages()[1]
    leaves, num_values, low, high = [], [], [], []
    for leaf in spec.action:
        values, n = values_of(leaf), size(leaf)
        first = len(num_values) if values else len(low)
        leaves.append(ActionLeaf(leaf.path, tuple(leaf.shape), bool(values), first, n, leaf.dtype == env_pb2.UINT8))
        num_values += values
        if not values:
            for bounds, unset, to in ((leaf.low, -math.inf, low), (leaf.high, math.inf, high)):
                to += [unset] * n if not bounds else list(bounds) * n if len(bounds) == 1 else list(bounds)
    return leaves, num_values, low, high


def _mask(spec, actions, num_values):
    mask = LeafSpec("action_mask", MASK, [sum(num_values)])
    for path, action in zip(mask_paths(spec), actions):
        if not path:
            continue
        index = next(i for i, leaf in enumerate(spec.observation) if leaf.path == path)
        own = num_values[action.first : action.first + action.elements]
        mask.parts.append(Part(index, sum(own), [], sum(num_values[: action.first]), sum(own)))
    return mask if mask.parts else None


# ---- Encoders


@dataclasses.dataclass
class LeafEncoder:
    leaf: LeafSpec
    encoder: int
    hidden: list
    channels: list


def plan(spaces, model):
    """([LeafEncoder], widths of the trunk): without a trunk there is one encoder and nothing else."""
    c = messages()[0]
    alone = len(spaces.observation) == 1 and spaces.observation[0].kind != DISCRETE
    encoders, images = [], False
    for leaf in spaces.observation:
        config = config_of(model, leaf.path) if len(leaf.parts) == 1 else None
        image = leaf.kind == IMAGE
        images |= image
        encoder = config.encoder if config is not None else c.ENCODER_AUTO
        if encoder == c.ENCODER_AUTO and (alone or image):
            encoder = model.encoder
        if leaf.kind == DISCRETE:
            encoder = c.EMBEDDING
        if encoder == c.ENCODER_AUTO or (not alone and encoder == c.MLP):
            small = min(leaf.height, leaf.width) < LEAST_NATURE
            encoder = c.MLP if not image else c.RESNET if small else c.NATURE_CNN
        widths = {c.NATURE_CNN: [512], c.RESNET: [256], c.EMBEDDING: [64]}.get(encoder, [64, 64] if alone else [])
        if alone and model.hidden:
            widths = list(model.hidden)
        channels = list(model.conv_channels) or [32, 64, 64]
        if config is not None:
            widths, channels = list(config.hidden) or widths, list(config.conv_channels) or channels
        encoders.append(LeafEncoder(leaf, encoder, widths, channels))
    trunk = [] if alone else list(model.hidden) or ([512] if images else [64, 64])
    return encoders, trunk


def flat_width(e):
    """Numbers behind a leaf's convolutions, embedding or nothing."""
    c = messages()[0]
    if e.encoder == c.NATURE_CNN:
        return e.channels[2] * _nature_out(e.leaf.height) * _nature_out(e.leaf.width)
    if e.encoder == c.RESNET:
        return 32 * ((e.leaf.height + 7) // 8) * ((e.leaf.width + 7) // 8)
    if e.encoder == c.EMBEDDING:
        return e.leaf.stack * e.leaf.elements * e.hidden[0]
    return e.leaf.stack * e.leaf.elements


def _nature_out(n):
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        n = (n - kernel) // stride + 1
    return n
