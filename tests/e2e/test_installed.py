"""What `cmake --install` gives, moved elsewhere: programs, and projects of users' that
are built against it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness import BIN, SOURCE, TIMEOUT, guide, summary, training_lines

NO_END = ("--set=evaluation.every_updates=100000",)  # no evaluation ends the run


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installation that is not where it was made."""
    folder = tmp_path_factory.mktemp("installed")
    made, moved = folder / "made", folder / "moved" / "flotilla"
    run(["cmake", "--install", BIN.parent, "--prefix", made], folder)
    moved.parent.mkdir()
    made.rename(moved)
    yield moved
    shutil.rmtree(moved)


def run(words, folder, prefix=None, code=0, **more):
    env = dict(os.environ)
    for name in ("FLOTILLA_PROGRAM_FOLDER", "FLOTILLA_CONFIG_DIR"):
        env.pop(name, None)
    env.update(more)
    if prefix:
        env["PATH"] = f"{prefix}/bin:{env['PATH']}"
    with subprocess.Popen(
        [str(word) for word in words], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=4 * TIMEOUT)  # a README's commands compile
        except BaseException:  # what it has started ends too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == code, f"{words}\n{said}"
    return said


def follow(text, folder, prefix=None):
    """Types the blocks without a language into one shell, as a reader does."""
    run(["bash", "-ec", "".join(re.findall(r"(?ms)^```\n(.*?)^```$", text))], folder, prefix)


def new_project(kind, name, folder, prefix):
    """Follows the README that the project has, to the letter."""
    run(["flotilla", "new", kind, name], folder, prefix)
    project = folder / name
    follow((project / "README.md").read_text(), project, prefix)
    return project


def test_programs_run_where_they_were_moved(prefix, tmp_path):
    assert "cartpole_fast" in run(["flotilla", "configs"], tmp_path, prefix)
    run(["flotilla", "train", "cartpole_fast", "--nproc-per-node", 2, "--set=total_env_steps=40960", "--run-dir", "run"], tmp_path, prefix)
    assert summary(tmp_path / "run")["world_size"] == 2
    linked = run(["ldd", prefix / "bin" / "flotilla-learner"], tmp_path)
    assert "not found" not in linked
    torch = re.search(r"libtorch_cpu\.so => (\S+)", linked)[1]
    assert os.path.realpath(torch).startswith(str(prefix.resolve()))


@pytest.fixture(scope="module")
def network(prefix, tmp_path_factory):
    return new_project("network", "my-net", tmp_path_factory.mktemp("network"), prefix)


def test_a_network_of_ones_own_learns_and_is_recovered(prefix, network, tmp_path):
    result = summary(network / "runs" / "first")
    assert result["status"] == "solved"
    library = tmp_path / "mine.so"
    shutil.copy(network / "build" / "libmy_net.so", library)
    words = ["flotilla", "train", "cartpole_fast", "--nproc-per-node", 2, f"--set=model.plugin={library}", *NO_END]
    run([*words, "--set=total_env_steps=40960", "--run-dir", "run"], tmp_path, prefix)
    before = summary(tmp_path / "run")
    assert len(set(before["parameters_sha256"])) == 1 and len(before["parameters_sha256"]) == 2
    # The run keeps its own copy: moved, and without the file, it goes on and plays.
    library.unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    run(["flotilla", "train", "--resume", "--run-dir", "moved", "--set=total_env_steps=81920"], tmp_path, prefix)
    after = summary(tmp_path / "moved")
    assert after["updates"] == 2 * before["updates"]
    assert [line["update"] for line in training_lines(tmp_path / "moved")] == list(range(1, after["updates"] + 1))
    run(["flotilla", "evaluate", "moved", "--episodes", 3], tmp_path, prefix)


def test_a_killed_learner_is_replaced(network, sandbox):
    library = network / "build" / "libmy_net.so"
    job = sandbox.train("cartpole_fast", "--nproc-per-node", 2, f"--set=model.plugin={library}", *NO_END, "--set=total_env_steps=1e9")
    before = job.await_update(10)
    os.kill(before.learner[1].pid, signal.SIGKILL)
    job.await_status(lambda s: s.generation == 2 and s.world_size == 2 and s.update > before.update, "training again")
    updates = job.completes_after(50, 2 * 64 * 32)
    result = job.succeeds()
    assert result["restarts"]["learner"] == 1 and result["updates"] == updates
    assert len(result["parameters_sha256"]) == 2 and len(set(result["parameters_sha256"])) == 1


def test_it_learns_on_a_device_what_it_learns_on_the_cpu(prefix, tmp_path):
    run(["flotilla", "new", "network", "taken"], tmp_path, prefix)
    shutil.copy(SOURCE / "tests" / "e2e" / "taken_network.cc", tmp_path / "taken" / "network.cc")
    run(["cmake", "-B", "build", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"], tmp_path / "taken", prefix)  # what it costs does not matter
    run(["cmake", "--build", "build"], tmp_path / "taken", prefix)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("flotilla-coordinator", "flotilla-envserver"):
        (programs / name).symlink_to(prefix / "bin" / name)
    (programs / "flotilla-learner").symlink_to(BIN / "flotilla-learner-rehearsal")
    weights = []
    for device in ("cpu", "rehearsal"):
        run(
            ["flotilla", "train", "cartpole_ppo", "--set=model.plugin=taken/build/libtaken.so", f"--set=runtime.device={device}",
             "--set=total_updates=5", "--run-dir", device],
            tmp_path, prefix, FLOTILLA_PROGRAM_FOLDER=str(programs),
        )  # fmt: skip
        weights.append(load_file(tmp_path / device / "checkpoints" / "latest" / "weights.safetensors"))
    assert "computes on the rehearsal device" in (tmp_path / "rehearsal" / "logs" / "rank_0.log").read_text()
    assert weights[0].keys() == weights[1].keys() and set(weights[0]) == {"hidden", "policy", "value"}
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(weights[1][name], tensor, rtol=0, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def algorithm(tmp_path_factory):
    """What the guide makes, (project, installation): then its project's README is followed too."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "build").symlink_to(BIN.parent)
    follow(guide("learner", "Bring your own algorithm"), folder)
    project, installation = folder / "my_a2c", folder / "flotilla"
    assert summary(project / "runs" / "first")["status"] == "solved"
    shutil.rmtree(project / "runs")
    follow((project / "README.md").read_text(), project, installation)
    yield project, installation
    shutil.rmtree(installation)  # it is large


def test_an_algorithm_of_ones_own_learns_on_two_learners(algorithm):
    project, prefix = algorithm
    assert summary(project / "runs" / "first")["status"] == "solved"
    words = ["flotilla", "train", "cartpole.textproto", "--set=total_env_steps=20480", *NO_END]
    run([*words, "--nproc-per-node", 2, "--set=model.recurrent=LSTM", "--run-dir", "runs/two"], project, prefix)
    digests = summary(project / "runs" / "two")["parameters_sha256"]
    assert len(digests) == 2 and len(set(digests)) == 1
    # A typo in an option of its own, and a value that is none.
    said = run([*words, "--set=custom.options.entropy_cots=0.1", "--run-dir", "runs/typo"], project, prefix, code=2)
    assert 'custom.options.entropy_cots is no option of the algorithm' in said and 'did you mean "entropy_cost"?' in said
    said = run([*words, "--set=custom.options.entropy_cost=much", "--run-dir", "runs/much"], project, prefix, code=2)
    assert 'custom.options.entropy_cost is "much"; want a number' in said
    # Resumed, with another build of it.
    (project / "algorithm.cc").write_text((project / "algorithm.cc").read_text().replace("losses/loss", "losses/mine"))
    run(["cmake", "--build", "build"], project, prefix)
    again = ["flotilla", "train", "cartpole.textproto", "--resume", "--run-dir", "runs/two", "--set=total_env_steps=40960"]
    run([*again, "--set=model.recurrent=LSTM", *NO_END], project, prefix)
    lines = training_lines(project / "runs" / "two")
    assert "losses/loss" in lines[0] and "losses/mine" in lines[-1]
    assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))


def test_an_environment_of_ones_own_is_learned_and_its_server_replaced(prefix, sandbox, tmp_path):
    project = new_project("environment", "corridor", tmp_path, prefix)
    assert summary(project / "runs" / "first")["status"] == "solved"
    words = ["flotilla", "train", "corridor_ppo.textproto", "--dry-run"]
    said = run([*words, "--set=env.options.kwargs.sise=9"], project, prefix, code=2)
    assert "sise" in said and 'did you mean "size"?' in said
    said = run([*words, "--set=env.options.kwargs.size=1"], project, prefix, code=2)
    assert "env.options.kwargs.size is 1, want 2 or more" in said
    said = run([*words, "--set=env.id=Corridor-v1"], project, prefix, code=2)
    assert 'did you mean "Corridor-v0"?' in said
    job = sandbox.train(
        project / "corridor_ppo.textproto", "--nproc-per-node", 2, f"--set=env.server=exec:{project}/build/corridor",
        *NO_END, "--set=total_env_steps=1000000000000",
    )  # fmt: skip

    def playing(status):
        workers = status.learner[0].env_worker if status.learner else ()
        return status.update >= 20 and workers and workers[0].state == "playing"

    killed = job.await_status(playing, "its server to play").learner[0].env_worker[0].pid
    os.kill(killed, signal.SIGKILL)
    job.await_status(lambda s: playing(s) and s.learner[0].env_worker[0].pid != killed, "the next server to play")
    job.await_more_updates(400)
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130, job.diagnosis()
    result = summary(job.run_dir)
    assert len(set(result["parameters_sha256"])) == 1 and len(result["parameters_sha256"]) == 2
    assert result["restarts"]["env_worker"] == 1 and result["restarts"]["learner"] == 0
    assert result["mean_return"] > 0.9


def test_what_does_not_fit_is_refused_by_name(prefix, network, tmp_path):
    library = network / "build" / "libmy_net.so"

    def refused(path, *words, config="cartpole_fast", field="model.plugin"):
        name = f"run-{len(list(tmp_path.iterdir()))}"
        return run(["flotilla", "train", config, f"--set={field}={path}", "--run-dir", name, *words], tmp_path, prefix, code=2)

    built = library.read_bytes()
    stamp = re.search(rb"FLOTILLA-BUILD-STAMP:flotilla=([\d.]+) headers=(\w+) torch=([\d.]+) abi=(\S+?)\0", built)
    other = tmp_path / "other.so"
    other.write_bytes(built.replace(b"torch=" + stamp[3], b"torch=2.10.9"[: 6 + len(stamp[3])]))
    said = refused(other)
    assert "was built for LibTorch 2.10" in said and f"this learner is of LibTorch {stamp[3].decode()}" in said
    other.write_bytes(built.replace(b"headers=" + stamp[2], b"headers=" + b"0" * len(stamp[2])))
    assert "was built for Flotilla's headers 000000000000" in refused(other)
    other.write_bytes(b"#!/bin/sh\n")
    assert "is no shared library" in refused(other)
    other.write_bytes(built[: stamp.end() + 100])
    assert "is cut off" in refused(other)
    shutil.copy("/bin/true", other)
    assert "has no build stamp" in refused(other)
    assert "has no algorithm: add FLOTILLA_ALGORITHM" in refused(library, config=write_custom(tmp_path), field="custom.library")
    assert "which is no file that can be read; make it with `flotilla new network DIR`" in refused("missing.so")
    assert "it remembers nothing" in refused(library, "--set=model.recurrent=LSTM")
    said = run(["flotilla", "train", "cartpole_dqn", f"--set=model.plugin={library}"], tmp_path, prefix, code=2)
    assert "model.plugin is set, but dqn builds its own network" in said


def test_a_dry_run_says_so_too(prefix, network, tmp_path):
    def dry(config, library, code):
        words = ["flotilla", "train", config, "--dry-run", f"--set=model.plugin={library}"]
        return run(words, tmp_path, prefix, code=code)

    library = network / "build" / "libmy_net.so"
    assert "run folder" in dry("cartpole_fast", library, 0)
    assert not (tmp_path / "runs").exists()
    with_leaf = tmp_path / "leaf.textproto"
    with_leaf.write_text('env { id: "CartPole-v1" }\nmodel { leaf { path: "" frame_stack: 2 } }\nppo { }\n')
    said = dry(with_leaf, library, 2)
    assert f'model.plugin "{library}": it takes one vector, and this environment shows something else' in said
    custom = tmp_path / "options.textproto"
    custom.write_text('env { id: "CartPole-v1" }\ncustom { library: "none.so" }\n')
    assert "custom.library is" in dry(custom, "", 2)


def write_custom(folder):
    path = folder / "custom.textproto"
    path.write_text('env { id: "CartPole-v1" }\ncustom { }\n')
    return path


def test_a_project_is_not_written_over_anything(prefix, tmp_path):
    said = run(["flotilla", "new", "netwrok", "x"], tmp_path, prefix, code=2)
    assert 'did you mean "network"?' in said
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine\n")
    said = run(["flotilla", "new", "network", "there"], tmp_path, prefix, code=2)
    assert "is not empty" in said
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["mine.txt"]


def test_a_project_is_not_called_as_a_target_that_cmake_has(prefix, tmp_path):
    run(["flotilla", "new", "environment", "test"], tmp_path, prefix)
    assert "project(my_test" in (tmp_path / "test" / "CMakeLists.txt").read_text()
    assert (tmp_path / "test" / "my_test_ppo.textproto").exists()
    # Out of a build, it says what is missing.
    said = run([BIN / "flotilla", "new", "algorithm", "y"], tmp_path)
    assert "cmake --install" in said
