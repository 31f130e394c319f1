"""envs, configs, doctor, --dry-run and the help: what they say is true."""

import re

import pytest

from harness import BIN


def lines(sandbox, *words, code=0):
    result = sandbox.run(*words)
    assert result.returncode == code, result.stderr
    return result.stdout.splitlines()


def test_envs_lists_what_can_be_trained_on(sandbox):
    known = lines(sandbox, "envs")
    assert {"CartPole-v1", "Pendulum-v1", "Sleep"} <= set(known)
    assert len(known) == len(set(known))
    assert any(line.startswith("gym:ID") for line in known)


def test_every_shipped_configuration_is_listed_and_valid(sandbox):
    listed = [line.split(maxsplit=1) for line in lines(sandbox, "configs")]
    names = [name for name, _ in listed]
    assert {"cartpole_fast", "cartpole_ppo", "breakout_ppo"} <= set(names)
    assert all(len(about) > 10 for _, about in listed)
    for name in names:
        plan = lines(sandbox, "train", name, "--dry-run")
        assert plan[0].endswith(f"{name}.textproto")
        assert lines(sandbox, "configs", name)


def test_doctor_finds_nothing_wrong_here(sandbox):
    report = "\n".join(lines(sandbox, "doctor"))
    for word in ("flotilla-learner", "flotilla-envserver", "flotilla-coordinator", "LibTorch", "GPUs", "port", "cores"):
        assert word in report
    assert not re.search("^bad", report, re.MULTILINE)


def test_doctor_finds_what_is_wrong(sandbox):
    report = "\n".join(lines(sandbox, "doctor", "--coordinator", "127.0.0.1:1", code=1))
    assert "127.0.0.1:1" in report


def table(sandbox, *words):
    """The plan's rows: name -> cells."""
    plan = lines(sandbox, "train", *words, "--dry-run")
    rows = {}
    for line in plan:
        if line.startswith("  "):
            name, *cells = re.split(r"\s{2,}", line.strip())
            rows.setdefault(name, cells)
    return rows


def test_what_a_program_of_ones_own_is_not_told_is_said(sandbox):
    own = f"exec:{BIN / 'flotilla-example-envs'}"
    words = ["train", "cartpole_ppo", "--dry-run", "--set=env.id=Corridor-v0", "--set=env.retry=RETRY_RENEW"]
    for server, says in ((own, True), (f"{own} --renew-failed", False)):
        result = sandbox.run(*words, f"--set=env.server={server}")
        assert result.returncode == 0 and ("start that with --renew-failed" in result.stderr) == says, result.stderr


def test_a_dry_run_works_the_sizes_out(sandbox):
    """CleanRL's 8 environments, over two learners."""
    words = ("breakout_ppo", "--nproc-per-node", 2, "--set", "env.num_envs=4")
    rows = table(sandbox, *words)
    assert rows["environments"][:2] == ["4", "8"]
    assert rows["batch"][:2] == ["512", "1,024"]
    assert rows["minibatch"][:2] == ["128", "256"]
    assert rows["gradient steps"][0] == "16"
    assert rows["env workers"][:2] == ["1", "2"]
    assert rows["ranks here"][0] == "0-1 of 2"
    # 9,765.6 batches: the last one is made whole, so that no step is left out.
    assert rows["updates"][:2] == ["9,766", "for 10,000,000 steps: 9,765 and one that passes them"]
    rows = table(sandbox, *words, "--set", "total_env_steps=9999360")
    assert rows["updates"][0] == "9,765"


def test_a_dry_run_starts_and_leaves_nothing(sandbox):
    plan = "\n".join(lines(sandbox, "train", "cartpole_ppo", "--run-dir", "run", "--set", "ppo.epochs=8", "--dry-run"))
    assert "epochs: 8" in plan and "run folder" in plan
    assert not list(sandbox.folder.iterdir())
    sandbox.await_no_process()


@pytest.mark.parametrize(
    "command",
    [
        "train", "evaluate", "status", "stop", "runs", "plot", "export", "push", "envs", "check-env", "configs", "new",
        "install", "explain", "completion", "doctor", "serve-envs", "coordinator", "health",
    ],
)  # fmt: skip
def test_every_command_has_help(sandbox, command):
    text = "\n".join(lines(sandbox, command, "--help"))
    assert "usage: flotilla" in text and command in text
    assert f"  {command} " in "\n".join(lines(sandbox, "--help"))


def test_every_documented_flag_is_there(sandbox):
    text = "\n".join(lines(sandbox, "train", "--help"))
    for flag in (
        "--nproc-per-node", "--nnodes", "--node-rank", "--coordinator", "--master-addr", "--master-port",
        "--rdzv-endpoint", "--standalone", "--backend", "--max-restarts", "--run-dir", "--resume", "--set", "--dry-run",
        "--tls-cert", "--tls-key", "--tls-ca", "--token-file", "--progress",
    ):  # fmt: skip
        assert flag in text
