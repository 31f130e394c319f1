"""Compiles learner/cuda/launch.cu for GPUs and bounds what each kernel takes of one:

    registers_test.py NVCC FLAG...

Registers bound how many threads a multiprocessor holds; what spills, or lies in a stack
frame, goes through memory."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "learner/cuda/launch.cu"
ARCHITECTURES = {"sm_80", "sm_90", "sm_120"}
# Of 65,536 of a multiprocessor, for blocks of 256 threads: at 40 six blocks are there at
# once, at 64 four. Scans have a thread an environment, so few blocks, and ask for memory
# ahead; decisions are few blocks too. Products of matrices keep what they sum up, and
# what comes next, in registers.
MOST_REGISTERS = {"PpoLossKernel": 64, "GaeKernel": 96, "VtraceKernel": 80, "SampleKernel": 56,
                  "MlpForwardKernel": 128, "MlpSlopeKernel": 128, "MlpPartsKernel": 72}
OTHERS = 40

ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>sm_\d+)'\n"
    r"(?:.*\n)*?.* (?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\n"
    r".*Used (?P<registers>\d+) registers")


def kernel(mangled):
    """RunKernel<flotilla::AdamKernel>(...) is AdamKernel."""
    plain = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout
    inner = re.search(r"RunKernel<(.*?)>\(", plain)
    assert inner, f"{plain} is not RunKernel of a kernel"
    return re.sub(r"flotilla::|\(anonymous namespace\)::", "", inner[1])


def main():
    nvcc, *flags = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [nvcc, *flags, "-Xptxas", "-v", "-c", SOURCE, "-o", f"{scratch}/launch.o"],
            capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    seen, bad = {}, []
    for entry in ENTRY.finditer(done.stderr):
        name, registers = kernel(entry["name"]), int(entry["registers"])
        seen.setdefault(name, set()).add(entry["arch"])
        print(f"{name:32} {entry['arch']:7} {registers:3} registers, {entry['stack']} bytes of stack, "
              f"{entry['stores']} + {entry['loads']} bytes of spills")
        most = MOST_REGISTERS.get(name, OTHERS)
        if registers > most:
            bad.append(f"{name} takes {registers} registers on {entry['arch']}, at most {most} are meant")
        if int(entry["stack"]) + int(entry["stores"]) + int(entry["loads"]) > 0:
            bad.append(f"{name} spills on {entry['arch']}")
    kernels = set(re.findall(r"struct (\w+Kernel)\b", "".join(
        path.read_text() for path in SOURCE.parent.glob("*.h"))))
    found = {re.sub("<.*", "", name) for name in seen}
    assert found == kernels, f"compiled were {sorted(found)}, in the headers are {sorted(kernels)}"
    for name, architectures in seen.items():
        assert architectures == ARCHITECTURES, f"{name} is there for {sorted(architectures)}"
    assert not bad, "\n".join(bad)


if __name__ == "__main__":
    main()
