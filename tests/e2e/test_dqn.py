"""DQN with DI-engine's CartPole numbers, and a moment of its Pong."""

import json
import math
import os
import shutil
import signal

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness import checkpoint_files, read_jsonl, summary, training_lines

STEPS = 2 * 8 * 1  # of an update of two learners


def epsilon(step):
    return 0.1 + 0.85 * math.exp(-step / 10000)


@pytest.fixture(scope="module")
def run(shared_sandbox):
    job = shared_sandbox.train("cartpole_dqn", "--nproc-per-node", 2, "--set", "metrics.every_updates=1")
    job.succeeds(timeout=240)
    return job


def test_two_learners_reach_di_engines_stop_value(run):
    result = summary(run.run_dir)
    assert result["status"] == "solved" and result["algorithm"] == "dqn"
    assert result["eval_mean_return"] >= 195 and result["eval_episodes"] == 5
    assert result["world_size"] == 2 and len(set(result["parameters_sha256"])) == 1
    assert result["stop_update"] == result["updates"] > 0
    assert result["global_steps"] == 16 * result["updates"]


def test_metrics_follow_the_global_step(run):
    lines = training_lines(run.run_dir)
    names = {
        "losses/td_loss", "losses/q_values", "losses/grad_norm", "charts/epsilon", "charts/learning_rate",
        "charts/episodic_return", "charts/SPS", "replay/size", "sync/all_reduce_ms", "sync/bytes",
    }  # fmt: skip
    for line in lines[100:]:
        assert names <= line.keys()
        assert all(np.isfinite(value) for value in line.values())
        assert line["losses/td_loss"] > 0
        assert line["replay/size"] == min(20000, line["global_step"] // 2)
        assert line["charts/epsilon"] == pytest.approx(epsilon(line["global_step"] - 16))
        # Five gradients, one all-reduce each: with the loss, the samples, and whether there were any.
        assert line["sync/bytes"] == 5 * 4 * (33923 + 3)
    # A rank learns as soon as it has a batch of 64: after 8 of its 8 steps.
    assert [line["losses/td_loss"] > 0 for line in lines[:9]] == [False] * 7 + [True] * 2


def test_only_rank_0_evaluates_and_writes(run):
    evaluations = [line for line in read_jsonl(run.run_dir / "metrics.jsonl") if "eval/mean_return" in line]
    assert evaluations[0]["eval/update"] == 0  # as DI-engine: before it trains
    assert all(line["eval/update"] % 8 == 0 for line in evaluations)
    assert "evaluation of update" in (run.run_dir / "logs" / "rank_0.log").read_text()
    assert "evaluation of update" not in (run.run_dir / "logs" / "rank_1.log").read_text()


def test_the_checkpoint_holds_model_target_and_optimizer(run):
    folder = run.run_dir / "checkpoints" / "best"
    weights = load_file(folder / "weights.safetensors")
    assert sum(w.size for w in weights.values()) == 33923
    assert weights["advantage.2.weight"].shape == (2, 64) and weights["value.2.weight"].shape == (1, 64)
    state = load_file(folder / "state.safetensors")
    assert {f"target.{name}" for name in weights} <= state.keys()
    assert state["adam.exp_avg"].shape == (33923,) and state["adam.step"][0] > 0


def test_the_checkpoint_plays_greedily(run):
    result = run.sandbox.run("evaluate", run.run_dir / "checkpoints" / "best", "--episodes", 10, "--json")
    assert result.returncode == 0, result.stderr
    played = json.loads(result.stdout)
    assert len(played["episodes"]) == 10 and played["mean_return"] > 150


def short(sandbox, name, steps, *words, resume=False):
    job = sandbox.train(
        *([] if resume else [sandbox.config("cartpole_dqn")]), *words, "--set", f"total_env_steps={steps}",
        "--set", "metrics.every_updates=1", run_dir=name,
    )  # fmt: skip
    result = job.succeeds()
    assert result["status"] == "completed"
    assert len(set(result["parameters_sha256"])) == 1
    return result


@pytest.mark.parametrize("learners", [1, 2])
def test_the_same_seed_gives_the_same_parameters(sandbox, learners):
    words = ["--nproc-per-node", learners]
    first = short(sandbox, "first", 1600, *words)["parameters_sha256"]
    assert short(sandbox, "second", 1600, *words)["parameters_sha256"] == first
    assert short(sandbox, "other", 1600, *words, "--set", "seed=2")["parameters_sha256"] != first


def test_ranks_explore_differently(sandbox):
    """With one seed for all ranks they would collect the same episodes."""
    short(sandbox, "run", 1600, "--nproc-per-node", 2)
    lines = training_lines(sandbox.folder / "run")
    # Two ranks that did the same would finish episodes in pairs.
    finished = np.diff([0] + [line["charts/episodes"] for line in lines])
    assert (finished % 2 == 1).any()


def test_resuming_goes_on_from_the_saved_state(sandbox):
    short(sandbox, "run", 1600)
    folder = sandbox.folder / "run" / "checkpoints"
    saved = checkpoint_files((folder / "latest").resolve())
    short(sandbox, "run", 1600, "--resume", resume=True)  # nothing is left to do
    assert checkpoint_files((folder / "latest").resolve()) == saved
    result = short(sandbox, "run", 2400, "--resume", resume=True)
    assert result["global_steps"] == 2400 and result["updates"] == 300
    lines = training_lines(sandbox.folder / "run")
    assert [line["global_step"] for line in lines] == list(range(8, 2401, 8))
    assert lines[200]["charts/epsilon"] == pytest.approx(epsilon(1600))
    # The replay fills anew; nothing is learned from less than a batch.
    assert [line["replay/size"] for line in lines[199:202]] == [1600, 8, 16]
    assert [line["losses/td_loss"] > 0 for line in lines[199:209]] == [True] + [False] * 7 + [True] * 2


# Environments begin anew with a resumed run, so that in CartPole no two runs see
# the same from then on. Episodes of Sleep are all alike, and with 4 steps each one
# ends with its rollout: what a run learns depends on its own state alone.
ALIKE = (
    "--set", "env.id=Sleep", "--set", "env.options.sleep.step_ms=0", "--set", "env.options.max_episode_steps=4",
    "--set", "rollout.length=4", "--set", "dqn.n_step=3", "--set", "dqn.priority_alpha=0.6",
    "--set", "dqn.replay_capacity=600", "--set", "checkpoint.every_updates=10", "--set", "checkpoint.keep=8",
)  # fmt: skip


@pytest.mark.parametrize("learners", [1, 2])
def test_with_its_replay_a_resumed_run_is_the_undisturbed_one_bit_for_bit(sandbox, learners):
    words, update = (*ALIKE, "--nproc-per-node", learners), 4 * 8 * learners
    undisturbed = short(sandbox, "plain", 80 * update, *words)["parameters_sha256"]
    words += ("--set", "checkpoint.replay=true")
    assert short(sandbox, "whole", 80 * update, *words)["parameters_sha256"] == undisturbed
    checkpoints = sandbox.folder / "whole" / "checkpoints"
    assert len(list(checkpoints.glob("replay_*/rank_*/replay.safetensors"))) == 8 * learners
    for at in (10, 40):
        # By then the ring of 75 steps and a row more has turned; every rank's is another.
        saved = load_replays(checkpoints, at * update)
        assert all(r["sizes"][1] == 4 * at and len(r["reward"]) == min(76, 4 * at + 1) for r in saved.values())
        assert len({r["discrete"].tobytes() for r in saved.values()}) == learners
        again = (*words, "--resume", checkpoints / f"step_{at * update:012}")
        result = short(sandbox, f"from_{at}", 80 * update, *again)
        assert result["updates"] == 80 and result["world_size"] == learners
        assert result["parameters_sha256"] == undisturbed
        for rank in range(learners):
            assert f"goes on with a replay of {min(600, 32 * at)} steps" in rank_log(sandbox, f"from_{at}", rank)
    # Without it the run goes another way.
    result = short(sandbox, "without", 80 * update, *again, "--set", "checkpoint.replay=false")
    assert result["updates"] == 80 and result["parameters_sha256"] != undisturbed


def load_replays(checkpoints, step=None):
    """Each rank's, of the checkpoint of `step` or the newest."""
    step = step or int((checkpoints / "latest").resolve().name.removeprefix("step_"))
    return {p.parent.name: load_file(p) for p in (checkpoints / f"replay_{step:012}").glob("rank_*/replay.safetensors")}


def rank_log(sandbox, run, rank):
    return (sandbox.folder / run / "logs" / f"rank_{rank}.log").read_text()


def test_a_resumed_run_saves_the_replay_that_it_loaded(sandbox):
    words = ("--nproc-per-node", 2, "--set", "checkpoint.replay=true")
    short(sandbox, "run", 1600, *words)
    before = load_replays(sandbox.folder / "run" / "checkpoints")
    assert set(before) == {"rank_0", "rank_1"} and all(r["sizes"][1] == 100 for r in before.values())
    checkpoint = sandbox.folder / "run" / "checkpoints" / "latest"
    short(sandbox, "copy", 1600, *words, "--resume", checkpoint)
    after = load_replays(sandbox.folder / "copy" / "checkpoints")
    for rank, replay in before.items():
        assert replay.keys() == after[rank].keys()
        assert all(np.array_equal(replay[name], after[rank][name]) for name in replay), rank


def test_a_replay_that_is_gone_damaged_or_of_other_sizes_prevents_nothing(sandbox):
    short(sandbox, "run", 1600, "--nproc-per-node", 2, "--set", "checkpoint.replay=true")
    folder = next((sandbox.folder / "run" / "checkpoints").glob("replay_*"))
    data = bytearray((folder / "rank_0" / "replay.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "rank_0" / "replay.safetensors").write_bytes(data)
    shutil.rmtree(folder / "rank_1")
    short(sandbox, "run", 1616, "--resume", resume=True)
    for rank, why in enumerate(("is damaged: its SHA-256", "has none of rank 1")):
        lines = [x for x in rank_log(sandbox, "run", rank).splitlines() if "empty replay" in x]
        assert len(lines) == 1 and why in lines[0], lines
    short(sandbox, "run", 1632, "--resume", "--set", "dqn.replay_capacity=800", resume=True)
    assert "capacity is 2500, and here 100" in rank_log(sandbox, "run", 0)
    # One learner goes on with its own of two.
    short(sandbox, "run", 1648, "--resume", "--nproc-per-node", 1, resume=True)
    assert "goes on with a replay of 8 steps" in rank_log(sandbox, "run", 0)


def test_a_run_that_is_killed_goes_on_with_the_replay_of_its_checkpoint(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_dqn"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
        "--set", "metrics.every_updates=1", "--set", "checkpoint.every_updates=7", "--set", "checkpoint.replay=true",
    )  # fmt: skip
    job.await_update(60)
    sandbox.signal_all(signal.SIGKILL)
    job.wait()
    checkpoints = job.run_dir / "checkpoints"
    step = int((checkpoints / "latest").resolve().name.removeprefix("step_"))
    # Rank 0's is there before its checkpoint is; another rank's may be half a save behind.
    assert load_replays(checkpoints)["rank_0"]["sizes"][1] == step / 16
    result = short(sandbox, "run", step + 160, "--resume", resume=True)
    assert result["world_size"] == 2
    assert all(line["losses/td_loss"] > 0 for line in training_lines(job.run_dir)[8:])
    assert all("goes on with a replay of" in rank_log(sandbox, "run", rank) for rank in (0, 1))
    # Nothing unfinished is left, and old ones went with their checkpoints.
    left = sorted(p.name for p in checkpoints.glob("replay_*"))
    assert not list(checkpoints.glob("replay_*/.aside*")) and len(left) <= 4, left


@pytest.mark.parametrize("lost", [[1], [0, 1]])
def test_a_replaced_learner_takes_up_the_replay_of_the_last_checkpoint(sandbox, lost):
    job = sandbox.train(
        sandbox.config("cartpole_dqn"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
        "--set", "checkpoint.every_updates=50", "--set", "checkpoint.replay=true",
    )  # fmt: skip
    status = job.await_update(120)
    for rank in lost:
        os.kill(status.learner[rank].pid, signal.SIGKILL)
    for rank in lost:
        # Not by updates: what the others did before the loss may be told after it.
        job.poll(lambda: "goes on with a replay of" in rank_log(sandbox, "run", rank), f"rank {rank} takes up a replay")
    job.await_status(lambda s: s.generation >= 2 and s.world_size == 2, "a generation of two")
    job.await_more_updates(50)
    for rank in (0, 1):
        assert ("goes on with a replay of" in rank_log(sandbox, "run", rank)) == (rank in lost)
    assert "begins with an empty replay" not in "".join(rank_log(sandbox, "run", rank) for rank in (0, 1))


def test_a_killed_env_worker_does_not_stop_it(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_dqn"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
    )  # fmt: skip
    job.await_update(50)
    status = job.await_status(
        lambda s: len(s.learner) == 2 and [w.state for w in s.learner[1].env_worker] == ["playing"], "a worker that plays"
    )
    os.kill(status.learner[1].env_worker[0].pid, signal.SIGKILL)
    job.await_status(lambda s: s.env_worker_restarts == 1, "the restart in the status")
    updates = job.completes_after(200, STEPS)
    result = job.succeeds()
    assert result["status"] == "completed" and result["restarts"] == {"learner": 0, "env_worker": 1}
    assert result["global_steps"] >= updates * STEPS and len(set(result["parameters_sha256"])) == 1


def test_a_killed_learner_comes_back_with_an_empty_replay(sandbox):
    job = sandbox.train(
        sandbox.config("cartpole_dqn"), "--nproc-per-node", 2, "--set", "total_env_steps=1000000000",
        "--set", "metrics.every_updates=1",
    )  # fmt: skip
    status = job.await_update(50)
    os.kill(status.learner[1].pid, signal.SIGKILL)
    job.await_status(lambda s: s.generation >= 2 and s.world_size == 2 and s.learner_restarts == 1, "a generation of two")
    updates = job.completes_after(200, STEPS)
    result = job.succeeds()
    assert result["status"] == "completed" and result["restarts"]["learner"] == 1
    assert result["updates"] >= updates and result["global_steps"] == result["updates"] * STEPS
    assert len(set(result["parameters_sha256"])) == 1
    lines = training_lines(job.run_dir)
    # Rank 0 learned on alone while rank 1 had less than a batch.
    assert all(line["losses/td_loss"] > 0 for line in lines[8:])
    # The mean of both ranks, of which one began anew.
    sizes = [line["replay/size"] for line in lines]
    (fell,) = [i for i in range(1, len(sizes)) if sizes[i] < sizes[i - 1]]
    assert sizes[fell] < 0.6 * sizes[fell - 1]


def test_what_does_not_fit_is_refused_by_name(sandbox):
    for override, words in {
        "env.id=Pendulum-v1": ("continuous", "choose ppo"),
        "dqn.replay_capacity=10": ("dqn.batch_size = 64",),
        "model.normalize_rewards=true": ("model.normalize_rewards", "dqn needs false"),
        "dqn.save_replay=true": ("there is no field",),
    }.items():
        result = sandbox.run("train", "cartpole_dqn", "--set", override)
        assert result.returncode == 2, override
        assert all(word in result.stderr for word in words), result.stderr
