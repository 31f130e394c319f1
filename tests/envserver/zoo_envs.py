"""Environments of several agents that the tests play: pettingzoo:zoo_envs:NAME."""

import functools

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Survivors(ParallelEnv):
    """Of `agents` agents, whose slot i observes [i, steps, last action], each leaves when it plays 3; the last game of all
    ends after `length` steps. Its reward is its action. Action 4 raises.
    """

    metadata = {"name": "survivors"}

    def __init__(self, agents=3, length=5, masked=False):
        self.possible_agents = [f"a{i}" for i in range(agents)]
        self.length = length
        self.masked = masked

    @functools.cache
    def observation_space(self, _):
        return spaces.Box(-10, 1000, (3,), np.float32)

    @functools.cache
    def action_space(self, _):
        return spaces.Discrete(5)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.steps = 0
        self.first = seed % 1000
        return self._seen(dict.fromkeys(self.agents, self.first)), self._infos()

    def step(self, actions):
        assert set(actions) == set(self.agents), (actions, self.agents)
        if 4 in actions.values():
            raise ValueError("four")
        self.steps += 1
        seen, infos = self._seen(actions), self._infos()
        rewards = {agent: float(action) for agent, action in actions.items()}
        terminated = {agent: action == 3 for agent, action in actions.items()}
        truncated = {agent: self.steps >= self.length for agent in actions}
        self.agents = [agent for agent in self.agents if not terminated[agent] and not truncated[agent]]
        return seen, rewards, terminated, truncated, infos

    def _seen(self, last):
        return {agent: np.float32([int(agent[1:]), self.steps, last[agent]]) for agent in self.agents}

    def _infos(self):
        return {agent: {"action_mask": np.int8([1, 1, 1, 1, 0])} if self.masked else {} for agent in self.agents}


class Quiet(Survivors):
    """Observes those alone who play on, and a1 at every second step only: in between it repeats its last action."""

    def reset(self, seed=None, options=None):
        self.chosen = {}
        return super().reset(seed, options)

    def step(self, actions):
        self.chosen = {agent: actions.get(agent, self.chosen.get(agent)) for agent in self.agents}
        seen, *said = super().step(self.chosen)
        return {agent: seen[agent] for agent in self.agents if agent != "a1" or self.steps % 2 == 0}, *said


class Deserters(Survivors):
    """Of which a2 leaves at the first step, and nothing is said of it; if `all`, of nobody but what they earned."""

    def __init__(self, all=False):
        super().__init__()
        self.all = all

    def step(self, actions):
        seen, rewards, terminated, truncated, infos = super().step(actions)
        self.agents = [] if self.all else self.agents[:2]
        each = (seen, terminated, truncated, infos) if self.all else (seen, rewards, terminated, truncated, infos)
        for told in each:
            for agent in set(told) - set(self.agents):
                del told[agent]
        return seen, rewards, terminated, truncated, infos


class Blinded(Survivors):
    """Says that all observe nothing, once its time is over."""

    def step(self, actions):
        seen, *said = super().step(actions)
        return seen if self.agents else dict.fromkeys(seen), *said


class Mixed(Survivors):
    """Whose agents have spaces of their own."""

    def action_space(self, agent):
        return spaces.Discrete(5 + int(agent[1:]))


class Race(AECEnv):
    """Turns: each move of 0 to 2 is a reward to who makes it, and as much less to the next, who learns of it at its turn.
    An agent that has played `length` moves is done; the others go on. Two of three agents are in the game from the start.
    """

    metadata = {"name": "race", "is_parallelizable": False}

    def __init__(self, length=3):
        super().__init__()
        self.possible_agents = ["x", "y", "z"]
        self.length = length

    @functools.cache
    def observation_space(self, _):
        return spaces.Dict(
            {"observation": spaces.Box(-1, 1000, (2,), np.float32), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
        )

    @functools.cache
    def action_space(self, _):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.moves = dict.fromkeys(self.agents, 0)
        self.agent_selection = self.agents[seed % 3]

    def observe(self, agent):
        return {
            "observation": np.float32([self.possible_agents.index(agent), sum(self.moves.values())]),
            "action_mask": np.int8([1, 1, self.moves[agent] % 2]),
        }

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert self.observe(agent)["action_mask"][action]
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.moves[agent] += 1
        self.rewards[agent] += action
        self.rewards[following] -= action
        self.terminations[agent] = self.moves[agent] == self.length
        self._accumulate_rewards()
        self.agent_selection = following
        self._deads_step_first()


class Untold(Race):
    """Of which the last in turn leaves at the first move, and who has ended learns of it at its next turn alone."""

    def _deads_step_first(self):
        if sum(self.moves.values()) == 1:
            self.agents.remove(self.agents[self.agents.index(self.agent_selection) - 2])
