"""flotilla check-env: our own servers keep every sentence of env.proto, and one that does not is told which."""

import json
import re

import pytest

from harness import SOURCE, guide, poll

GYM_ENVS = {"PYTHONPATH": str(SOURCE / "tests" / "envserver")}


def verdicts(result):
    report = json.loads(result.stdout)
    sentences = {sentence["name"]: sentence for sentence in report["sentences"]}
    assert sum(report[count] for count in ("ok", "failed", "warnings", "skipped")) == len(sentences)
    return {name: sentence["verdict"] for name, sentence in sentences.items()}, sentences


def passes(sandbox, *words, env=None):
    result = sandbox.run("check-env", *words, "--json", env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    verdict, sentences = verdicts(result)
    for name in ("welcome", "one-step", "deterministic", "episode-start", "episode-length", "shared-memory", "ring", "takeover", "cancel"):
        assert verdict[name] == "ok", sentences[name]
    return verdict


def test_it_says_a_line_for_every_sentence(sandbox):
    result = sandbox.run("check-env", "CartPole-v1")
    assert result.returncode == 0, result.stdout + result.stderr
    *lines, summary = result.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "skipped") for line in lines), result.stdout
    assert any(line.startswith("ok       seq: seq is 0 for the reset") for line in lines)
    assert "0 failed, 0 warnings" in summary and summary.startswith(f"{sum(line.startswith('ok') for line in lines)} ok")
    sandbox.await_no_process()


@pytest.mark.parametrize("env_id", ["Maze", "Pendulum-v1", "Sleep"])
def test_native_environments_pass(sandbox, env_id):
    verdict = passes(sandbox, env_id)
    assert verdict["shutdown"] == "ok"
    assert verdict["seeds"] == ("warning" if env_id == "Sleep" else "ok")
    assert verdict["episode-metrics"] == "ok"


def test_atari_passes(sandbox):
    if "ALE/" not in sandbox.run("envs").stdout:
        pytest.skip("built without Atari")
    passes(sandbox, "ALE/Breakout-v5", "--steps=24", "--num-envs=2", "--timeout=60")


@pytest.mark.parametrize("env_id", ["gym:CartPole-v1", "gym:gym_envs:Spaces-v0", "gym:task_envs:Signals-v0"])
def test_gymnasium_passes(sandbox, env_id):
    verdict = passes(sandbox, env_id, "--timeout=60", env=GYM_ENVS)
    if "Signals" in env_id:
        assert (verdict["mask"], verdict["mask-path"]) == ("ok", "ok")


RAISES = """
import gymnasium
import numpy as np


class Raises(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 4:
            raise RuntimeError("its fourth step")
        return self.np_random.random(2, np.float32), 0.0, bool(self.np_random.random() < 0.2), False, {}


gymnasium.register("Raises-v0", entry_point=Raises, disable_env_checker=True)
"""


def test_rows_that_fail_beside_a_ring_pass(sandbox):
    """Their steps are messages, which may be seen before the entries that announce them."""
    (sandbox.folder / "raises.py").write_text(RAISES)
    verdict = passes(sandbox, "gym:raises:Raises-v0", "--timeout=20", env={"PYTHONPATH": str(sandbox.folder)})
    assert verdict["row-errors"] == "ok"


def test_it_has_help(sandbox):
    assert "  check-env " in sandbox.run("--help").stdout
    text = sandbox.run("check-env", "--help").stdout
    for flag in ("--env", "--set", "--timeout", "--json", "--token-file"):
        assert flag in text


def test_a_server_that_runs_already_passes(sandbox):
    """As README has it."""
    socket = sandbox.tmp / "env.sock"
    server = sandbox.serve("flotilla", "serve-envs", f"--listen=unix:{socket}")
    poll(socket.exists, "the server's socket")
    verdict = passes(sandbox, f"unix:{socket}", "--env", "CartPole-v1")
    assert verdict["shutdown"] == "skipped"
    verdict = passes(sandbox, f"unix:{socket}", "--env=CartPole-v1", "--set=env.options.max_episode_steps=9")
    assert verdict["limit-option"] == "ok"
    result = sandbox.run("check-env", f"unix:{socket}", "--env=CartPole-v7")
    assert result.returncode == 1 and "NOT_FOUND" in result.stdout and "CartPole-v1" in result.stdout
    result = sandbox.run("check-env", f"unix:{socket}")
    assert result.returncode == 2 and "environments; name one with --env ID: " in result.stderr
    server.terminate()
    assert server.wait(20) == 0


def test_a_server_that_hangs_fails_by_name(sandbox):
    """In the words that the guide shows."""
    socket = sandbox.tmp / "env.sock"
    server = sandbox.serve("flotilla-envserver", f"--listen=unix:{socket}")
    poll(socket.exists, "the server's socket")
    # Its steps take an hour each.
    result = sandbox.run("check-env", f"unix:{socket}", "--env=Sleep", "--set=env.options.sleep.step_ms=3600000", "--timeout=2")
    server.kill()
    assert result.returncode == 1
    _, shown = re.findall(r"(?ms)^```\n(.*?)^```$", guide("envserver", "Check an env server"))
    assert shown.startswith("FAIL     in-time: every answer comes within the timeout: nothing came within 2s, want the step of group")
    assert shown in result.stdout


def test_a_wrong_command_line_is_refused_by_name(sandbox):
    for words, code, says in (
        ((), 2, "needs an environment's ID, or the ADDRESS"),
        (("CartPole-v7",), 2, 'did you mean "CartPole-v1"?'),
        (("exec:build/mine",), 2, "is a program: start it with --listen unix:PATH"),
        (("CartPole-v1", "--env=Maze"), 2, "--env goes with an ADDRESS"),
        (("CartPole-v1", "--num-envs=3"), 2, "want an even number"),
        (("CartPole-v1", "--set=seed=3"), 2, "only env.options.*"),
        (("CartPole-v1", "--set=env.options.sleep.step_ms=3"), 2, "CartPole-v1 does not read it"),
        ((f"unix:{sandbox.tmp}/nothing", "--env=Maze", "--timeout=1"), 1, "no env server answers at unix:"),
    ):
        result = sandbox.run("check-env", *words)
        assert result.returncode == code and says in result.stderr, result.stdout + result.stderr
        assert 1 <= len(result.stderr.strip().splitlines()) <= 2, result.stderr
