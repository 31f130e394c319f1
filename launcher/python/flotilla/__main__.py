"""What `flotilla export` and `flotilla push` start: python3 flotilla export|push ARGUMENTS. See launcher/commands."""

import argparse
import importlib
import pathlib
import sys

# Ours, of this folder, would be taken for others' (export.py).
sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from flotilla_gym import ours  # noqa: E402

ours.come_first()

_NEEDED = {"export": ("numpy", "google.protobuf", "torch", "onnx", "onnxruntime"), "push": ("numpy", "google.protobuf")}
_INSTALL = {"export": "torch onnx onnxruntime numpy protobuf", "push": "numpy protobuf"}
_EXIT_FAILED, _EXIT_USAGE = 1, 2


def parse(arguments):
    parser = argparse.ArgumentParser(prog="flotilla", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export")
    export.add_argument("run")
    export.add_argument("--onnx", required=True)
    export.add_argument("--sample", action="store_true")
    export.add_argument("--decisions", required=True, help="of learner/eval/decisions.h")
    push = commands.add_parser("push")
    push.add_argument("run")
    push.add_argument("--repo", default="")
    push.add_argument("--onnx", default="")
    push.add_argument("--out", default="")
    push.add_argument("--private", action="store_true")
    push.add_argument("--dry-run", action="store_true")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])

    def fail(message, code):
        print(f"flotilla {options.command}: {message}", file=sys.stderr)
        return code

    for name in _NEEDED[options.command]:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:
            gist = str(error).splitlines()[0]
            return fail(
                f"this needs {_INSTALL[options.command]} in {sys.executable} ({gist}); run: {sys.executable} -m pip install "
                f"{_INSTALL[options.command]}, or set FLOTILLA_PYTHON to a Python that has them",
                _EXIT_FAILED,
            )
    from flotilla.errors import Error

    try:
        importlib.import_module(f"flotilla.{options.command}").main(options)
    except Error as error:
        return fail(str(error), _EXIT_USAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
