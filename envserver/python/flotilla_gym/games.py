"""What a row is made of: one environment, of Gymnasium or of PettingZoo, whose agents each have a slot.

A game has `agents` slots, `observation_space` and `action_space` of every one, `max_episode_steps` (0: it knows no
limit), `reward_threshold`, and `renders`: whether, made with render_mode="rgb_array", its render() gives a picture. Its reset(seed) and step(actions) tell of each slot: a Turn, or None where there is
nothing to say. step() is given an action for each slot, None where the slot was not active.
"""

import importlib
import importlib.util
import sys
import typing

import gymnasium

from flotilla_gym.refused import Refused, one_line

ZOO = "pettingzoo:"


class Turn(typing.NamedTuple):
    """What one slot is told."""

    observation: object  # None: nothing
    info: object
    reward: object = 0
    terminated: object = False
    truncated: object = False
    active: bool = True  # decides next; one that ended does not


RGB = "rgb_array"


def _renders(env):
    modes = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
    return RGB in modes and callable(getattr(env, "render", None))


_LOW_HALF = (1 << 32) - 1


class _Seeded:
    """What takes seeds of 64 bits, though its environment (numpy's older generators) may take none so large: of such a one
    it is given the lower half. Which that is, is said by the seed alone, so a game may begin anew with any of its episodes."""

    _taken = _LOW_HALF  # the largest that the environment took
    _too_large = 1 << 64  # the smallest that it did not take

    def _begin(self, seed):
        """What reset() of the environment gives."""
        if seed >= self._too_large:
            return self._env.reset(seed=seed & _LOW_HALF)
        try:
            told = self._env.reset(seed=seed)
        except (ValueError, TypeError, OverflowError) as error:
            if seed <= self._taken:
                raise
            told = self._once_more(seed, error)
            if told is not None:
                return told
            try:
                told = self._env.reset(seed=seed & _LOW_HALF)
            except Exception:  # it was not the seed
                raise error from None
            self._too_large = seed
            return told
        self._taken = max(self._taken, seed)
        return told

    def _once_more(self, seed, error):
        """What reset() gives if `error` is not the seed's: then all of it is taken now. None: it is not."""
        try:
            told = self._env.reset(seed=seed)
        except (ValueError, TypeError, OverflowError):
            return None
        self._taken = seed
        # Nobody else says so, as nothing is lost.
        said = f"reset(seed={seed}) worked at its second attempt, after {type(error).__name__}: {one_line(error)}"
        print(f"flotilla_gym: {said}", file=sys.stderr, flush=True)
        return told


class GymGame(_Seeded):
    """A Gymnasium environment."""

    agents = 1

    def __init__(self, env):
        self._env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.max_episode_steps = getattr(env.spec, "max_episode_steps", None) or 0
        self.reward_threshold = getattr(env.spec, "reward_threshold", None) or 0
        self.step_limit = 0  # Gymnasium's wrapper keeps it
        self.renders = _renders(env)
        self.render = getattr(env, "render", None)
        self.close = env.close
        self.play = env.step  # as step, of its only slot, and as Gymnasium says it

    def reset(self, seed):
        observation, info = self._begin(seed)
        return [Turn(observation, info)]

    def step(self, actions):
        observation, reward, terminated, truncated, info = self._env.step(actions[0])
        return [Turn(observation, info, reward, terminated, truncated)]


class _ZooGame(_Seeded):
    reward_threshold = 0

    def __init__(self, env_id, env, max_episode_steps):
        self._env = env
        self.close = env.close
        self.renders = _renders(env)
        self.render = getattr(env, "render", None)
        self.max_episode_steps = self.step_limit = max_episode_steps
        self._names = list(getattr(env, "possible_agents", ()))
        if not self._names:
            raise Refused("INVALID_ARGUMENT", f"{env_id} has no possible_agents, want a list of all that may ever play")
        self.agents = len(self._names)
        self.observation_space = self._shared(env_id, "observation", env.observation_space)
        self.action_space = self._shared(env_id, "action", env.action_space)

    def _shared(self, env_id, kind, space_of):
        """The space that every agent has. Refuses, naming them, agents of which each has its own."""
        first = space_of(self._names[0])
        for name in self._names[1:]:
            if space_of(name) != first:
                raise Refused(
                    "INVALID_ARGUMENT",
                    f"{env_id}: the {kind} space of {self._names[0]} is {first}, and that of {name} {space_of(name)}; one "
                    "policy plays all agents, want the same of each (supersuit pads them)",
                )
        return first

    def _over(self, turns):
        """`turns`, once nobody plays any more: everybody's episode has ended, however little was said of it."""
        turns = [turn or Turn(None, {}) for turn in turns]
        return [turn if turn.terminated or turn.truncated else turn._replace(terminated=True) for turn in turns]


class ParallelGame(_ZooGame):
    """A PettingZoo environment whose agents act at once. Who is not observed at a step may still earn or end by it."""

    def reset(self, seed):
        observation, info = self._begin(seed)
        self._newest = {name: (seen, info.get(name, {})) for name, seen in observation.items()}
        return [Turn(observation[name], info.get(name, {})) if name in self._env.agents else None for name in self._names]

    def step(self, actions):
        chosen = {name: action for name, action in zip(self._names, actions) if action is not None}
        observation, reward, terminated, truncated, info = self._env.step(chosen)
        self._newest.update((name, (seen, info.get(name, {}))) for name, seen in observation.items())
        turns = [None] * self.agents
        for place, name in enumerate(self._names):
            if not any(name in told for told in (observation, reward, terminated, truncated)):
                continue
            turns[place] = turn = Turn(
                observation.get(name),
                info.get(name, {}),
                reward.get(name, 0),
                terminated.get(name, False),
                truncated.get(name, False),
                active=name in observation,
            )
            if turn.truncated:
                turns[place] = self.interrupted(place, turn)
        return turns if self._env.agents else self._over(turns)

    def interrupted(self, place, turn):
        """What a slot that was told `turn` sees, and has earned, where its episode is cut short: if nothing now, what
        it saw last, from where a learner estimates what was to come. To who left without a word nothing was.
        """
        name = self._names[place]
        turn = turn or Turn(None, {}, active=False)
        if turn.active or turn.terminated:
            return turn
        if name not in self._newest or not (turn.truncated or name in self._env.agents):
            return turn._replace(terminated=True)
        observation, info = self._newest[name]
        return turn._replace(observation=observation, info=info)


class TurnGame(_ZooGame):
    """A PettingZoo environment whose agents act in turn. What one is told, it is told at its turn."""

    def reset(self, seed):
        self._begin(seed)
        return self._next()

    def step(self, actions):
        self._env.step(actions[self._place()])
        return self._next()

    def _place(self):
        return self._names.index(self._env.agent_selection)

    def _next(self):
        """Up to the next agent that decides; those who are gone only learn of it."""
        turns = [None] * self.agents
        for _ in range(2 * self.agents):
            if not self._env.agents:
                return self._over(turns)
            place = self._place()
            observation, reward, terminated, truncated, info = self._env.last()
            turns[place] = Turn(observation, info, reward, terminated, truncated)
            if not (terminated or truncated):
                return turns
            self._env.step(None)
        raise RuntimeError(f"agents {self._env.agents} have ended, and remain where they are")

    def interrupted(self, place, turn):
        """As ParallelGame's. Who was told nothing would have been at its next turn, of its end as well."""
        name = self._names[place]
        if turn is not None:
            return turn
        if name not in self._env.agents:
            return Turn(None, {}, terminated=True)
        earned = getattr(self._env.unwrapped, "_cumulative_rewards", {}).get(name, 0)
        ended = self._env.terminations.get(name, False)
        return Turn(self._env.observe(name), self._env.infos.get(name, {}), earned, ended)


def make_zoo(env_id, max_episode_steps, kwargs):
    """The environment of pettingzoo:MODULE or pettingzoo:MODULE:NAME. A module of PettingZoo's own may be written as in
    its documentation: classic/connect_four_v3."""
    if importlib.util.find_spec("pettingzoo") is None:
        raise ModuleNotFoundError("No module named 'pettingzoo'")
    name, _, maker = env_id[len(ZOO) :].partition(":")
    module = _load(env_id, name.replace("/", "."))
    makers = [maker] if maker else ["parallel_env", "env"]
    make = next((getattr(module, each) for each in makers if hasattr(module, each)), None)
    if make is None:
        raise Refused("NOT_FOUND", f"{env_id}: {module.__name__} has no {' nor '.join(makers)}, to make an environment with")
    env = make(**kwargs)
    kind = TurnGame if hasattr(env, "agent_iter") else ParallelGame
    return kind(env_id, env, max_episode_steps)


def _load(env_id, name):
    if not all(part.isidentifier() for part in name.split(".")):
        raise Refused("INVALID_ARGUMENT", f'"{env_id}" is no pettingzoo:MODULE, as in pettingzoo:classic/connect_four_v3')
    for whole in (f"pettingzoo.{name}", name):
        try:
            return importlib.import_module(whole)
        except ModuleNotFoundError as error:
            # What the module itself lacks is another matter.
            if error.name is None or not f"{whole}.".startswith(f"{error.name}."):
                raise
    raise Refused("NOT_FOUND", f"{env_id}: there is no module pettingzoo.{name}, nor {name}; PYTHONPATH names where yours is")


def make_gym(name, max_episode_steps, kwargs):
    return GymGame(gymnasium.make(name, max_episode_steps=max_episode_steps or None, **kwargs))
