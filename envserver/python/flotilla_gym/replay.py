"""EnvService.Replay: a recorded game played again, in an environment of its own."""

import json

import numpy as np

from flotilla.v1 import config_pb2, env_pb2
from flotilla_gym.games import RGB
from flotilla_gym.loops import outside_the_loop
from flotilla_gym.refused import Refused, one_line
from flotilla_gym.rows import Rows


def play_again(request, make):
    """The answers to `request`, one after another, as the environment steps. Raises Refused, and what the environment
    does as it is made."""
    if not request.episode:
        raise Refused("INVALID_ARGUMENT", "episode is empty, want 1 or more")
    game, drawn = _make(request, make)
    seeds = [episode.seed for episode in request.episode]
    hello = env_pb2.Hello(env_id=request.env_id, options=request.options, num_envs=game.agents, num_groups=1)
    rows = Rows(hello, 0, False, lambda *_: game, lambda _, __, episode: seeds[episode] if episode < len(seeds) else 0)
    try:
        yield from _play(request, rows, game.agents, drawn)
    finally:
        rows.close()


class _Drawn:
    """A game that is drawn after each reset and step, into `frames`."""

    def __init__(self, game):
        self._game = game
        self.frames = []

    def __getattr__(self, name):
        return getattr(self._game, name)

    def reset(self, seed):
        turns = self._game.reset(seed)
        self._draw()
        return turns

    def step(self, actions):
        turns = self._game.step(actions)
        self._draw()
        return turns

    def _draw(self):
        picture = np.asarray(self._game.render())
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ValueError(f"its render() gave {picture.dtype}{list(picture.shape)}, want uint8 [height, width, 3]")
        height, width, _ = picture.shape
        self.frames.append(env_pb2.Frame(width=width, height=height, rgb=picture.tobytes()))


@outside_the_loop
def _make(request, make):
    """The game, and what it is drawn into; None: it is not."""
    if not request.frames:
        return make(request.env_id, request.options), None
    options = config_pb2.EnvOptions()
    options.CopyFrom(request.options)
    if "render_mode" not in options.kwargs:
        options.kwargs["render_mode"] = json.dumps(RGB)
    try:
        game = make(request.env_id, options)
        seen = game.renders
    except (Refused, TypeError) as error:
        make(request.env_id, request.options).close()  # what is wrong without frames, too
        raise Refused("FAILED_PRECONDITION", f"{request.env_id} cannot be seen: {one_line(error)}") from None
    if not seen:
        game.close()
        raise Refused("FAILED_PRECONDITION", f"{request.env_id} cannot be seen: its render_modes have no {RGB}")
    game = _Drawn(game)
    return game, game.frames


def _play(request, rows, agents, drawn):
    steps = [_steps(k, episode, rows.action_bytes, agents) for k, episode in enumerate(request.episode)]
    rows.place([[np.zeros((agents, *leaf.shape), leaf.dtype) for leaf in rows.observation]])
    batch = rows.reset(0).finish()
    for k, episode in enumerate(request.episode):
        # The frame of the reset is the last one: before it came the step's, which ended the episode before.
        yield _answer(k, 0, batch, drawn[-1] if drawn else None)
        if batch.error:
            return
        gone = np.zeros(agents, bool)
        for t in range(steps[k]):
            if drawn is not None:
                drawn.clear()
            columns = [data[t * size : (t + 1) * size] for data, size in zip(episode.action, rows.action_bytes)]
            batch = rows.step(0, columns).finish()
            yield _answer(k, t + 1, batch, drawn[0] if drawn else None)
            gone |= np.frombuffer(batch.terminated, "u1") + np.frombuffer(batch.truncated, "u1") > 0
            if batch.error or (gone.all() and t + 1 < steps[k]):
                return
        if not gone.all():
            return


def _steps(k, episode, sizes, agents):
    """T of episode `k`, whose actions have to be of the right size."""
    if len(episode.action) != len(sizes):
        want = f"want {len(sizes)} as the environment has"
        raise Refused("INVALID_ARGUMENT", f"episode {k} has {len(episode.action)} action leaves, {want}")
    steps = len(episode.action[0]) // sizes[0]
    for i, (data, size) in enumerate(zip(episode.action, sizes)):
        if steps == 0 or len(data) != steps * size:
            want = f"want {size} for each step, of 1 or more"
            raise Refused("INVALID_ARGUMENT", f"action leaf {i} of episode {k} has {len(data)} bytes, {want}")
    return steps


def _answer(k, step, batch, frame):
    answer = env_pb2.ReplayStep(episode=k, step=step, frame=frame)
    if step > 0:
        answer.reward, answer.terminated, answer.truncated = batch.reward, batch.terminated, batch.truncated
        answer.episode_end.extend(batch.episode_end)
    if batch.error:
        answer.error = batch.error[0].message or "the environment failed"
    return answer
