"""The networks of learner/nn as torch modules, made of a checkpoint's tensors, with their names."""

import typing

import torch
from torch import nn

from flotilla import spaces as sp
from flotilla.errors import Error
from flotilla.layers import Encoder, Layer, Recurrent, Tensors, mlp, run
from flotilla.run import messages

CLIP = 10.0  # of scaled observations


class Output(typing.NamedTuple):
    """Of N observations, as far as a network has it."""

    policy: torch.Tensor  # [N, L + A]  logits (Q-networks: values) of choices, then means
    log_std: torch.Tensor | None  # [A] or [N, A]
    value: torch.Tensor | None  # [N]
    state: torch.Tensor | None  # [N, S]  recurrent: after this step


class PolicyModule(nn.Module):
    """What a policy is before it decides: from what an environment says to logits, means and values.

    `forward(observation, state)` takes one tensor a leaf of the environment's, {path: [N, ...]} of its own dtype, or the
    tensor alone where there is one without a path; of a leaf with a stack of k frames [N, k, ...], the oldest first.
    Scaling is inside; masks are in `allowed(observation)`. Parameters are named as in the checkpoint. Computes in
    float32, also what was trained in bfloat16.
    """

    algorithm = "ppo"
    state_size = 0  # S: numbers of recurrent state in a row, 0 when an episode begins

    def __init__(self, checkpoint):
        super().__init__()
        model = checkpoint.config.model
        self.spec, self.spaces = checkpoint.spec, sp.describe(checkpoint.spec, model)
        self.frames = {leaf.path: sp.frames(leaf, model) for leaf in checkpoint.spec.observation}
        n = self.spaces.normalized if model.normalize_observations else 0
        mean, scale = _scaling(checkpoint, n) if n else (torch.zeros(0), torch.zeros(0))
        self.register_buffer("observation_mean", mean, persistent=False)
        self.register_buffer("observation_scale", scale, persistent=False)
        self.register_buffer("low", torch.tensor(self.spaces.low), persistent=False)
        self.register_buffer("high", torch.tensor(self.spaces.high), persistent=False)

    def forward(self, observation, state=None):
        return self.network(self.encoded(observation), state)

    def network(self, leaves, state):
        raise NotImplementedError

    def encoded(self, observation):
        """What the network is shown: a tensor for each of spaces.observation."""
        if isinstance(observation, torch.Tensor):
            observation = {self.spec.observation[0].path: observation}
        wire = [observation[leaf.path] for leaf in self.spec.observation]
        encoded = [self._encode(leaf, wire) for leaf in self.spaces.observation]
        n = self.observation_mean.shape[0]
        if n:
            numbers = ((encoded[0][:, :n] - self.observation_mean) * self.observation_scale).clamp(-CLIP, CLIP)
            encoded[0] = torch.cat([numbers, encoded[0][:, n:]], 1)
        return encoded

    def _encode(self, leaf, wire):
        if leaf.kind == sp.IMAGE:
            x = wire[leaf.parts[0].leaf]
            return x if leaf.stack > 1 else x.unsqueeze(1)
        lead = 2 if leaf.stack > 1 else 1
        columns = []
        for part in leaf.parts:
            x = wire[part.leaf]
            x = x.unsqueeze(lead) if x.dim() == lead else x.flatten(lead)
            if leaf.kind == sp.DISCRETE:
                return x.to(torch.int64)
            if not part.one_hot:
                columns.append(x.to(torch.float32))
                continue
            for i, n in enumerate(part.one_hot):
                values = torch.arange(n, device=x.device, dtype=x.dtype)
                columns.append((x[..., i : i + 1] == values).to(torch.float32))
        return columns[0] if len(columns) == 1 else torch.cat(columns, -1)

    def allowed(self, observation):
        """[N, L] bool: which values of the choices may be taken; None: all."""
        if self.spaces.mask is None:
            return None
        parts, columns, at = self.spaces.mask.parts, [], 0
        rows = observation[self.spec.observation[parts[0].leaf].path].shape[0]
        for part in [*sorted(parts, key=lambda part: part.column), None]:
            begin = self.spaces.logits if part is None else part.column
            if begin > at:  # of actions without a mask
                columns.append(self.low.new_ones(rows, begin - at).to(torch.bool))
            if part is not None:
                columns.append(observation[self.spec.observation[part.leaf].path].flatten(1) != 0)
                at = part.column + part.columns
        return torch.cat(columns, 1)

    # ---- Deciding

    def decide(self, observation, state=None, uniform=None, normal=None):
        """(discrete [N, K] int64, continuous [N, A], value [N] or None, state): the most likely action, or, with numbers
        to draw by, uniform [N, K] in [0, 1) and normal [N, A], a sample. Continuous actions are within their bounds."""
        output = self(observation, state)
        discrete = self._choose(output.policy, self.allowed(observation), uniform)
        continuous = self._continuous(output, normal)
        return discrete, continuous, self.value_of(output, observation), output.state

    def value_of(self, output, observation):
        return output.value

    def _choose(self, policy, allowed, uniform):
        chosen, at = [], 0
        for i, n in enumerate(self.spaces.num_values):
            logits = policy[:, at : at + n]
            may = torch.ones_like(logits, dtype=torch.bool) if allowed is None else allowed[:, at : at + n]
            none = may.to(torch.int64).sum(1, keepdim=True) == 0  # a row that is lost
            may = may | none
            if allowed is not None:
                logits = logits.masked_fill(~may, -torch.inf)
            chosen.append(logits.argmax(1) if uniform is None else _draw(logits, may, uniform[:, i : i + 1]))
            at += n
        return torch.stack(chosen, 1) if chosen else policy.new_zeros(policy.shape[0], 0).to(torch.int64)

    def _continuous(self, output, normal):
        mean = output.policy[:, self.spaces.logits :]
        if self.spaces.continuous == 0:
            return mean
        x = mean if normal is None else mean + normal * output.log_std.exp()
        return torch.minimum(torch.maximum(x, self.low), self.high)


def _draw(logits, may, uniform):
    """The value at `uniform` of the cumulative distribution; the last one takes what rounding leaves over."""
    p = torch.exp(logits - logits.max(1, keepdim=True).values)
    below = p.cumsum(1) <= uniform * p.sum(1, keepdim=True)
    place = torch.arange(logits.shape[1], device=logits.device)
    return torch.minimum(below.to(torch.int64).sum(1), (place * may.to(torch.int64)).max(1).values)


def _scaling(checkpoint, n):
    """As learner/rollout/normalizer.cc has it."""
    sums = checkpoint.state.get("normalizer.observation_sums")
    if sums is None or sums.shape != (1 + 2 * n,):
        raise Error(f'the checkpoint is of another network than its configuration\'s: want "normalizer.observation_sums" of [{1 + 2 * n}]')
    sums = torch.tensor(sums, dtype=torch.float64)
    if sums[0] <= 0:
        return torch.zeros(n), torch.ones(n)
    mean = sums[1 : 1 + n] / sums[0]
    variance = (sums[1 + n :] / sums[0] - mean * mean).clamp(min=0)
    return mean.to(torch.float32), (1 / torch.sqrt(variance + 1e-8)).to(torch.float32)


class ActorCritic(PolicyModule):
    """learner/nn/actor_critic.h"""

    def __init__(self, checkpoint):
        super().__init__(checkpoint)
        c, model, spaces = messages()[0], checkpoint.config.model, self.spaces
        tensors = Tensors(checkpoint.weights, self)
        A, O = spaces.continuous, spaces.outputs
        self._log_std = tensors.take("actor_logstd", [A]) if A else None
        encoders, trunk = sp.plan(spaces, model)
        recurrent = model.recurrent != c.NONE
        self._apart = not trunk and spaces.observation[0].kind == sp.VECTOR and not model.share_trunk and not recurrent
        self._relu = model.activation == c.RELU
        self._encoder = self._recurrent = None
        if self._apart:
            inputs, hidden = sp.flat_width(encoders[0]), encoders[0].hidden
            self._critic = mlp(tensors, "critic", inputs, [*hidden, 1])
            self._actor = mlp(tensors, "actor_mean" if A else "actor", inputs, [*hidden, O])
        else:
            self._encoder = Encoder(tensors, "trunk", spaces, model)
            width = self._encoder.features
            if recurrent:
                self._recurrent = Recurrent(tensors, model, width)
                self.state_size, width = self._recurrent.state_size, model.recurrent_size
            self._actor, self._critic = [Layer(tensors, "policy", [O, width])], [Layer(tensors, "value", [1, width])]
        tensors.finish()

    def network(self, leaves, state):
        features = leaves[0].flatten(1) if self._apart else self._encoder(leaves)
        if self._recurrent is not None:
            features, state = self._recurrent(features, state)
        relu = self._relu
        policy, value = (run(head, features, relu, activate_last=False) for head in (self._actor, self._critic))
        log_std = self._log_std() if self._log_std is not None else None
        return Output(policy, log_std, value.squeeze(1), state)


class QNetwork(PolicyModule):
    """learner/nn/q_network.h: `policy` is Q, and the value that of the best action, the mean over its choices."""

    algorithm = "dqn"

    def __init__(self, checkpoint):
        super().__init__(checkpoint)
        tensors = Tensors(checkpoint.weights, self)
        self._encoder = Encoder(tensors, "encoder", self.spaces, checkpoint.config.model)
        H = self._encoder.features
        dueling = checkpoint.config.dqn.dueling
        self._advantage = mlp(tensors, "advantage" if dueling else "q", H, [H, self.spaces.logits])
        self._value = mlp(tensors, "value", H, [H, 1]) if dueling else None
        tensors.finish()

    def network(self, leaves, state):
        image = self.spaces.observation[0].kind == sp.IMAGE
        features = self._encoder(leaves, activate_last=not image)
        q = run(self._advantage, features, relu=True, activate_last=False)
        if self._value is not None:
            value = run(self._value, features, relu=True, activate_last=False)
            q = torch.cat([a - a.mean(1, keepdim=True) + value for a in q.split(self.spaces.num_values, 1)], 1)
        return Output(q, None, None, None)

    def value_of(self, output, observation):
        allowed, q = self.allowed(observation), output.policy
        if allowed is not None:
            q = q.masked_fill(~allowed, -torch.inf)
        return torch.stack([one.max(1).values for one in q.split(self.spaces.num_values, 1)], 1).mean(1)


class SquashedActor(PolicyModule):
    """learner/nn/sac_networks.h's actor and squashed_gaussian.h"""

    algorithm = "sac"

    def __init__(self, checkpoint):
        super().__init__(checkpoint)
        tensors = Tensors(checkpoint.weights, self)
        self._encoder = Encoder(tensors, "actor", self.spaces, checkpoint.config.model)
        shape = [self.spaces.continuous, self._encoder.features]
        self._mean, self._spread = Layer(tensors, "actor_mean", shape), Layer(tensors, "actor_logstd", shape)
        tensors.finish()

    def network(self, leaves, state):
        features = self._encoder(leaves)
        log_std = -5 + 0.5 * 7 * (torch.tanh(self._spread(features)) + 1)
        return Output(self._mean(features), log_std, None, None)

    def _continuous(self, output, normal):
        # In doubles, as learner/cuda/sampling.h: where bounds are wide, floats lose actions near 0.
        u, low, high = (x.to(torch.float64) for x in (output.policy, self.low, self.high))
        if normal is not None:
            u = u + normal.to(torch.float64) * output.log_std.to(torch.float64).exp()
        x = (low + (high - low) * ((torch.tanh(u) + 1) / 2)).to(torch.float32)
        return torch.minimum(torch.maximum(x, self.low), self.high)


class OwnNetwork(PolicyModule):
    """model.torchscript: the run's network.pt with the checkpoint's weights."""

    def __init__(self, checkpoint):
        super().__init__(checkpoint)
        path = checkpoint.kept_file("network.pt")
        if path is None:
            raise Error(f"there is no network.pt with {checkpoint.folder}, the TorchScript network that the run keeps a copy of")
        try:
            self.own = torch.jit.load(path, map_location="cpu").eval()
        except (RuntimeError, ValueError) as error:
            gist = str(error).strip().splitlines()
            raise Error(f"{path} is no TorchScript that torch {torch.__version__} can read ({gist[-1] if gist else error})") from None
        weights = dict(checkpoint.weights)
        log_std = weights.pop("actor_logstd", None) if "actor_logstd" not in dict(self.own.named_parameters()) else None
        self.actor_logstd = nn.Parameter(torch.tensor(log_std)) if log_std is not None else None
        with torch.no_grad():
            for name, parameter in self.own.named_parameters():
                if name in weights:
                    parameter.copy_(torch.tensor(weights.pop(name)))
        if weights:
            raise Error(f"the checkpoint is of another network than {path}: that has no {sorted(weights)}")

    def network(self, leaves, state):
        named = {leaf.path: x for leaf, x in zip(self.spaces.observation, leaves)}
        out = self.own(leaves[0] if len(leaves) == 1 else named)
        log_std = out[2] if len(out) > 2 else self.actor_logstd
        if log_std is not None and log_std.dim() == 2 and log_std.shape[0] == 1:
            log_std = log_std.squeeze(0)
        return Output(out[0], log_std, out[1].reshape(-1), None)


def make(checkpoint):
    """The module of a checkpoint. Errors name what cannot be rebuilt."""
    config = checkpoint.config
    algorithm = config.WhichOneof("algorithm") or "ppo"
    if config.model.plugin:
        raise Error(
            f'model.plugin is "{config.model.plugin}": a network in a C++ shared library runs in Flotilla\'s programs alone '
            "(flotilla evaluate); bring it as TorchScript (model.torchscript) to take it home"
        )
    if config.model.torchscript:
        return OwnNetwork(checkpoint).eval()
    if algorithm == "custom":
        try:
            return ActorCritic(checkpoint).eval()
        except Error:
            raise Error(
                f'custom.library is "{config.custom.library}": the network of an algorithm in a C++ shared library runs in '
                "Flotilla's programs alone (flotilla evaluate), unless it is the one that model.* describes"
            ) from None
    return {"dqn": QNetwork, "sac": SquashedActor}.get(algorithm, ActorCritic)(checkpoint).eval()
