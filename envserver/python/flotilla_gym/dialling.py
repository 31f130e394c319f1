"""Environments that nobody can reach dial in (DialService of proto/flotilla/v1/env.proto).

The coordinator says where to; there they are played as a server's are. What is lost is dialled again, for ever.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import secrets
import socket
import sys
import threading
import traceback

import grpc
import gymnasium

from flotilla.v1 import coordinator_pb2, env_pb2
from flotilla_gym.channels import Credentials
from flotilla_gym.games import ZOO
from flotilla_gym.member import Member
from flotilla_gym.play import PlayStream
from flotilla_gym.refused import Refused, one_line
from flotilla_gym.rows import PREFIX, Rows, exited, gist, limited, made_by, make
from flotilla_gym.server import parse

_DIAL = "/flotilla.v1.DialService/Dial"
_PAUSES = (0.1, 2.0)  # seconds before dialling again: the first, and the longest
_VERSION = "flotilla_gym"


def dial(
    address, env, *, env_id="", identity="", token_file="", tls_cert="", tls_key="", tls_ca="",
    connect_timeout=10.0, hello_timeout=30.0, actions_timeout=600.0, retry_wait=0.1, renew_failed=False,
):  # fmt: skip
    """Offers `env` to the run whose coordinator is at `address`, "HOST:PORT". Blocks until that run is over.

    `env` is what gymnasium.make takes, or pettingzoo:MODULE; or a function that makes one, with env.options.kwargs as its arguments; or one
    environment, which can be one row only and is not closed. `env_id` is what the run has as env.id: gym:ID by default.

    `identity` is a file that this makes, and that another process, started in this one's place with the same file, takes
    over with at once; without it, when this one is found to be gone.

    Times are seconds. Dead peers are noticed within 18; a learner that lives and sends no actions, after
    `actions_timeout`. Raises Refused if the coordinator does not want it, or another took over; ValueError.
    """  # fmt: skip
    credentials = Credentials(token_file, tls_cert, tls_key, tls_ca)
    dialler = _Dialler(address, _Offer(env, env_id), _Identity(identity), credentials)
    dialler.connect_timeout, dialler.hello_timeout, dialler.actions_timeout = connect_timeout, hello_timeout, actions_timeout
    dialler.retry_wait, dialler.renew_failed = retry_wait, renew_failed
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(dialler.run())
    _run_beside(dialler)  # a notebook has a loop of its own


class Dialling:
    """dial() on a thread of its own, to wherever `address()` says once it says anything, until stop()."""

    def __init__(self, address, env, env_id, **credentials):
        self._address = address
        self._offer = _Offer(env, env_id)
        self._credentials = credentials  # as Credentials takes them, whose files may come with the address
        self._stopped = threading.Event()
        self._dialler = None
        self._refused = ""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="flotilla-dial", daemon=True)
        self._thread.start()

    def stop(self):
        """Blocks until nothing of it runs, or a step takes longer than 5 seconds."""
        self._stopped.set()
        with self._lock:
            if self._dialler is not None:
                self._dialler.stop()
        self._thread.join(5)

    @property
    def failure(self):
        """Why it plays for nobody, however often it dials; "" where it may."""
        return self._refused or (self._dialler.failure if self._dialler is not None else "")

    def _run(self):
        try:
            self._dial()
        except Refused as refused:
            self._refused = str(refused)
        except Exception as error:  # nothing else would tell that nobody dials any more
            self._refused = gist(error)

    def _dial(self):
        while not (address := self._address()):
            if self._stopped.wait(0.05):
                return
        with self._lock:
            if self._stopped.is_set():
                return
            self._dialler = _Dialler(address, self._offer, _Identity(""), Credentials(**self._credentials), quiet=True)
        asyncio.run(self._dialler.run())


class _Identity:
    """Who this is to the coordinator: an id, the secret that claims it, and how often it was started."""

    def __init__(self, path):
        kept = pathlib.Path(path) if path else None
        if kept is not None and kept.exists():
            known = json.loads(kept.read_text())
            self.id, self.secret, self.starts = known["id"], known["secret"], known["starts"] + 1
        else:
            self.id = f"env/{socket.gethostname()[:64]}/{os.getpid()}-{secrets.token_hex(4)}"
            self.secret, self.starts = secrets.token_hex(32), 1
        if kept is not None:
            part = kept.with_name(f"{kept.name}.{os.getpid()}")
            part.touch(0o600)
            part.write_text(json.dumps(vars(self)))
            os.replace(part, kept)


class _Offer:
    """What is played, by its id."""

    def __init__(self, env, env_id):
        self.most = 4096  # rows
        self._env = env
        if isinstance(env, str):
            name = env if env.startswith((PREFIX, ZOO)) else PREFIX + env
            env_id = env_id or name
            self.make = lambda _, options: make(name, options)
        elif isinstance(env, gymnasium.Env):
            env_id = env_id or (PREFIX + env.spec.id if env.spec is not None else "")
            self.most = 1
            self.make = self._lend
        elif callable(env):
            self.make = made_by(env)
        else:
            raise ValueError(f"env is a {type(env).__name__}, want an id, an environment, or a function that makes one")
        if not env_id:
            raise ValueError("say what the run calls it: env_id=..., its env.id")
        self.env_id = env_id

    def _lend(self, env_id, options):
        if options.kwargs or options.gym_kwargs:
            raise Refused("INVALID_ARGUMENT", f"{env_id} is made already, and takes no env.options.kwargs")
        return limited(_Lent(self._env), options)


class _Lent(gymnasium.Wrapper):
    def close(self):
        """It is another's to close."""


class _Dialler:
    """What a PlayStream asks of its server, at the end of a line that this side dials."""

    version = _VERSION
    # As dial() has them.
    connect_timeout, hello_timeout, actions_timeout, retry_wait, renew_failed = 10.0, 30.0, 600.0, 0.1, False

    def __init__(self, address, offer, identity, credentials, quiet=False):
        self.max_num_envs = offer.most
        self._quiet = quiet
        self._address = address
        self._offer = offer
        self._identity = identity
        self._credentials = credentials
        self._dials = 0
        self._steps = 0  # of streams that are over
        self._stream = None
        self._order = ("", "")  # where to dial, and whose that is
        self._over = None  # True: the run is; a Refused: for this one
        self._changed = None
        self._loop = None
        self._stopped = False
        self._said = ""
        self.failure = ""  # why what is offered cannot be played as the learner wants it

    def take_seat(self, stream):
        if stream.hello.env_id != self._offer.env_id:
            raise Refused("NOT_FOUND", f'the learner plays "{stream.hello.env_id}", and this is "{self._offer.env_id}"')
        self._say(f"{self._order[1]} plays {stream.hello.num_envs} x {stream.hello.env_id}")

    def rows(self, hello):
        try:
            return Rows(hello, self.retry_wait, self.renew_failed, self._offer.make)
        except Refused as refused:
            self.failure = str(refused)
            raise
        except SystemExit as error:
            self.failure = str(exited(hello.env_id, error))
            raise
        except Exception as error:
            self.failure = f"{hello.env_id} raised {gist(error)}"
            raise

    def stop(self):
        """Has run() return soon. From any thread."""
        self._stopped = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is over
                self._loop.call_soon_threadsafe(self._end, True)

    async def run(self):
        self._changed = asyncio.Event()
        self._loop = loop = asyncio.get_running_loop()
        if self._stopped:
            return
        who = coordinator_pb2.Member(
            id=self._identity.id, incarnation=self._identity.starts, role=coordinator_pb2.ENV_SERVER, dials=True,
            host=socket.gethostname()[:256], pid=os.getpid(), version=_VERSION, num_envs=self.max_num_envs,
            restarts=self._identity.starts - 1,
        )  # fmt: skip

        def on_loop(function):
            return lambda what: loop.call_soon_threadsafe(function, what)

        member = Member(
            self._address, self._credentials, who, self._identity.secret, self._all_steps,
            on_loop(self._obey), on_loop(self._end), on_loop(self._say),
        )  # fmt: skip
        member.start()
        try:
            await self._serve()
        finally:
            await loop.run_in_executor(None, member.leave)
        if isinstance(self._over, Refused):
            raise self._over

    def _all_steps(self):
        stream = self._stream
        return self._steps + (stream.steps if stream is not None else 0)

    def _obey(self, command):
        order = (command.dial, command.dial_learner)
        if order != self._order:
            self._order = order
            self._changed.set()
        if command.closed:
            self._end(True)

    def _end(self, why):
        self._over = why
        self._changed.set()

    async def _serve(self):
        pause = _PAUSES[0]
        while not self._over:
            order = self._order
            if not order[0]:
                self._changed.clear()
                await self._changed.wait()
                continue
            played = await self._until_told_otherwise(order)
            if self._order != order:
                pause = _PAUSES[0]
                continue
            pause = _PAUSES[0] if played else min(2 * pause, _PAUSES[1])
            # Not all at once, where many lost the same learner.
            await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _until_told_otherwise(self, order):
        """Plays for whom `order` says, until that ends or another order comes. Returns whether anything was played."""
        play = asyncio.ensure_future(self._play(order))
        try:
            while not play.done():
                self._changed.clear()
                # Nobody's is no other's: a coordinator that was lost has forgotten whose we are.
                if self._over or (self._order != order and self._order[0]):
                    break
                change = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({play, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
        finally:
            while not play.done():
                # Again, as wait_for may lose one to an answer that comes at that moment (Python before 3.12).
                play.cancel()
                await asyncio.wait({play}, timeout=0.1)
            stream, self._stream = self._stream, None
            self._steps += stream.steps if stream is not None else 0
        if not play.cancelled() and play.exception() is not None:
            self._tell(order, play.exception())
        return stream is not None and stream.steps > 0

    async def _play(self, order):
        address, _ = order
        self._dials += 1
        async with self._credentials.channel(address, grpc.aio) as channel:
            try:
                await asyncio.wait_for(channel.channel_ready(), self.connect_timeout)
            except asyncio.TimeoutError:
                raise Refused("UNAVAILABLE", f"nobody answers there within {self.connect_timeout:g} s") from None
            method = channel.stream_stream(_DIAL, env_pb2.PlayReply.SerializeToString, parse(env_pb2.PlayRequest))
            call = method(metadata=self._credentials.metadata())
            try:
                # Whatever started before, or dialled before, is older.
                incarnation = (self._identity.starts << 32) + self._dials
                await call.write(
                    env_pb2.PlayReply(
                        introduction=env_pb2.Introduction(
                            server_id=self._identity.id, incarnation=incarnation, version=_VERSION
                        )
                    )
                )
                self._stream = PlayStream(self, call)
                await self._stream.run()
            finally:
                call.cancel()

    def _tell(self, order, error):
        if isinstance(error, grpc.RpcError):
            why = f"{error.code().name}: {error.details()}"
        elif isinstance(error, (Refused, asyncio.InvalidStateError)):
            why = str(error) or "the stream is over"
        else:
            traceback.print_exception(type(error), error, error.__traceback__)
            why = f"{type(error).__name__}: {one_line(error)}"
        self._say(f"{order[1]} at {order[0]}: {one_line(why)}")

    def _say(self, words):
        """On standard error, and not twice in a row."""
        if words != self._said and not self._quiet:
            self._said = words
            print(f"flotilla_gym: {words}", file=sys.stderr, flush=True)


def _run_beside(dialler):
    """On a thread of its own."""
    outcome = []
    started, over = threading.Event(), threading.Event()

    async def main():
        outcome.append((asyncio.get_running_loop(), asyncio.current_task()))
        started.set()
        await dialler.run()

    def body():
        try:
            asyncio.run(main())
        except BaseException as error:
            outcome.append(error)
        finally:
            over.set()

    threading.Thread(target=body, name="flotilla-dial", daemon=True).start()
    try:
        over.wait()  # not join: one that was interrupted takes the thread for dead (Python before 3.13)
    except KeyboardInterrupt:
        started.wait()
        loop, task = outcome[0]
        loop.call_soon_threadsafe(task.cancel)
        over.wait()
        raise
    if isinstance(outcome[-1], Exception):
        raise outcome[-1]
