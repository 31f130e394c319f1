"""K rows of one environment: seeds, same-step reset, statistics, and errors that
cost one transition instead of the server."""

import contextlib
import json
import sys
import time
import traceback

import gymnasium
import numpy as np

from flotilla.v1 import env_pb2
from flotilla_gym import masks
from flotilla_gym.games import ZOO, GymGame, Turn, make_gym, make_zoo
from flotilla_gym.loops import outside_the_loop
from flotilla_gym.refused import Refused, cut, one_line, unusable
from flotilla_gym.seeds import episode_seed
from flotilla_gym.spaces import MAX_MAGNITUDE, Said, actions, in_order, leaves

PREFIX = "gym:"
_ERRORS = (Exception, SystemExit)  # an environment's sys.exit() is an error like others
_MAX_MESSAGE_BYTES = 512
_MAX_TRACEBACK_BYTES = 8192
_MAX_STEP_TRACEBACK_BYTES = 8 << 20  # of all rows of a step, which has to fit into a message


def make(env_id, options):
    """A new game. Refuses, saying what would help, what neither Gymnasium nor PettingZoo can make."""
    if not env_id.startswith((PREFIX, ZOO)):
        raise Refused(
            "NOT_FOUND",
            f'there is no environment "{env_id}" here; this server makes gym:ID, gym:package:ID and pettingzoo:MODULE',
        )
    kwargs = arguments(options)
    for part in ("atari", "sleep", "maze"):
        if options.HasField(part):
            raise Refused("INVALID_ARGUMENT", f"env.options.{part} is set, but {env_id} does not read it; remove it")
    try:
        if env_id.startswith(ZOO):
            return make_zoo(env_id, options.max_episode_steps, kwargs)
        return make_gym(env_id[len(PREFIX) :], options.max_episode_steps, kwargs)
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


def made_by(function):
    """As make(), of what `function` makes, whatever it is called."""

    def make(env_id, options):
        env = function(**arguments(options))
        if not all(hasattr(env, name) for name in ("observation_space", "action_space", "reset", "step")):
            kind = type(env).__name__
            raise Refused("INVALID_ARGUMENT", f"what makes {env_id} returned a {kind}, want a gymnasium.Env")
        return limited(env, options)

    return make


def limited(env, options):
    """The game of `env`, with the step limit that is asked for."""
    steps = options.max_episode_steps
    return GymGame(gymnasium.wrappers.TimeLimit(env, steps) if steps else env)


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


def describe(env_id, game, first_info):
    """Its EnvSpec, and the leaves of both spaces. `first_info()` is the info of a reset, which may have masks; it is
    asked for only where they would matter.
    """
    try:
        observation = leaves(game.observation_space, "observation space")
        action = leaves(game.action_space, "action space")
        mask = masks.in_observation(game.observation_space, action)
        if mask:
            observation = [leaf for leaf in observation if leaf.keys[0] != masks.KEY]
        elif masks.can_be_masked(action):
            mask, wrong = masks.in_info(first_info(), action)
            if wrong:
                print(f"flotilla_gym: {env_id}: {one_line(wrong)}", file=sys.stderr, flush=True)
            if mask and observation[0].keys == ():
                observation[0].proto.path = "observation"  # it is not the only one
        observation = in_order(observation + mask, f"observation space {game.observation_space}")
    except Refused as refused:
        refused.args = (f"{env_id}: {refused}",)
        raise
    spec = env_pb2.EnvSpec(
        env_id=env_id,
        observation=[leaf.proto for leaf in observation],
        action=[leaf.proto for leaf in action],
        max_episode_steps=game.max_episode_steps,
        action_mask_path=action[0].proto.mask_path if len(action) == 1 else "",
        reward_threshold=game.reward_threshold,
        agents=game.agents if game.agents > 1 else 0,
        renders=game.renders,
    )
    return spec, observation, action


def exited(env_id, error):
    """How a call ends whose environment called sys.exit() as it was made."""
    return Refused("FAILED_PRECONDITION", f"{env_id} has called sys.exit(): {one_line(error) or 'it does not say why'}")


@outside_the_loop
def spec_of(env_id, options, make=make):
    """The EnvSpec of an environment that nobody plays."""
    game = make(env_id, options)

    def first_info():
        with contextlib.suppress(*_ERRORS):
            return _info(game.reset(seed=0))
        try:  # once more, as a row would
            return _info(game.reset(seed=0))
        except _ERRORS as error:
            raise _masks_unknown(error) from None

    try:
        return describe(env_id, game, first_info)[0]
    finally:
        game.close()


def _info(turns):
    """Of the first slot that was told any."""
    return next((turn.info for turn in turns if turn is not None), {})


def gist(error):
    """What was raised, and in which words."""
    try:
        words = one_line(error)
    except _ERRORS:  # its __str__ is others' code too
        words = "it cannot say why"
    return f"{type(error).__name__}: {words}"


def _masks_unknown(error):
    """How a call ends where no reset has said whether actions are masked. A specification without masks would hold
    for good, and then forbidden actions are played."""
    traceback.print_exception(type(error), error, error.__traceback__)
    return Refused("UNAVAILABLE", f"it cannot be reset, and which actions it allows is not known: {gist(error)}")


class _Slot:
    """An agent's part of the episode so far."""

    def __init__(self):
        self.raw_return = 0.0
        self.length = 0
        self.active = True
        self.gone = False  # its episode ended, and its environment's did not


class _Env:
    """One environment and its episode so far."""

    def __init__(self, row, game):
        self.row = row  # its first, over all
        self.game = game  # None: to be made anew
        self.episode = 0  # of the next reset
        self.begun = None  # what the first reset came to, if it is done already: its result, or an error
        self.pending = False  # failed, and not back yet
        self.retry_at = 0.0  # pending: not before, by time.monotonic()
        self.steps = 0
        self.slots = []


class Batch:
    """A step of a group, as it is filled and sent: of `size` rows, whose observations go into `arrays`."""

    def __init__(self, size, arrays):
        self.arrays = arrays
        self.step = env_pb2.StepBatch()
        self.reward = np.zeros(size, "<f4")
        self.terminated = bytearray(size)
        self.truncated = bytearray(size)
        self.active = bytearray(b"\1" * size)
        self.finals = {}  # of rows that ended: observation, per leaf, and EpisodeEnd

    def forget(self, rows):
        """Whatever was filled in for `rows`: it is lost."""
        for r in rows:
            self.reward[r] = self.terminated[r] = self.truncated[r] = 0
            self.active[r] = 1
            self.finals.pop(r, None)

    def finish(self):
        """Its message, but for group, seq and what is observed. Call it once."""
        step = self.step
        step.reward = self.reward.tobytes()
        step.terminated = bytes(self.terminated)
        step.truncated = bytes(self.truncated)
        if not all(self.active):  # said only where somebody has no turn
            step.active = bytes(self.active)
        finals = []
        for r, (final, end) in sorted(self.finals.items()):
            finals.append(final)
            step.final_row.append(r)
            step.episode_end.append(end)
        step.final_observation.SetInParent()
        step.final_observation.leaf.extend(b"".join(column) for column in zip(*finals))
        return step


class Rows:
    """What one Play stream steps. Not thread-safe."""

    @outside_the_loop
    def __init__(self, hello, retry_wait, renew_failed, make=make, seed=episode_seed):
        self._hello = hello
        self._seed = seed  # of the hello, a row and its episode
        self._make_env = make
        self._retry_wait = retry_wait  # seconds
        self._renew_failed = renew_failed
        self._size = hello.num_envs // hello.num_groups  # R
        self._traceback_bytes = min(_MAX_TRACEBACK_BYTES, _MAX_STEP_TRACEBACK_BYTES // self._size)
        self._envs = []
        try:
            self._begin()
        except BaseException:
            self.close()  # nobody else has them
            raise
        self._masks = [i for i, leaf in enumerate(self.observation) if isinstance(leaf, masks.MaskLeaf)]
        self.action_bytes = [leaf.row_bytes * self._agents for leaf in self.action]  # of one environment
        self._arrays = []  # per group, per observation leaf: [R, ...]

    def _begin(self):
        """Makes all environments, and what is known by the first."""
        hello, game = self._hello, self._make()
        self._envs.append(_Env(0, game))
        self._agents = game.agents
        self._alone = isinstance(game, GymGame)
        if self._size % self._agents:
            unit = self._agents * hello.num_groups
            below = hello.num_envs // unit * unit
            raise Refused(
                "INVALID_ARGUMENT",
                f'num_envs is {hello.num_envs} in {hello.num_groups} groups, and "{hello.env_id}" has {self._agents} agents: '
                f"use {f'{below} or {below + unit}' if below else unit}",
            )
        for row in range(self._agents, hello.num_envs, self._agents):
            self._envs.append(_Env(row, self._make()))
        self.spec, self.observation, self.action = describe(hello.env_id, game, self._first_info)
        self._action_space = game.action_space

    def place(self, arrays):
        """Where observations are written: per group and leaf, [R, ...]."""
        self._arrays = arrays

    @outside_the_loop
    def close(self):
        for env in self._envs:
            _close(env)

    @outside_the_loop
    def reset(self, group):
        """Starts an episode in every environment of `group`."""
        return self._run(group, [None] * self._size, self._start)

    @outside_the_loop
    def step(self, group, columns):
        """Steps every environment of `group`. Refuses an action that its space does not hold."""
        idle = None
        if self._agents > 1:
            idle = np.array([not slot.active for env in self._of(group) for slot in env.slots])
        row_actions = actions(self._hello.env_id, self._action_space, self.action, columns, self._size, idle)
        return self._run(group, row_actions, self._step_alone if self._alone else self._step)

    def nobody_plays(self, group):
        """Whether all environments of `group` are pending."""
        return all(env.pending for env in self._of(group))

    def _of(self, group):
        envs = self._size // self._agents
        return self._envs[group * envs : (group + 1) * envs]

    def _first_info(self):
        """Of the first environment that can be reset; refuses if none can. What its reset said, or why there was none,
        is kept for its start.
        """
        for env in self._envs:
            try:
                env.begun = self._reset(env)
                return _info(env.begun)
            except _ERRORS as error:
                env.begun = error
        # Once more, to look only: each still says at its start what failed.
        for env in self._envs:
            begun, env.begun = env.begun, None
            try:
                return _info(self._reset(env))
            except _ERRORS as error:
                last = error
            finally:
                env.begun = begun
        raise _masks_unknown(last)

    def _run(self, group, row_actions, run):
        batch = Batch(self._size, self._arrays[group])
        first = -self._agents
        for env in self._of(group):
            first += self._agents
            # Without a message until something new fails, and at the step that brings it back.
            lost = [batch.step.error.add(row=first + s) for s in range(self._agents)] if env.pending else None
            try:
                if lost is None:
                    run(env, row_actions[first : first + self._agents], batch, first)
                elif time.monotonic() >= env.retry_at:
                    self._retry(env, batch, first)
            except _ERRORS as error:
                mine = range(first, first + self._agents)
                batch.forget(mine)
                lost = lost or [batch.step.error.add(row=r) for r in mine]
                self._set_aside(env, first, batch, error, lost[0])
                lost[0].unusable = getattr(error, "unusable", False)
            if lost and not env.pending:
                for row in lost:
                    row.episode = env.episode - 1
        return batch

    def _start(self, env, _, batch, first):
        env.steps = 0
        env.slots = [_Slot() for _ in range(self._agents)]
        for s, (slot, turn) in enumerate(zip(env.slots, self._reset(env))):
            self._tell(slot, turn, batch, first + s)

    def _reset(self, env):
        """Begins the environment's next episode: each slot's turn."""
        begun, env.begun = env.begun, None
        if isinstance(begun, BaseException):
            raise begun
        if begun is not None:
            return begun
        seed = self._seed(self._hello, env.row, env.episode)
        env.episode += 1
        return env.game.reset(seed=seed)

    def _step_alone(self, env, chosen, batch, row):
        """As _step, of what a Gymnasium environment is: one slot, whose turn it always is."""
        observation, reward, terminated, truncated, info = env.game.play(chosen[0])
        env.steps += 1
        slot = env.slots[0]
        slot.length += 1
        ended = bool(terminated or truncated)
        said = Said(observation, info, ended)
        if terminated and observation is None:  # of a truncation a leaf refuses it, see _tell
            self._tell(slot, Turn(None, info, terminated=True), batch, row)
        else:
            for leaf, array in zip(self.observation, batch.arrays):
                leaf.write(array, row, said)
        reward = float(reward)
        if not abs(reward) <= MAX_MAGNITUDE:
            raise unusable(f"the reward is {reward}, want a finite number up to {MAX_MAGNITUDE:g}")
        slot.raw_return += reward
        batch.reward[row] = reward
        if ended:
            self._end(env, [(row, slot, terminated)], batch, row)

    def _step(self, env, chosen, batch, first):
        turns = env.game.step([action if slot.active else None for slot, action in zip(env.slots, chosen)])
        env.steps += 1
        limit = env.game.step_limit
        if limit and env.steps >= limit:
            turns = [env.game.interrupted(s, turn)._replace(truncated=True) for s, turn in enumerate(turns)]
        ended = []
        for s, (slot, turn) in enumerate(zip(env.slots, turns)):
            slot.length += slot.active
            if slot.gone:
                turn = None
            self._tell(slot, turn, batch, first + s)
            if turn is None:
                continue
            reward = float(turn.reward)
            if not abs(reward) <= MAX_MAGNITUDE:
                raise unusable(f"the reward is {reward}, want a finite number up to {MAX_MAGNITUDE:g}")
            slot.raw_return += reward
            batch.reward[first + s] = reward
            if turn.terminated or turn.truncated:
                ended.append((first + s, slot, turn.terminated))
        if ended:
            self._end(env, ended, batch, first)

    def _end(self, env, ended, batch, first):
        """Notes that episodes have ended: of each the row, its slot, and whether the task did it."""
        for r, slot, terminated in ended:
            # At the step limit, the task's own end wins.
            batch.terminated[r] = bool(terminated)
            batch.truncated[r] = not terminated
            slot.gone = True
        over = all(slot.gone for slot in env.slots)
        for r, slot, _ in ended:
            final = tuple(array[r].tobytes() for array in batch.arrays)
            end = env_pb2.EpisodeEnd(row=r, raw_return=slot.raw_return, length=slot.length, others_play_on=not over)
            batch.finals[r] = final, end
            if not over:
                for array in batch.arrays:
                    array[r] = 0
        if over:
            self._start(env, None, batch, first)

    def _tell(self, slot, turn, batch, r):
        """Puts what a slot was told into the batch; nothing: zeros."""
        ended = turn is not None and bool(turn.terminated or turn.truncated)
        slot.active = turn is not None and turn.active and not ended
        batch.active[r] = slot.active
        # Who has yet to decide has to see, and so has who was cut short: what was to come is estimated from there.
        if turn is None or (turn.observation is None and (turn.terminated or not (turn.active or ended))):
            for array in batch.arrays:
                array[r] = 0
            return
        said = Said(turn.observation, turn.info, ended)
        for leaf, array in zip(self.observation, batch.arrays):
            leaf.write(array, r, said)

    def _set_aside(self, env, first, batch, error, out):
        """The environment failed: it is pending, or, without a wait, tried again at once."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        out.traceback = cut(text, self._traceback_bytes)
        reasons = [gist(error)]
        again, env.pending = env.pending, True
        # A reset that failed too: only another environment may help.
        if self._renew_failed or again:
            _close(env)
        env.retry_at = time.monotonic() + self._retry_wait
        # The reset may fail where a new environment does not.
        tries = 0 if self._retry_wait or again else 1 if self._renew_failed else 2
        while env.pending and tries:
            tries -= 1
            try:
                self._retry(env, batch, first)
            except _ERRORS as failed:
                _close(env)
                reasons.append(gist(failed))
        if env.pending:
            batch.forget(range(first, first + self._agents))
            env.slots = [_Slot() for _ in range(self._agents)]
            for array in batch.arrays:
                array[first : first + self._agents] = 0
            for i in self._masks:  # its actions are ignored, but chosen
                batch.arrays[i][first : first + self._agents] = 1
        begin = one_line(f'env "{self._hello.env_id}", row {env.row}:') + " "
        each = (_MAX_MESSAGE_BYTES - len(begin.encode())) // len(reasons) - len("; then: ")
        out.message = cut(begin + "; then: ".join(cut(reason, each) for reason in reasons), _MAX_MESSAGE_BYTES)

    def _retry(self, env, batch, first):
        """Begins a pending environment's next episode."""
        if env.game is None:
            env.game = self._make()
        self._start(env, None, batch, first)
        env.pending = False

    def _make(self):
        return self._make_env(self._hello.env_id, self._hello.options)


def _close(env):
    game, env.game = env.game, None
    try:
        if game is not None:
            game.close()
    except _ERRORS:
        traceback.print_exc()
