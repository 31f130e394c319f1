"""A policy that acts."""

import math
from collections.abc import Mapping

import numpy as np
import torch

from flotilla import network, structure
from flotilla.checkpoint import Checkpoint
from flotilla.errors import Error
from flotilla.spaces import is_named, mask_paths

MASK = "action_mask"  # as environments of Python's tell it


class Policy:
    """Acts as the run's own policy does. `module` is a torch.nn.Module (network.PolicyModule), `config` the run's
    RunConfig, `spec` the environment's EnvSpec, `step` the environment steps that it has learned from, and `last_value`
    what the network says the newest observations are worth, [N], or None.

    Remembers, for the rows it plays, what a recurrent network does and the frames of a stack: reset() when an episode
    begins. Not thread-safe.
    """

    @classmethod
    def load(cls, path, checkpoint="latest", env=None, device="cpu", seed=0):
        """As flotilla.load."""
        return cls(Checkpoint(path, checkpoint), env, device, seed)

    def __init__(self, checkpoint, env=None, device="cpu", seed=0):
        self.config, self.spec, self.step = checkpoint.config, checkpoint.spec, checkpoint.step
        self.module = network.make(checkpoint).to(device)
        self.device = torch.device(device)
        self._random = np.random.default_rng(seed)
        self._observed_from = structure.starts(structure.space_of(env, "observation"))
        self._action_space = structure.space_of(env, "action")
        structure.check_paths(self._action_space, self.spec)
        # {of a mask: of the action that it masks}, in the action space's own order as far as it is known.
        self._masks = {mask: leaf.path for leaf, mask in zip(self.spec.action, mask_paths(self.spec)) if mask}
        order = [path for path, _ in structure.parts(self._action_space)] or list(self._masks.values())
        self._masks = dict(sorted(self._masks.items(), key=lambda pair: order.index(pair[1])))
        self._named = is_named(self.spec)
        if self._named and "" in self._observed_from:
            self._observed_from["observation"] = self._observed_from[""]
        self.last_value = None
        self.reset()

    def reset(self, rows=None, seed=None):
        """The next observation begins an episode: of all rows, or of those that `rows`, indices or a mask, names. With
        a `seed`, samples begin anew."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        if rows is None:
            self._stacks, self._state, self._fresh = {}, None, None
        elif self._fresh is not None:
            rows = np.asarray(rows)
            if rows.size:  # an empty list is one of floats to numpy, which no index is
                self._fresh[rows] = True

    def act(self, observation, deterministic=True, mask=None):
        """The action for an observation of the environment's, or the actions for N of them, stacked as a vector
        environment's are. The most likely one; else a sample (of a Q-network: with the exploration it has come to).

        What is allowed is the observation's leaf that masks the action ("action_mask"); where the environment says it in
        `info`, give info["action_mask"] as `mask`. A policy that was trained with a mask does not act without one:
        mask=True allows everything. Raises Error, naming the leaf, for what does not fit.
        """
        arrays, alone = self._rows(observation, mask)
        shown = self._shown(arrays)
        with torch.no_grad():
            discrete, continuous, value, state = self.module.decide(shown, self._state, *self._noise(len(arrays[0]), deterministic))
        self._state = state
        self.last_value = None if value is None else value.cpu().numpy()
        discrete = self._explored(discrete.cpu().numpy(), shown, deterministic)
        return structure.actions(self.module.spaces.actions, discrete, continuous.cpu().numpy(), self._action_space, alone)

    def _rows(self, observation, mask):
        if self._named and not (isinstance(observation, Mapping) and "observation" in observation):
            observation = {"observation": observation}
        if mask is None and isinstance(observation, Mapping) and any(path.split("/")[0] == MASK for path in self._masks):
            mask = observation.get(MASK)
        if mask is not None:
            observation = self._with_mask(observation, mask)
        arrays, alone = structure.rows_of(observation, self.spec, self._observed_from, self._masks)
        rows = len(next(array for array in arrays if array is not None))
        for i, leaf in enumerate(self.spec.observation):
            if arrays[i] is None and mask is not True:
                raise Error(
                    f"{structure.title(leaf)} is missing, want {structure.shown(leaf)}: what the policy may do; give act() "
                    f'mask=info["{MASK}"] where the environment says it in info, or mask=True to allow everything'
                )
            if arrays[i] is None:
                arrays[i] = np.ones((rows, *leaf.shape), structure.dtype_of(leaf))
        return arrays, alone

    def _with_mask(self, observation, mask):
        if not self._masks:
            raise Error(f"the policy knows of no mask; {self.spec.env_id} had none in training")
        leaves = {leaf.path: leaf for leaf in self.spec.observation}
        sizes = {path: math.prod(leaves[path].shape) for path in self._masks}
        seen = {path: structure.find(observation, path, leaf) for path, leaf in leaves.items() if path not in self._masks}
        if mask is True:
            return seen
        if isinstance(mask, (Mapping, tuple)):  # as the action nests
            for path, action in self._masks.items():
                seen[path] = structure.end_to_end(structure.find(mask, action, leaves[path]), sizes[path])
            return seen
        whole, at = np.asarray(structure.end_to_end(mask, sum(sizes.values()))), 0
        if len(sizes) == 1:
            return seen | {path: whole for path in sizes}
        if whole.shape[-1:] != (sum(sizes.values()),):
            raise Error(f"the mask is {whole.dtype} {list(whole.shape)}, want {sum(sizes.values())} values, or the same of several rows")
        for path, size in sizes.items():
            seen[path] = whole[..., at : at + size]
            at += size
        return seen

    def _shown(self, arrays):
        """Tensors as the module takes them; notes what rows remember."""
        rows = len(arrays[0])
        if self._fresh is None:
            self._fresh = np.ones(rows, bool)
        if len(self._fresh) != rows:
            raise Error(f"there are {rows} rows of observations, and before there were {len(self._fresh)}; reset() comes between")
        size = self.module.state_size
        if size and self._state is None:
            self._state = torch.zeros(rows, size, device=self.device)
        if size:
            self._state = self._state * torch.tensor(~self._fresh[:, None], device=self.device)
        shown = {}
        for leaf, array in zip(self.spec.observation, arrays):
            k = self.module.frames[leaf.path]
            if k > 1:
                array = self._stacks[leaf.path] = self._stacked(leaf.path, array, k)
            shown[leaf.path] = torch.tensor(array, device=self.device)
        self._fresh[:] = False
        return shown

    def _stacked(self, path, newest, k):
        """[N, k, ...], the oldest first; an episode's first frame is repeated."""
        repeated = np.repeat(newest[:, None], k, 1)
        if path not in self._stacks:
            return repeated
        older = np.concatenate([self._stacks[path][:, 1:], newest[:, None]], 1)
        return np.where(self._fresh.reshape(-1, *[1] * newest.ndim), repeated, older)

    def _noise(self, rows, deterministic):
        if deterministic or self.module.algorithm == "dqn":
            return None, None
        spaces = self.module.spaces
        uniform = self._random.random((rows, len(spaces.num_values)), np.float32)
        normal = self._random.standard_normal((rows, spaces.continuous), np.float32)
        return torch.tensor(uniform, device=self.device), torch.tensor(normal, device=self.device)

    def _explored(self, discrete, shown, deterministic):
        """Of Q-networks: actions of which some are random, as learner/nn/q_policy.h has them."""
        if deterministic or self.module.algorithm != "dqn":
            return discrete
        dqn = self.config.dqn
        epsilon = dqn.epsilon_end + (dqn.epsilon_start - dqn.epsilon_end) * np.exp(-self.step / dqn.epsilon_decay_steps)
        allowed = self.module.allowed(shown)
        for row in np.flatnonzero(self._random.random(len(discrete)) < epsilon):
            at = 0
            for i, n in enumerate(self.module.spaces.num_values):
                may = np.arange(n) if allowed is None else np.flatnonzero(allowed[row, at : at + n].cpu().numpy())
                discrete[row, i] = self._random.choice(may if len(may) else np.arange(n))
                at += n
        return discrete
