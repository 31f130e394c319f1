"""python flotilla_gym --listen unix:PATH: a server of Gymnasium environments.

flotilla-envserver runs it; it listens on this host alone.
"""

import argparse
import importlib
import os
import pathlib
import signal
import sys

_NEEDED = ("grpc", "google.protobuf", "numpy", "gymnasium")
_INSTALL = "gymnasium grpcio protobuf numpy"
_EXIT_FAILED, _EXIT_USAGE = 1, 2


def _fail(error_file, message, code):
    if error_file:
        pathlib.Path(error_file).write_text(message + "\n")
    print(f"flotilla_gym: {message}", file=sys.stderr)
    return code


def _check_packages():
    """What is missing, and how to get it; "" if nothing is."""
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return (
                f"gym: environments need {_INSTALL} in {sys.executable} ({error}); run: "
                f"{sys.executable} -m pip install {_INSTALL}, or set FLOTILLA_PYTHON to a Python that has them"
            )
    return ""


def _write_atomically(path, text):
    temporary = f"{path}.{os.getpid()}"
    pathlib.Path(temporary).write_text(text)
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(prog="flotilla_gym", description="Serves Gymnasium environments to learners of this host.")
    parser.add_argument("--listen", required=True, help="unix:PATH, or 127.0.0.1:PORT (0: any free one)")
    parser.add_argument("--address-file", "--address_file", help="write the address here once it is served")
    parser.add_argument("--env", help="the environment that will be played; the hello says it again")
    parser.add_argument("--error_file", help="write here why it could not start")
    parser.add_argument("--num_envs", type=int, default=4096, help="environments offered to a learner")
    parser.add_argument("--server_version", default="", help="what the welcome and GetSpec say")
    parser.add_argument("--retry_wait_seconds", type=float, default=0.1, help="before an environment that failed is tried again")
    parser.add_argument("--renew_failed", type=int, default=0, help="1: make it anew, instead of a reset")
    parser.add_argument("--pickled", help="a file of flotilla.train: serve what that makes, and nothing else")
    flags = parser.parse_args()
    if not flags.listen.startswith(("unix:", "127.0.0.1:", "localhost:")):
        message = f'--listen is "{flags.listen}", want unix:PATH or 127.0.0.1:PORT; flotilla serve-envs serves other hosts'
        return _fail(flags.error_file, message, _EXIT_USAGE)
    missing = _check_packages()
    if missing:
        return _fail(flags.error_file, missing, _EXIT_FAILED)

    import asyncio

    from flotilla_gym import lifeline
    from flotilla_gym.server import Server

    has_parent = lifeline.start_watch()
    more = {}
    if flags.pickled:
        from flotilla_gym import pickled

        try:
            more["make"] = pickled.load(flags.pickled)
        except FileNotFoundError:
            message = (
                f"there is no {flags.pickled}, which has the run's environment: flotilla.train wrote it into the run's folder; "
                "if that was moved or renamed, move it back, or go on with flotilla.train(..., env=..., resume=True, run_dir=...)"
            )
            return _fail(flags.error_file, message, _EXIT_FAILED)
    server = Server(flags.num_envs, flags.server_version, flags.retry_wait_seconds, bool(flags.renew_failed), **more)

    async def serve():
        # Batch systems signal every process of a job; a parent ends its children itself. A handler that does
        # nothing, unlike SIG_IGN, is not inherited by what an environment starts.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, (lambda: None) if has_parent else server.stop)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            loop.add_signal_handler(number, lambda: None)
        await server.serve(flags.listen, listening)

    def listening(address):
        if flags.address_file:
            _write_atomically(flags.address_file, address + "\n")

    try:
        asyncio.run(serve())
    except RuntimeError as error:  # gRPC cannot listen
        return _fail(flags.error_file, f'cannot listen on "{flags.listen}": {error}', _EXIT_FAILED)
    return 0


if __name__ == "__main__":
    # Ours first. What is in the working folder can be named too, and hides nothing.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])
    from flotilla_gym import ours

    ours.come_first()
    sys.path.append(os.getcwd())
    sys.exit(main())
