"""Where our programs are, and the command `flotilla` that pip makes, which becomes the program."""

import importlib.util
import os
import pathlib
import signal
import sys

_HERE = pathlib.Path(__file__).resolve().parent
_LIBTORCH = "libtorch_cpu.so"


def folder():
    """Of the programs: in this package, where pip put them, else bin/ beside the share/flotilla/python that has it."""
    installed = _HERE / "bin"
    return installed if installed.is_dir() else _HERE.parents[3] / "bin"


def environment():
    """What the programs start in: environments that are to run in "the" Python run in this one, and LibTorch is found
    where another folder of packages has torch. Beside this package they find it themselves."""
    env = {"FLOTILLA_PYTHON": sys.executable} | os.environ
    if folder().parent == _HERE and not (_HERE.parent / "torch" / "lib" / _LIBTORCH).exists():
        torch = importlib.util.find_spec("torch")
        libraries = [pathlib.Path(path) / "lib" for path in torch.submodule_search_locations] if torch else []
        found = [str(path) for path in libraries if (path / _LIBTORCH).exists()]
        if found:
            env["LD_LIBRARY_PATH"] = ":".join(filter(None, [*found, env.get("LD_LIBRARY_PATH")]))
    return env


def main():
    program = folder() / "flotilla"
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored stays so
    try:
        os.execve(program, ["flotilla", *sys.argv[1:]], environment())
    except OSError as error:
        print(f"flotilla: cannot start {program}: {error.strerror}; install the wheel again", file=sys.stderr)
        return 1
