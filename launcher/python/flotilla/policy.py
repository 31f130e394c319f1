"""A policy that acts."""

from collections.abc import Mapping

import numpy as np
import torch

from flotilla import network, structure
from flotilla.checkpoint import Checkpoint
from flotilla.errors import Error
from flotilla.spaces import mask_paths


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
        self._observed_from = structure.starts(getattr(env, "observation_space", None))
        self._acted_from = structure.starts(getattr(env, "action_space", None))
        self._masks = [path for path in mask_paths(self.spec) if path]
        # An observation without a path has one where its environment tells masks in `info`.
        self._named = [leaf.path for leaf in self.spec.observation if leaf.path not in self._masks] == ["observation"]
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
            self._fresh[np.asarray(rows)] = True

    def act(self, observation, deterministic=True, mask=None):
        """The action for an observation of the environment's, or the actions for N of them, stacked as a vector
        environment's are. The most likely one; else a sample (of a Q-network: with the exploration it has come to).

        What is allowed is the observation's leaf that masks the action ("action_mask"); where the environment says it in
        `info`, give info["action_mask"] as `mask`. Raises Error, naming the leaf, for what does not fit.
        """
        arrays, alone = self._rows(observation, mask)
        shown = self._shown(arrays)
        with torch.no_grad():
            discrete, continuous, value, state = self.module.decide(shown, self._state, *self._noise(len(arrays[0]), deterministic))
        self._state = state
        self.last_value = None if value is None else value.cpu().numpy()
        discrete = self._explored(discrete.cpu().numpy(), shown, deterministic)
        return structure.actions(self.module.spaces.actions, self.spec, discrete, continuous.cpu().numpy(), self._acted_from, alone)

    def _rows(self, observation, mask):
        if self._named and not (isinstance(observation, Mapping) and "observation" in observation):
            observation = {"observation": observation}
        optional = self._masks if mask is None else []
        if mask is not None:
            observation = self._with_mask(observation, mask)
        arrays, alone = structure.rows_of(observation, self.spec, self._observed_from, optional)
        rows = len(next(array for array in arrays if array is not None))
        for i, leaf in enumerate(self.spec.observation):
            if arrays[i] is None:
                arrays[i] = np.ones((rows, *leaf.shape), structure.dtype_of(leaf))  # all is allowed
        return arrays, alone

    def _with_mask(self, observation, mask):
        if not self._masks:
            raise Error(f"the policy knows of no mask; {self.spec.env_id} had none in training")
        seen = {leaf.path: structure.find(observation, leaf.path, leaf) for leaf in self.spec.observation if leaf.path not in self._masks}
        whole, at = np.asarray(mask) if not isinstance(mask, (dict, tuple)) else None, 0
        for leaf in self.spec.observation:
            if leaf.path not in self._masks:
                continue
            if whole is None or len(self._masks) == 1:
                seen[leaf.path] = whole if whole is not None else structure.find({"action_mask": mask}, leaf.path, leaf)
            else:
                seen[leaf.path] = whole[..., at : at + leaf.shape[0]]
                at += leaf.shape[0]
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
