"""Python scripts with torch, of the wheel that has our LibTorch.

The wheel's Python half is there too, but most of the CUDA libraries that it is linked with are not (cmake/setup.sh),
four gigabytes that a CPU has no use for, and without them it does not load. Empty ones stand in for those that are
missing: calling into them traps.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys

from harness import SOURCE

DEPS = pathlib.Path(os.environ.get("FLOTILLA_DEPS", SOURCE / ".deps"))
SYMBOL = re.compile(r"((?:cublas|cudnn|cufft|cusparse|curand|cuFile|nccl|nvshmem)\w*)(?:@+(.*))?$")


def _lines(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()


def _stand_in(library, symbols, version, folder):
    code, script = folder / "stand_in.c", folder / "stand_in.version"
    code.write_text("".join(f"void {symbol}(void) {{ __builtin_trap(); }}\n" for symbol in sorted(symbols)))
    script.write_text(f"{version} {{ global: *; }};\n")
    flags = [f"-Wl,--version-script={script}"] if version else []
    subprocess.run(["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library}", *flags, code, "-o", folder / library], check=True)


class TorchPython:
    """This Python, with torch; `folder` is for what has to stand in."""

    def __init__(self, folder):
        packages = [p for venv in ("venv", "cuda-venv") for p in DEPS.glob(f"{venv}/lib/python3*/site-packages")]
        assert packages, f"no LibTorch under {DEPS}"
        libraries = packages[0] / "torch" / "lib"
        missing = [line.split()[0] for line in _lines("ldd", libraries / "libtorch_python.so") if "not found" in line]
        wanted = collections.defaultdict(set)
        for name in ("torch_cuda", "torch_nvshmem", "torch_python") if missing else ():
            for line in _lines("nm", "-D", "--undefined-only", libraries / f"lib{name}.so"):
                if symbol := SYMBOL.match(line.split()[-1]):
                    wanted[symbol[2]].add(symbol[1])
        for library in missing:
            version = "NVSHMEM" if "nvshmem" in library else library if library in wanted else None
            _stand_in(library, wanted[version] if version or "nccl" in library else [], version, folder)
        self.env = {"PYTHONPATH": str(packages[0]), "LD_LIBRARY_PATH": str(folder), "OMP_NUM_THREADS": "1"}

    def run(self, script, folder):
        """What `script`, run in `folder`, says."""
        file = folder / "script.py"  # TorchScript reads the source
        file.write_text(script)
        result = subprocess.run(
            [sys.executable, file], cwd=folder, env=os.environ | self.env, timeout=120,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return result.stdout
