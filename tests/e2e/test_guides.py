"""The guides are true: every block names the test that covers it, and those that no other test runs are run here."""

import re
import subprocess
import sys

from harness import GRPCURL, SOURCE, guide, poll

BLOCK = re.compile(r"(?ms)^##+ (.*?)$|^```\w*\n(.*?)^```$")
# Guide, section: the tests that run its blocks, in their order.
RUN_BY = {
    ("README.md", "Two commands"): ["tests/e2e/test_guides.py"],
    ("README.md", "Install without a compiler"): ["tests/e2e/test_wheel.py"],
    ("README.md", "What you see"): ["tests/e2e/test_guides.py"] * 3,
    ("README.md", "On several hosts"): ["tests/e2e/test_two_hosts.py"],
    ("launcher/README.md", "Ask a run"): ["tests/e2e/test_guides.py"],
    ("launcher/README.md", "Cores"): ["tests/e2e/test_cores.py"],
    ("launcher/README.md", "See a run"): ["tests/e2e/test_dashboard.py"],
    ("launcher/README.md", "Train from Python"): ["tests/e2e/test_python_train.py"],
    ("launcher/README.md", "Evaluate beside a run"): ["tests/e2e/test_follow.py"],
    ("launcher/README.md", "See games again"): ["tests/e2e/test_replay.py"],
    ("launcher/README.md", "Compare runs"): ["tests/e2e/test_compare_runs.py"],
    ("launcher/README.md", "Search"): ["tests/e2e/test_sweep.py"] * 2,
    ("launcher/README.md", "Take the policy home"): ["tests/e2e/test_export.py"] * 2,
    ("learner/README.md", "Life of a step"): ["tests/e2e/test_guides.py"],
    ("learner/README.md", "Bring your own network"): ["tests/e2e/test_own_network.py"] * 3,
    ("learner/README.md", "Bring your own algorithm"): ["tests/e2e/test_installed.py"],
    ("envserver/README.md", "Add an environment"): ["tests/e2e/test_origins.py"] * 2,
    ("envserver/README.md", "Games in batches"): ["tests/e2e/test_native.py"],
    ("envserver/README.md", "Any Gymnasium environment"): ["tests/e2e/test_guides.py", "tests/e2e/test_spaces.py"],
    ("envserver/README.md", "Environments in other languages"): ["tests/e2e/test_origins.py"],
    ("envserver/README.md", "Dialling in"): ["tests/e2e/test_dial.py"] * 2,
    ("envserver/README.md", "Several agents"): ["tests/e2e/test_agents.py"],
    ("envserver/README.md", "Check an env server"): ["tests/e2e/test_guides.py", "tests/e2e/test_check_env.py"],
    ("deploy/README.md", "Who may do what"): ["tests/deploy/certs_test.py"],
    ("deploy/README.md", "Prometheus"): ["tests/e2e/test_operators.py"],
    ("deploy/README.md", "Kubernetes"): ["tests/deploy/kubernetes_test.py"],
}


def blocks(text):
    """[(section, block)]"""
    found, section = [], ""
    for match in BLOCK.finditer(text):
        if match[1]:
            section = match[1]
        else:
            found.append((section, match[2]))
    return found


def commands(text, begin="build/bin/"):
    """The commands of a block, without what is said of them."""
    text = text.replace("\\\n", "")
    return [re.sub(r"\s+#.*", "", line) for line in text.splitlines() if line.startswith(begin)]


def test_every_block_of_the_guides_is_run_by_a_test():
    found = {}
    for name in ("README.md", *(f"{folder}/README.md" for folder in ("launcher", "learner", "envserver", "deploy"))):
        for section, _ in blocks((SOURCE / name).read_text()):
            found.setdefault((name, section), []).append(section)
    assert {key: len(tests) for key, tests in RUN_BY.items()} == {key: len(there) for key, there in found.items()}
    for tests in RUN_BY.values():
        assert all((SOURCE / test).exists() for test in tests)


def test_two_commands():
    (block,) = [block for section, block in blocks((SOURCE / "README.md").read_text()) if section == "Two commands"]
    for line in commands(block, "make "):
        said = subprocess.run([*line.split(), "-n", "--no-print-directory"], cwd=SOURCE, stdout=subprocess.PIPE, text=True, check=True).stdout
        assert said.startswith("cmake/setup.sh ") and "cmake --build build" in said
        assert ("build/bin/flotilla train cartpole_fast --nproc-per-node 2" in said) == (line == "make quickstart")


def test_what_you_see(sandbox):
    sandbox.env["FLOTILLA_PYTHON"] = sys.executable  # which makes films
    first, folder, then = [block for section, block in blocks((SOURCE / "README.md").read_text()) if section == "What you see"]
    shown = first.splitlines()
    assert shown[0].startswith("$ ")
    said = sandbox.bash(f"{shown[0][2:]} 2>&1")
    for line in shown[1:]:  # but for numbers, and where it listens
        words = re.escape(re.sub(r"sha256 \w+", "sha256 0", line)).replace("sha256\\ 0", r"sha256 \w+")
        if not line.startswith("coordinator"):
            assert re.search(re.sub(r"(\d|,|\\\.)+", r"[\\d,.]+", words), said), f"{line}\n{said}"
    there = {path.name for path in (sandbox.folder / "runs" / "first").iterdir()}
    assert not [name for name in there if not name.startswith(".") and name not in folder]
    conditional = {"changes.textproto", "evaluations.jsonl", "network.pt", "environment-*.pickle", "metrics.address", "trackers", "hub"}
    first_words = {line.split()[0].strip("/,") for line in folder.splitlines() if not line.startswith(" ")}
    assert first_words - conditional <= there
    for command in commands(then):
        short = {"breakout_ppo": " --steps 2048 --set evaluation.every_updates=0 --run-dir runs/breakout"}
        more = next((words for name, words in short.items() if name in command), "")
        said = sandbox.bash(f"{command}{more} 2>&1")
        assert said.strip(), command
    assert (sandbox.folder / "best.mp4").stat().st_size > 1000


def test_ask_a_run(sandbox):
    job = sandbox.train("cartpole_fast", "--nproc-per-node=2", "--steps=1000000000", "--set=evaluation.every_updates=100000")
    seen = job.await_status(lambda s: s.update >= 5 and s.learner and s.learner[0].env_worker, "a learner to tell of its env worker")
    worker = seen.learner[0].env_worker[0].address
    (block,) = [block for section, block in blocks((SOURCE / "launcher" / "README.md").read_text()) if section == "Ask a run"]
    asked = commands(block, "grpcurl ")
    assert len(asked) == 5 and "/Stop" in asked[-1]
    for command in asked:
        command = command.replace("127.0.0.1:29400", job.address()).replace("RUN/token", f"{job.run_dir}/token")
        command = re.sub(r"unix:/tmp/flotilla_PID_X+/rank_0_0_0", worker, command).replace("grpcurl", str(GRPCURL), 1)
        said = sandbox.bash(command)
        assert "/Stop" in command or said.strip(), command
    assert job.wait() == 0, job.diagnosis()
    own = {line.split()[1] for line in commands(block)}
    assert own == {"status", "set", "stop"}  # test_watch.py, test_set.py, test_services.py


def test_files_that_the_life_of_a_step_names_are_there():
    (block,) = [block for section, block in blocks((SOURCE / "learner" / "README.md").read_text()) if section == "Life of a step"]
    named = re.findall(r"(?m)^(?:\s*\d+ |\s{3})([a-z]+/[\w/.]+)", block)
    assert len(named) > 12
    for name in named:
        assert (SOURCE / name).exists(), name


def test_any_gymnasium_environment(sandbox):
    """With a Python that has gymnasium already: nothing is installed from a network here."""
    lines = commands(guide("envserver", "Any Gymnasium environment"))
    assert len(lines) == 2
    for line in lines:
        sandbox.bash(f"FLOTILLA_PYTHON={sys.executable} {line} --steps 4096 --set evaluation.every_updates=100000 2>&1")


def test_check_an_env_server(sandbox):
    ours, serve, other = commands(guide("envserver", "Check an env server").replace(" &  ", "    "))
    assert "ok" in sandbox.bash(ours)
    program = sandbox.serve("flotilla", *serve.replace("/tmp/env.sock", f"{sandbox.tmp}/env.sock").split()[1:])
    poll(lambda: (sandbox.tmp / "env.sock").exists(), "the env server's socket")
    assert "ok" in sandbox.bash(other.replace("/tmp/env.sock", f"{sandbox.tmp}/env.sock"))
    program.terminate()
