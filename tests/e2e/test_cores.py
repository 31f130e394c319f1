"""Which cores learners share with their workers: what a dry run says, and where they are then."""

import contextlib
import os
import pathlib
import re
import subprocess

import pytest

from harness import BIN, TIMEOUT, guide, poll

CORES = sorted(os.sched_getaffinity(0))


def test_the_guide_is_true(sandbox):
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", guide("launcher", "Cores"))
    shared, confined, free = (sandbox.bash(command.replace("-c 0", f"-c {CORES[0]}")) for command in block.splitlines())
    if len(CORES) == 2:
        assert f"rank 0 on {CORES[0]}, rank 1 on {CORES[1]}" in shared and "(4 processes outnumber 2 cores)" in shared
    elif len(CORES) >= 4:
        assert "(enough for all 4 processes)" in shared
    assert f"rank 0 on {CORES[0]} " in confined and "(2 processes outnumber 1 core)" in confined
    assert "free " in free and "(runtime.placement is FREE)" in free


@pytest.fixture
def half_a_core():
    """What puts a command into a cgroup that may use half of one core's time."""
    name = f"flotilla-test-{os.getpid()}"
    for folder, limits in (
        (pathlib.Path("/sys/fs/cgroup"), {"cpu.max": "50000 100000"}),
        (pathlib.Path("/sys/fs/cgroup/cpu"), {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
    ):
        group = folder / name
        try:
            group.mkdir()
            for file, limit in limits.items():
                if not (group / file).exists():
                    raise OSError(f"no {file}")
                (group / file).write_text(limit)
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        group.rmdir()
        return
    pytest.skip("no cgroup with a CPU quota can be made here")


def test_a_quota_is_seen(sandbox, half_a_core):
    said = subprocess.run(
        [*half_a_core, BIN / "flotilla", "doctor"], cwd=sandbox.folder, env=sandbox.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True, timeout=TIMEOUT,
    ).stdout  # fmt: skip
    assert f"{len(CORES)} cores, of which a quota leaves the time of 0.5" in said or len(CORES) == 1, said


def allowed(pid):
    """Of every thread of the process."""
    found = set()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found.add(re.search(r"^Cpus_allowed_list:\s*(\S+)$", (task / "status").read_text(), re.MULTILINE)[1])
    return found


@pytest.mark.skipif(len(CORES) < 2, reason="one core")
def test_each_learner_is_where_its_worker_is_and_nobody_else(sandbox):
    job = sandbox.train(
        "cartpole_ppo", "--nproc-per-node", 2, "--set", "runtime.placement=PINNED", "--set", "total_env_steps=1000000000",
        "--set", "evaluation.every_updates=0",
    )  # fmt: skip
    job.await_update(3)
    status = job.await_status(lambda s: len(s.learner) == 2 and all(l.env_worker for l in s.learner), "both, and their workers")
    halves = CORES[: len(CORES) // 2], CORES[len(CORES) // 2 :]
    for learner, cores in zip(status.learner, halves):
        for pid in (learner.pid, learner.env_worker[0].pid):
            (where,) = allowed(pid)
            first, _, last = where.partition("-")
            assert list(range(int(first), int(last or first) + 1)) == cores, where


def test_env_servers_of_one_command_share_the_cores(sandbox):
    sandbox.serve("flotilla", "serve-envs", "--listen=127.0.0.1:0", "--workers=2")
    servers = poll(
        lambda: [line for line in sandbox.processes().values() if "flotilla-envserver" in line][1:], "two servers"
    )
    if "of which a quota leaves" in sandbox.run("doctor").stdout:
        pytest.skip("there are fewer within a quota")
    for server in servers:
        assert f"--threads={max(1, len(CORES) // 2)}" in server.split()
