"""check.py --build BUILD WHEEL...: whether wheels run on every machine that their name promises.

Programs want no symbol newer than those of Ubuntu 22.04 and Debian 12, and no library but C's, C++'s, LibTorch and what
comes with it; code of ours, in the objects of BUILD, has no instruction beyond x86-64-v2 but in the kernels that are
chosen at run time, and those lend no function to the rest."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
LIBRARIES = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
LIBTORCH = re.compile(r"lib(torch|c10|cudart|gomp|nccl)(_cpu|_cuda)?\.so(\.\d+)?$")
CHOSEN = re.compile(r"/kernels_v[34](_bf16)?\.cc\.o$")  # learner/kernels/isa
# AVX and what came with it. (Not tzcnt: where that is unknown it does what bsf does.)
BEYOND = re.compile(
    r"^\s+[0-9a-f]+:\s+(?:v[a-z]\w*|(?:andn|bextr|blsi|blsr|blsmsk|bzhi|lzcnt|mulx|pdep|pext|rorx|sarx|shlx|shrx)[lq]?)\s.*$", re.M
)


def run(*command):
    return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True).stdout


def of_program(path, learner):
    """What keeps a program from running elsewhere."""
    dynamic = run("readelf", "-dW", path)
    for library in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
        if library not in LIBRARIES and not (learner and LIBTORCH.match(library)):
            yield f"needs {library}"
    for folders in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.+)\]", dynamic):
        yield from (f"looks for libraries in {folder}" for folder in folders.split(":") if not folder.startswith("$ORIGIN/"))
    for name, version in set(re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_(\d[\d.]*)\b", run("readelf", "-VW", path))):
        if tuple(map(int, version.split("."))) > NEWEST[name]:
            yield f"needs {name}_{version}, newer than {'.'.join(map(str, NEWEST[name]))}"


def of_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        learners = [name for name in archive.namelist() if name.endswith("/flotilla-learner")]
        programs = [name for name in archive.namelist() if "/bin/" in name]
        if not programs:
            yield "has no program"
        for name in programs:
            path = archive.extract(name, folder)
            yield from (f"{name} {problem}" for problem in of_program(path, name in learners or name.endswith(".so")))


def of_object(path):
    if CHOSEN.search(str(path)):
        lent = re.findall(r"^\w+ [TWVuBD] (.*)$", run("nm", "-C", "--defined-only", path), re.M)
        yield from (f"lends {name}" for name in lent if not re.search(r"flotilla::kKernelsV|DW\.ref", name))
    elif beyond := BEYOND.search(run("objdump", "-d", "--no-show-raw-insn", path)):
        yield f"goes beyond x86-64-v2: {' '.join(beyond[0].split())}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("wheels", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    problems = [f"{wheel.name}: {problem}" for wheel in options.wheels for problem in of_wheel(wheel)]
    objects = sorted(options.build.rglob("*.o")) if options.build else []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, found in zip(objects, pool.map(lambda path: list(of_object(path)), objects)):
            problems += [f"{path.relative_to(options.build)} {problem}" for problem in found]
    for problem in problems:
        print(f"check.py: {problem}", file=sys.stderr)
    if not problems:
        print(f"{len(options.wheels)} wheels, {len(objects)} objects: no symbol newer than GLIBC 2.35, no instruction beyond x86-64-v2 unasked")
    return 1 if problems else 0


sys.exit(main())
