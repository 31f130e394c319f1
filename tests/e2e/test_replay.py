"""Games of a run are seen again: the same returns, and films that other programs can read."""

import json
import os
import signal

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

from harness import guide, poll, read_jsonl

QUIET = "--set=evaluation.every_updates=0"
KINDS = ("best", "worst", "median", "newest")

# Environments that do what no environment of Gymnasium's should.
ODD = '''
import os
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Dice(CartPoleEnv):
    """Its dice are not the seed's."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + int.from_bytes(os.urandom(3), "little") / 2**24, *rest


class Trap(CartPoleEnv):
    """Fails where its pole leans far; or says that it earned nothing that is a number."""

    def __init__(self, render_mode=None, nan=False):
        super().__init__(render_mode=render_mode)
        self.nan = nan

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if abs(observation[2]) > 0.15:
            if not self.nan:
                raise RuntimeError("it leans")
            reward = float("nan")
        return observation, reward, *rest


class Dark(CartPoleEnv):
    metadata = {"render_modes": []}


for name, kind in (("Dice", Dice), ("Trap", Trap), ("Dark", Dark)):
    gymnasium.register(f"{name}-v0", entry_point=kind, max_episode_steps=500)
'''


def replay(sandbox, run_dir, *words, **how):
    done = sandbox.run("replay", run_dir, *words, "--json", **how)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listed(sandbox, run_dir):
    return replay(sandbox, run_dir, "--list")


def all_reproduce(job):
    """Every game that the run has kept comes out as it was."""
    games = listed(job.sandbox, job.run_dir)
    assert games
    for game in games[:12]:
        again = replay(job.sandbox, job.run_dir, f"--episode={game['number']}")
        assert again["reproduced"], again
    return games


def film(path):
    """Its frames, [T, H, W, 3], by the reader of its own library."""
    if path.suffix == ".mp4":
        with av.open(str(path)) as video:
            return np.stack([frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)])
    with Image.open(path) as pictures:
        return np.stack([np.asarray(picture.convert("RGB")) for picture in ImageSequence.Iterator(pictures)])


def assert_moves(frames):
    assert frames.max() - frames.min() > 100  # not all black
    assert (frames[0] != frames[-1]).any()


@pytest.fixture(scope="module")
def cartpole(shared_sandbox):
    evaluation = "evaluation { every_updates: 10 episodes: 6 num_envs: 4 }"
    job = shared_sandbox.train(shared_sandbox.config("cartpole_fast", evaluation), "--steps=50k")
    job.succeeds()
    return job


def test_every_game_that_was_kept_comes_out_as_it_was(cartpole):
    games = all_reproduce(cartpole)
    training = [game for game in games if game["evaluation"] == 0]
    kept = [kind for game in training for kind in game["kept_as"]]
    assert sorted(set(kept)) == sorted(KINDS) and kept.count("newest") == 4
    by_kind = {kind: game for game in training for kind in reversed(game["kept_as"])}
    assert by_kind["worst"]["return"] < by_kind["best"]["return"]
    assert by_kind["worst"]["return"] <= by_kind["median"]["return"] <= by_kind["best"]["return"]
    for game in training:
        assert game["return"] == game["steps"] == game["returns"][0]  # a point a step
        assert 0 < game["global_step"] <= 50_000 + 64 * 32
    assert replay(cartpole.sandbox, cartpole.run_dir)["return"] == by_kind["best"]["return"]


def test_every_evaluation_is_kept_whole(cartpole):
    games = [game for game in listed(cartpole.sandbox, cartpole.run_dir) if game["evaluation"]]
    evaluations = [line for line in read_jsonl(cartpole.run_dir / "metrics.jsonl") if "eval/mean_return" in line]
    assert evaluations
    newest = [game for game in games if game["evaluation"] == max(game["evaluation"] for game in games)]
    assert len(newest) == 6
    assert np.mean([game["return"] for game in newest]) == pytest.approx(evaluations[-1]["eval/mean_return"])
    best = replay(cartpole.sandbox, cartpole.run_dir, "--episode=evaluation")
    assert best["reproduced"] and best["return"] == max(game["return"] for game in newest)


@pytest.mark.parametrize("suffix", [".mp4", ".webp", ".gif"])
def test_a_film_has_a_frame_for_each_state(cartpole, suffix):
    path = cartpole.sandbox.folder / f"worst{suffix}"
    made = replay(cartpole.sandbox, cartpole.run_dir, "--episode=worst", f"--video={path}")
    assert made["reproduced"] and made["frames"] == made["steps"] + 1
    frames = film(path)
    assert frames.shape[1:] == (320, 480, 3)
    # Pictures that look the same are one of an animation.
    assert len(frames) == made["frames"] if suffix == ".mp4" else 2 <= len(frames) <= made["frames"]
    assert_moves(frames)
    assert [entry.name for entry in path.parent.glob(f".*{suffix}.*")] == []


def test_evaluate_films_its_best_game(cartpole):
    path = cartpole.sandbox.folder / "evaluated.mp4"
    done = cartpole.sandbox.run("evaluate", cartpole.run_dir, "--episodes=4", "--json", f"--video={path}")
    assert done.returncode == 0, done.stderr
    best = max(json.loads(done.stdout)["episodes"], key=lambda episode: episode["return"])
    frames = film(path)
    assert len(frames) == best["length"] + 1
    assert_moves(frames)


def test_the_guide_is_true(cartpole):
    commands = [line.split("#")[0].split() for line in guide("launcher", "See games again").split("```")[1].strip().splitlines()]
    assert len(commands) == 4 and all(words[0] == "build/bin/flotilla" for words in commands)
    for words in commands:
        done = cartpole.sandbox.run(*[str(cartpole.run_dir) if word == "runs/first" else word for word in words[1:]])
        assert done.returncode == 0, done.stderr
    assert_moves(film(cartpole.sandbox.folder / "best.mp4"))


def test_what_is_wrong_is_one_line(cartpole):
    sandbox, run_dir = cartpole.sandbox, cartpole.run_dir
    (sandbox.folder / "empty").mkdir(exist_ok=True)
    # A Python that cannot encode.
    (sandbox.folder / "bare").mkdir(exist_ok=True)
    (sandbox.folder / "bare" / "av.py").write_text("raise ImportError('No module named av')\n")
    bare = {"PYTHONPATH": str(sandbox.folder / "bare")}
    for words, code, says, env in (
        ((), 2, "name a run's folder", {}),
        (("nowhere",), 2, '"nowhere" is no run\'s folder', {}),
        (("empty",), 2, "is no run's folder", {}),
        ((run_dir / "checkpoints" / "latest",), 2, "is no run's folder", {}),
        ((run_dir, "--episode=first"), 2, '--episode is "first"; this run has best, worst, median', {}),
        ((run_dir, "--episode=1000"), 2, "and 1 to ", {}),
        ((run_dir, "--video=a.avi"), 2, "ends in .mp4, .webp or .gif", {}),
        ((run_dir, "--video=nowhere/a.mp4"), 2, "there is no folder nowhere", {}),
        ((run_dir, "--fps=0"), 2, "--fps", {}),
        ((run_dir, "--video=a.mp4"), 1, "pip install av pillow, or set FLOTILLA_PYTHON", bare),
    ):
        done = sandbox.run("replay", *words, env=env)
        lines = done.stderr.strip().splitlines()
        assert (done.returncode, done.stdout) == (code, ""), (words, done.stderr)
        assert lines[0].startswith("flotilla replay: ") and len(lines) <= 2, done.stderr
        assert says in lines[0], done.stderr
    assert not (sandbox.folder / "a.mp4").exists()


def test_a_file_that_was_cut_or_changed_is_not_believed(sandbox, cartpole):
    run = sandbox.folder / "copy"
    (run / "episodes").mkdir(parents=True)
    (run / "metrics.jsonl").write_text("")
    whole = (cartpole.run_dir / "episodes" / "training.games").read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), b"junk"):
        (run / "episodes" / "training.games").write_bytes(content)
        done = sandbox.run("replay", run)
        assert done.returncode == 2 and "training.games cannot be played again" in done.stderr


def test_torques_are_seen_again(sandbox):
    job = sandbox.train("pendulum_ppo", "--steps=8k", QUIET)
    job.succeeds()
    games = all_reproduce(job)
    assert all(game["steps"] == 200 for game in games)
    path = sandbox.folder / "best.mp4"
    assert replay(sandbox, job.run_dir, f"--video={path}")["frames"] == 201
    assert_moves(film(path))


def test_both_sides_of_a_game_are_seen_again(sandbox):
    evaluation = "evaluation { every_updates: 5 episodes: 8 num_envs: 8 }"
    job = sandbox.train(sandbox.config("connect4_ppo", evaluation), "--steps=20k")
    job.succeeds()
    games = all_reproduce(job)
    assert all(sum(game["returns"]) == 0 and len(game["returns"]) == 2 for game in games if game["evaluation"] == 0)
    path = sandbox.folder / "best.webp"
    replay(sandbox, job.run_dir, f"--video={path}")
    assert_moves(film(path))


def test_gymnasiums_are_drawn_by_themselves(sandbox):
    job = sandbox.train("cartpole_ppo", "--set=env.id=gym:CartPole-v1", "--steps=8k", QUIET)
    job.succeeds()
    all_reproduce(job)
    path = sandbox.folder / "best.mp4"
    made = replay(sandbox, job.run_dir, f"--video={path}")
    frames = film(path)
    assert frames.shape == (made["steps"] + 1, 400, 600, 3)  # as Gymnasium draws it
    assert_moves(frames)


@pytest.fixture(scope="module")
def odd(shared_sandbox):
    """A folder for PYTHONPATH."""
    folder = shared_sandbox.folder / "odd"
    folder.mkdir()
    (folder / "odd_envs.py").write_text(ODD)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def test_an_environment_that_does_not_reproduce_is_told(sandbox, odd):
    sandbox.env |= odd
    job = sandbox.train("cartpole_ppo", "--set=env.id=gym:odd_envs:Dice-v0", "--steps=4k", QUIET)
    job.succeeds()
    done = sandbox.run("replay", job.run_dir)
    assert done.returncode == 1
    assert "gym:odd_envs:Dice-v0 does not reproduce its games from seed and actions: the return is" in done.stderr
    done = sandbox.run("replay", job.run_dir, "--json")
    assert json.loads(done.stdout)["reproduced"] is False


@pytest.mark.parametrize("words, kind, why", [((), "crashed", "it leans"), (("--set=env.options.kwargs.nan=true",), "unusable", "the reward is nan")])
def test_what_failed_fails_again(sandbox, odd, words, kind, why):
    sandbox.env |= odd
    job = sandbox.train(
        "cartpole_ppo", "--set=env.id=gym:odd_envs:Trap-v0", "--steps=4k", "--set=env.max_failed_share=1", *words, QUIET
    )
    job.succeeds()
    games = [game for game in listed(sandbox, job.run_dir) if kind in game["kept_as"]]
    assert len(games) == 4 and all(why in game["error"] for game in games)
    for game in games:
        assert replay(sandbox, job.run_dir, f"--episode={game['number']}")["reproduced"]
    path = sandbox.folder / "failed.mp4"
    made = replay(sandbox, job.run_dir, f"--episode={kind}", f"--video={path}")
    assert len(film(path)) == made["frames"] >= made["steps"]


def test_what_cannot_be_seen_is_told(sandbox, odd):
    sandbox.env |= odd
    job = sandbox.train("cartpole_ppo", "--set=env.id=gym:odd_envs:Dark-v0", "--steps=4k", QUIET)
    job.succeeds()
    assert replay(sandbox, job.run_dir)["reproduced"]
    done = sandbox.run("replay", job.run_dir, "--video=dark.mp4")
    assert done.returncode == 1 and "cannot be seen" in done.stderr
    assert not (sandbox.folder / "dark.mp4").exists()


def test_a_resumed_run_keeps_its_best(sandbox):
    config = sandbox.config("cartpole_fast")  # without evaluations
    job = sandbox.train(config, "--steps=20k")
    job.succeeds()
    before = replay(sandbox, job.run_dir)["return"]
    again = sandbox.train(config, "--steps=40k", "--resume")
    again.succeeds()
    assert replay(sandbox, job.run_dir)["return"] >= before
    worst = replay(sandbox, job.run_dir, "--episode=worst")
    assert worst["reproduced"] and worst["return"] <= before


def test_nothing_is_recorded_where_that_is_asked_for(sandbox):
    job = sandbox.train("cartpole_fast", "--steps=10k", "--set=episodes.record=false")
    job.succeeds()
    assert not (job.run_dir / "episodes").exists()
    done = sandbox.run("replay", job.run_dir)
    assert done.returncode == 2 and "episodes.record is false" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("suffix", [".mp4", ".webp", ".gif"])
def test_nothing_is_left_of_a_film_that_is_interrupted(cartpole, suffix, number):
    sandbox = cartpole.sandbox

    def parts():
        return list(sandbox.folder.glob(f".half{suffix}.*"))

    program = sandbox.serve("flotilla", "replay", cartpole.run_dir, f"--video=half{suffix}")
    poll(lambda: parts() or program.poll() is not None, "what there is of the film")
    program.send_signal(number)
    assert program.wait(20) == {signal.SIGINT: 130, signal.SIGKILL: -9}[number], (sandbox.folder / "flotilla.log").read_text()
    sandbox.await_no_process()
    assert not parts() and not (sandbox.folder / f"half{suffix}").exists()


def test_a_killed_replay_takes_its_encoder_along(cartpole):
    sandbox = cartpole.sandbox
    program = sandbox.serve("flotilla", "replay", cartpole.run_dir, "--video=killed.gif")
    # Which waits for its first frame, if it has come that far.
    poll(lambda: any("flotilla_video" in line for line in sandbox.processes().values()), "the encoder")
    program.kill()
    program.wait(20)
    sandbox.await_no_process()
