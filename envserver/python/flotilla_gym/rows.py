"""K rows of one Gymnasium environment: seeds, same-step reset, statistics, and
errors that cost one transition instead of the server."""

import itertools
import json
import sys
import time
import traceback

import gymnasium
import numpy as np

from flotilla.v1 import env_pb2
from flotilla_gym import masks
from flotilla_gym.refused import Refused, cut, one_line
from flotilla_gym.seeds import episode_seed
from flotilla_gym.spaces import MAX_MAGNITUDE, Said, actions, in_order, leaves

PREFIX = "gym:"
_ERRORS = (Exception, SystemExit)  # an environment's sys.exit() is an error like others
_MAX_MESSAGE_BYTES = 512
_MAX_TRACEBACK_BYTES = 8192
_MAX_STEP_TRACEBACK_BYTES = 8 << 20  # of all rows of a step, which has to fit into a message


def make(env_id, options):
    """A new environment. Refuses, saying what would help, what Gymnasium cannot make."""
    if not env_id.startswith(PREFIX):
        raise Refused("NOT_FOUND", f'there is no environment "{env_id}" here; this server makes gym:ID and gym:package:ID')
    kwargs = arguments(options)
    for part in ("atari", "sleep", "maze"):
        if options.HasField(part):
            raise Refused("INVALID_ARGUMENT", f"env.options.{part} is set, but {env_id} does not read it; remove it")
    name = env_id[len(PREFIX) :]
    try:
        return gymnasium.make(name, max_episode_steps=options.max_episode_steps or None, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        raise Refused("NOT_FOUND", f"Gymnasium has no {env_id}: {one_line(error)}") from None
    except ModuleNotFoundError as error:
        raise Refused(
            "NOT_FOUND", f"{env_id}: {one_line(error)}; install it for {sys.executable}, or name it in PYTHONPATH"
        ) from None
    except gymnasium.error.DependencyNotInstalled as error:
        raise Refused("FAILED_PRECONDITION", f"{env_id} lacks a package of {sys.executable}: {one_line(error)}") from None
    except TypeError as error:
        if not kwargs:
            raise
        field = "gym_kwargs" if options.gym_kwargs else "kwargs"
        raise Refused("INVALID_ARGUMENT", f"{env_id} with env.options.{field}: {one_line(error)}") from None


def arguments(options):
    """Keyword arguments, by name: those of kwargs, and of gym_kwargs, which is what they were called before."""
    for name in sorted(options.gym_kwargs):
        if name in options.kwargs:
            raise Refused(
                "INVALID_ARGUMENT", f"env.options.kwargs.{name} is set, and env.options.gym_kwargs.{name} too; keep one"
            )
    return {name: _value(text) for texts in (options.gym_kwargs, options.kwargs) for name, text in texts.items()}


def _value(text):
    """What a keyword argument's text means: JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def describe(env_id, env, first_info):
    """Its EnvSpec, and the leaves of both spaces. `first_info()` is the info of a reset, which may have masks; it is
    asked for only where they would matter.
    """
    try:
        observation = leaves(env.observation_space, "observation space")
        action = leaves(env.action_space, "action space")
        mask = masks.in_observation(env.observation_space, action)
        if mask:
            observation = [leaf for leaf in observation if leaf.keys[0] != masks.KEY]
        elif masks.can_be_masked(action):
            mask, wrong = masks.in_info(first_info(), action)
            if wrong:
                print(f"flotilla_gym: {env_id}: {one_line(wrong)}", file=sys.stderr, flush=True)
            if mask and observation[0].keys == ():
                observation[0].proto.path = "observation"  # it is not the only one
        observation = in_order(observation + mask, f"observation space {env.observation_space}")
    except Refused as refused:
        refused.args = (f"{env_id}: {refused}",)
        raise
    spec = env_pb2.EnvSpec(
        env_id=env_id,
        observation=[leaf.proto for leaf in observation],
        action=[leaf.proto for leaf in action],
        max_episode_steps=getattr(env.spec, "max_episode_steps", None) or 0,
        action_mask_path=action[0].proto.mask_path if len(action) == 1 else "",
        reward_threshold=getattr(env.spec, "reward_threshold", None) or 0,
    )
    return spec, observation, action


def spec_of(env_id, options):
    """The EnvSpec of an environment that nobody plays."""
    env = make(env_id, options)

    def first_info():
        try:
            return env.reset(seed=0)[1]
        except _ERRORS:  # a row that plays says so
            return {}

    try:
        return describe(env_id, env, first_info)[0]
    finally:
        env.close()


class _Row:
    """One environment and its episode so far."""

    def __init__(self, index, env):
        self.index = index
        self.env = env  # None: to be made anew
        self.episode = 0  # of the next reset
        self.begun = None  # what the first reset came to, if it is done already: its result, or an error
        self.pending = False  # failed, and not back yet
        self.retry_at = 0.0  # pending: not before, by time.monotonic()
        self.forget_episode()

    def forget_episode(self):
        self.raw_return = 0.0
        self.length = 0


class Rows:
    """What one Play stream steps. Not thread-safe."""

    def __init__(self, hello, retry_wait, renew_failed, make=make):
        self._hello = hello
        self._make_env = make
        self._retry_wait = retry_wait  # seconds
        self._renew_failed = renew_failed
        self._size = hello.num_envs // hello.num_groups  # R
        self._traceback_bytes = min(_MAX_TRACEBACK_BYTES, _MAX_STEP_TRACEBACK_BYTES // self._size)
        self._rows = []
        for index in range(hello.num_envs):
            self._rows.append(_Row(index, self._make()))
        env = self._rows[0].env
        self.spec, self.observation, self._action = describe(hello.env_id, env, self._first_info)
        self._action_space = env.action_space
        self._masks = [i for i, leaf in enumerate(self.observation) if isinstance(leaf, masks.MaskLeaf)]
        self._arrays = []  # per group, per observation leaf: [R, ...]

    def place(self, arrays):
        """Where observations are written: per group and leaf, [R, ...]."""
        self._arrays = arrays

    def close(self):
        for row in self._rows:
            _close(row)

    def reset(self, group):
        """Starts an episode in every row of `group`."""
        return self._run(group, itertools.repeat(None), self._start)

    def step(self, group, columns):
        """Steps every row of `group`. Refuses an action that its space does not hold."""
        row_actions = actions(self._hello.env_id, self._action_space, self._action, columns, self._size)
        return self._run(group, row_actions, self._step)

    def nobody_plays(self, group):
        """Whether all rows of `group` are pending."""
        return all(row.pending for row in self._rows[group * self._size : (group + 1) * self._size])

    def _first_info(self):
        """Of the first row that can be reset. What its reset said, or why there was none, is kept for its start."""
        for row in self._rows:
            try:
                row.begun = self._reset(row)
                return row.begun[1]
            except _ERRORS as error:
                row.begun = error
        return {}

    def _run(self, group, row_actions, run):
        first = group * self._size
        step = env_pb2.StepBatch()
        rewards = np.zeros(self._size, "<f4")
        terminated = bytearray(self._size)
        truncated = bytearray(self._size)
        finals = []
        for r, row, action in zip(range(self._size), self._rows[first : first + self._size], row_actions):
            arrays = self._arrays[group]
            # Without a message until something new fails, and at the step that brings it back.
            lost = step.error.add(row=r) if row.pending else None
            try:
                if row.pending:
                    if time.monotonic() >= row.retry_at:
                        self._retry(row, arrays, r)
                    continue
                rewards[r], terminated[r], truncated[r], end = run(row, action, arrays, r)
                if end is not None:
                    final, raw_return, length = end
                    finals.append(final)
                    step.final_row.append(r)
                    step.episode_end.add(row=r, raw_return=raw_return, length=length)
            except _ERRORS as error:
                rewards[r] = terminated[r] = truncated[r] = 0
                self._set_aside(row, r, arrays, error, lost or step.error.add(row=r))
        step.reward = rewards.tobytes()
        step.terminated = bytes(terminated)
        step.truncated = bytes(truncated)
        step.final_observation.SetInParent()
        step.final_observation.leaf.extend(b"".join(column) for column in zip(*finals))
        return step

    def _start(self, row, _, arrays, r):
        row.forget_episode()
        observation, info = self._reset(row)
        self._write(arrays, r, Said(observation, info, ended=False))
        return 0, False, False, None

    def _reset(self, row):
        """Begins the row's next episode: its first observation and info."""
        begun, row.begun = row.begun, None
        if isinstance(begun, BaseException):
            raise begun
        if begun is not None:
            return begun
        seed = episode_seed(self._hello, row.index, row.episode)
        row.episode += 1
        observation, info = row.env.reset(seed=seed)
        return observation, info

    def _step(self, row, action, arrays, r):
        observation, reward, terminated, truncated, info = row.env.step(action)
        reward = float(reward)
        if not abs(reward) <= MAX_MAGNITUDE:
            raise ValueError(f"the reward is {reward}, want a finite number up to {MAX_MAGNITUDE:g}")
        row.length += 1
        row.raw_return += reward
        ended = bool(terminated or truncated)
        self._write(arrays, r, Said(observation, info, ended))
        if not ended:
            return reward, False, False, None
        end = [array[r].tobytes() for array in arrays], row.raw_return, row.length
        self._start(row, action, arrays, r)
        # At the step limit, the task's own end wins.
        return reward, bool(terminated), not terminated, end

    def _write(self, arrays, r, said):
        for leaf, array in zip(self.observation, arrays):
            leaf.write(array, r, said)

    def _set_aside(self, row, r, arrays, error, out):
        """The row failed: it is pending, or, without a wait, tried again at once."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        out.traceback = cut(text, self._traceback_bytes)
        reasons = [_reason(error)]
        again, row.pending = row.pending, True
        # A reset that failed too: only another environment may help.
        if self._renew_failed or again:
            _close(row)
        row.retry_at = time.monotonic() + self._retry_wait
        # The reset may fail where a new environment does not.
        tries = 0 if self._retry_wait or again else 1 if self._renew_failed else 2
        while row.pending and tries:
            tries -= 1
            try:
                self._retry(row, arrays, r)
            except _ERRORS as failed:
                _close(row)
                reasons.append(_reason(failed))
        if row.pending:
            for array in arrays:
                array[r] = 0
            for i in self._masks:  # its actions are ignored, but chosen
                arrays[i][r] = 1
        begin = one_line(f'env "{self._hello.env_id}", row {row.index}:') + " "
        each = (_MAX_MESSAGE_BYTES - len(begin.encode())) // len(reasons) - len("; then: ")
        out.message = cut(begin + "; then: ".join(cut(reason, each) for reason in reasons), _MAX_MESSAGE_BYTES)

    def _retry(self, row, arrays, r):
        """Begins a pending row's next episode."""
        if row.env is None:
            row.env = self._make()
        self._start(row, None, arrays, r)
        row.pending = False

    def _make(self):
        return self._make_env(self._hello.env_id, self._hello.options)


def _reason(error):
    try:
        words = one_line(error)
    except _ERRORS:  # its __str__ is others' code too
        words = "it cannot say why"
    return f"{type(error).__name__}: {words}"


def _close(row):
    env, row.env = row.env, None
    try:
        if env is not None:
            env.close()
    except _ERRORS:
        traceback.print_exc()
