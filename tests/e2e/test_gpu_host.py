"""A host with a GPU, and a Flotilla that was built without CUDA: nothing is planned for the GPU,
and whoever asks for it hears why. The driver is made up."""

import os
import re
import subprocess

import pytest

from harness import BIN

# Of NVIDIA's nvml.h what Flotilla asks: one GPU.
DRIVER = """
#include <string.h>
typedef unsigned long long u64;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.1", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = device; return index; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strncpy(text, "Made Up 100", size); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { strncpy(text, "GPU-made-up", size); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, u64 *memory) { memory[0] = 80ull << 30; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
"""
WHY = "this Flotilla was built without CUDA, so that 1 GPU of this host is not used"
MENDS = "FLOTILLA_CUDA=1 make build"


@pytest.fixture
def host(sandbox):
    cache = (BIN.parent / "CMakeCache.txt").read_text()
    if "FLOTILLA_CUDA:BOOL=ON" in cache:
        pytest.skip("built with CUDA")
    (sandbox.folder / "nvml.c").write_text(DRIVER)
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", "libnvidia-ml.so.1", "nvml.c"], cwd=sandbox.folder, check=True)
    sandbox.env["LD_LIBRARY_PATH"] = f"{sandbox.folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    sandbox.env.pop("CUDA_VISIBLE_DEVICES", None)
    return sandbox


def test_doctor_says_that_it_lies_idle_and_what_mends_that(host):
    said = host.run("doctor").stdout.splitlines()
    at = next(i for i, line in enumerate(said) if line.split()[1:2] == ["GPUs"])
    assert said[at].startswith("note") and WHY in said[at] and MENDS in said[at + 1]


@pytest.mark.parametrize("word", ("--nproc-per-node=gpu", "--set=runtime.device=cuda", "--set=runtime.device=cuda:0", "--device-ids=0", "--backend=nccl"))
def test_who_asks_for_it_hears_why(host, word):
    refused = host.run("train", "cartpole_ppo", word, "--dry-run")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1 and WHY in refused.stderr and MENDS in refused.stderr


def test_two_learners_train_on_the_cpu_beside_one_gpu(host):
    plan = host.run("train", "cartpole_ppo", "--nproc-per-node=2", "--dry-run")
    assert plan.returncode == 0 and re.search(r"(?m)^ *device +the CPU", plan.stdout), plan.stdout + plan.stderr
    job = host.train("cartpole_ppo", "--nproc-per-node=2", "--set=total_env_steps=1e9")
    job.await_update(5)
    assert [learner.device for learner in job.status().learner] == ["cpu", "cpu"]
    updates = job.completes_after(1000, 2 * 4 * 128)
    assert job.succeeds()["updates"] == updates
