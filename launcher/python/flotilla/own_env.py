"""The environments that a caller of flotilla.train brings: where they run, and what the run is told of them."""

import contextlib
import functools
import hashlib
import importlib
import os
import pathlib
import pickle
import re
import shlex
import subprocess
import sys

from flotilla import launch
from flotilla.errors import Error
from flotilla.run import messages

_PYTHON = pathlib.Path(__file__).resolve().parents[1]
_NEEDED = "gymnasium grpcio protobuf numpy"


class Named:
    """One that the program itself makes, of this id; None: the configuration's."""

    def __init__(self, env_id=None):
        self._fields = {} if env_id is None else {"env.id": env_id}

    def fields(self, run_dir, learners):
        return self._fields

    def serve(self, run_dir):
        """Offers it to the run, where it is this process that does. What stops that is returned."""
        return lambda: None

    def example(self, options):
        """One with these options, whose spaces can be looked at, and what closes it; None, without one. Raises Error."""
        return None, lambda: None

    def in_short(self, line):
        """What the program says, without what the caller never said."""
        return line

    def failure(self):
        """Why it can never be played; "" while it can."""
        return ""

    def forget(self, run_dir):
        """What was written into the folder for a run that was refused goes."""


class Made(Named):
    """One that a class or function makes, in processes of its own: each worker's, and each evaluation's."""

    def __init__(self, make, env_id, config, sets):
        self._make, self._env_id = make, env_id
        # What becomes of one that failed: a program of ours is told by its command alone.
        env = _configured(config).env
        given = {"env.retry_wait_seconds": env.retry_wait_seconds, "env.retry": messages()[0].EnvRetry.Name(env.retry)}
        given |= _by_path(sets)
        self._flags = [f"--retry_wait_seconds={given['env.retry_wait_seconds']}"]
        # In any case and with hyphens, as the program takes it.
        renews = given["env.retry"].upper().replace("-", "_") == "RETRY_RENEW"
        self._flags += ["--renew_failed=1"] if renews else []
        self._pickle = _pickled(make)
        self._new = None  # the file, if it is ours

    def fields(self, run_dir, learners):
        run_dir.mkdir(parents=True, exist_ok=True)
        # Another for each content: a run that is there already, or that refuses this one, plays what it was made with.
        path = (run_dir / f"environment-{_digest(self._pickle)}.pickle").absolute()
        if not path.exists():
            part = path.with_name(f".{path.name}.{os.getpid()}")
            part.write_bytes(self._pickle)
            part.replace(path)
            self._new = path
        command = shlex.join([sys.executable, str(_PYTHON / "flotilla_gym"), "--pickled", str(path), *self._flags])
        self._server = f"exec:{command}"
        return {"env.id": self._env_id, "env.server": self._server}

    def example(self, options):
        return _made(self._make, self._env_id, options)

    def in_short(self, line):
        line = line.replace(f"--set env.server={self._server}: ", "")
        return line.replace(f'env.server "{self._server}"', self._env_id)

    def forget(self, run_dir):
        config = run_dir / "config.textproto"
        with contextlib.suppress(OSError):
            if self._new is not None and not (config.exists() and self._new.name in config.read_text()):
                self._new.unlink()
                run_dir.rmdir()  # if that was all


class Here(Named):
    """One that lives in this process: an environment that is there already, or what makes some. It dials in, from a
    thread for each learner."""

    def __init__(self, env, env_id, lent, options, sets, flags):
        self._env, self._env_id, self._lent, self._flags = env, env_id, lent, flags
        self._fixed = {
            "env.id": env_id, "env.dial_listen": "127.0.0.1:0", "env.num_workers": 1, "env.remote_workers": 1,
            # Nobody else has them to evaluate on.
            "evaluation.every_updates": 0,
        } | ({"env.num_envs": 1, "env.groups": 1} if lent else {})  # fmt: skip
        given = _by_path(sets)
        for path in sorted(given.keys() & self._fixed.keys()):
            if given[path] != str(self._fixed[path]):
                raise Error(f"{path} is {given[path]}, and {self._whose()} has {self._fixed[path]}; leave it out")
        if lent and (options.kwargs or options.gym_kwargs):
            raise Error(f"{env_id} is made already, and takes no env.options.kwargs; give what makes one (its class, or a function)")
        self._diallings = []
        game, close = self.example(options)
        try:
            _check_spaces(game, env_id)
        finally:
            close()
        self._address = None

    def _whose(self):
        return "one environment that is there already" if self._lent else "what steps in this process (in_process=True)"

    def fields(self, run_dir, learners):
        if self._lent and learners != 1:
            raise Error(f"learners is {learners}, and one environment plays for 1; give what makes one (its class, or a function)")
        self._learners = learners
        self._address = run_dir / "coordinator.address"
        self._before = _stamp(self._address)
        return self._fixed

    def serve(self, run_dir):
        from flotilla_gym.dialling import Dialling

        def address():
            """The coordinator's, once this run has one: a folder may have been used before."""
            with contextlib.suppress(FileNotFoundError):  # the earlier one is removed first
                if _stamp(self._address) != self._before:
                    return self._address.read_text().strip()
            return ""

        credentials = self._credentials(run_dir)
        self._diallings = [Dialling(address, self._env, self._env_id, **credentials) for _ in range(self._learners)]

        def stop():
            for dialling in self._diallings:
                dialling.stop()

        return stop

    def _credentials(self, run_dir):
        """What the run asks of who takes part in it: the flags say it, or else it makes a token of its own."""
        token, *tls = (self._flags.text(name) for name in ("--token-file", "--tls-cert", "--tls-key", "--tls-ca"))
        if not token and not any(tls) and not self._flags.switch("--insecure"):
            token = str(run_dir / "token")
        return dict(zip(("token_file", "tls_cert", "tls_key", "tls_ca"), (token, *tls)))

    def failure(self):
        return next((why for dialling in self._diallings if (why := dialling.failure)), "")

    def example(self, options):
        if self._lent:
            from flotilla_gym.games import GymGame

            return GymGame(self._env), lambda: None
        return _made(self._env, self._env_id, options)


def of(env, in_process, config, sets, flags):
    """What `env`, as flotilla.train takes it with this configuration, these assignments and Flags, is. Raises Error."""
    if env is None:
        return Named()
    if isinstance(env, str) and not in_process:
        env = _looked_up(env)
        if isinstance(env, str):
            return Named(env)
    gymnasium = _gymnasium()
    if isinstance(env, str):
        env = functools.partial(gymnasium.make, env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise Error("env is a vector of environments; give what makes one of them, and overrides={'env.num_envs': N}")
    lent = isinstance(env, gymnasium.Env)
    if not lent and not callable(env):
        raise Error(f"env is a {type(env).__name__}; want a Gymnasium environment, a class or function that makes one, or an id")
    name = _name(env)
    sets = sets + flags.assignments  # they come after
    return Here(env, name, lent, _options(config, sets), sets, flags) if in_process or lent else Made(env, name, config, sets)


def _gymnasium():
    import flotilla_gym  # noqa: F401  # before grpc, which reads what it sets

    try:
        import grpc  # noqa: F401
        import gymnasium
    except ImportError as error:
        raise Error(f"environments of yours need {_NEEDED} ({error}): {sys.executable} -m pip install {_NEEDED}") from None
    return gymnasium


def _name(env):
    spec = getattr(env, "spec", None)
    if isinstance(env, functools.partial):
        spec = next((argument for argument in env.args if hasattr(argument, "id")), None)
        env = env.func
    name = getattr(spec, "id", None) or getattr(env, "__name__", type(env).__name__)
    return re.sub(r"[^\w./-]", "", name)[:200] or "environment"


def _looked_up(name):
    """An id that the program knows, or what makes it: module:Class, or one of Gymnasium's that was registered here."""
    if name.startswith(("gym:", "pettingzoo:")) or name in _ids_of_program():
        return name
    try:
        gymnasium = _gymnasium()
    except Error:
        return name  # the program says what it lacks
    module, _, rest = name.rpartition(":")
    if module:
        try:
            found = getattr(importlib.import_module(module), rest, None)
        except ImportError as error:
            raise Error(f'env is "{name}", and {module} cannot be imported ({error}); want module:Class, or an id') from None
        if callable(found):
            return found
    try:
        spec = gymnasium.spec(rest)
    except gymnasium.error.Error:
        return name if not module else f"gym:{name}"
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium."):
        return f"gym:{rest}"
    return functools.partial(gymnasium.make, spec)


def _ids_of_program():
    done = subprocess.run([launch.program(), "envs"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def _pickled(make):
    """What flotilla_gym --pickled reads: where modules are, and then `make`, whole if it is of a script or a notebook."""
    import cloudpickle  # comes with gymnasium

    try:
        return pickle.dumps([str(pathlib.Path(path).absolute()) for path in sys.path]) + cloudpickle.dumps(make)
    except Exception as error:  # whatever the caller's objects raise
        gist = " ".join(str(error).split())
        raise Error(
            f"{make!r} cannot be taken to processes of its own ({type(error).__name__}: {gist}); make in it what it needs, "
            "or have it step in this one: in_process=True"
        ) from None


def _digest(pickled):
    """Of what all processes of a run, and the one that goes on with it, make of the same script: without the id that
    cloudpickle draws for each class in each of them."""
    import cloudpickle

    for drawn in list(getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {}).values()):
        pickled = pickled.replace(drawn.encode(), b"")
    return hashlib.sha256(pickled).hexdigest()[:12]


def _options(config, sets):
    """EnvOptions with what a configuration and assignments have an environment made with."""
    options = _configured(config).env.options
    for path, value in _by_path(sets).items():
        for field, section in (("env.options.kwargs.", options.kwargs), ("env.options.gym_kwargs.", options.gym_kwargs)):
            if path.startswith(field):
                section[path.removeprefix(field)] = value
    return options


def _by_path(sets):
    """{path: value} of assignments, of which the last one counts."""
    parts = (text.partition("=") for text in sets)
    return {path.strip(): value.strip() for path, _, value in parts}


def _configured(config):
    """The configuration of this name or path; an empty one where the program will say why there is none."""
    from google.protobuf import text_format

    run = messages()[0].RunConfig()
    done = subprocess.run([launch.program(), "configs", config], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    with contextlib.suppress(text_format.ParseError):
        text_format.Parse(done.stdout, run)
    return run


def _made(make, env_id, options):
    """What `make` makes, as workers have it made, and what closes that."""
    from flotilla_gym import rows
    from flotilla_gym.refused import Refused

    try:
        game = rows.made_by(make)(env_id, options)
    except Refused as refused:
        raise Error(str(refused)) from None
    except (Exception, SystemExit) as error:  # whatever the caller's code raises
        given = ", ".join(f"{name}={value!r}" for name, value in sorted(rows.arguments(options).items()))
        gist = " ".join(str(error).split())
        raise Error(
            f"{env_id}({given}) raised {type(error).__name__}: {gist}; its arguments are env.options.kwargs, as in "
            "overrides={'env.options.kwargs.size': 5}"
        ) from error
    return game, game.close


def _check_spaces(game, env_id):
    from flotilla_gym import rows
    from flotilla_gym.refused import Refused

    try:
        rows.describe(env_id, game, dict)
    except Refused as refused:
        raise Error(str(refused)) from None


def _stamp(path):
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
