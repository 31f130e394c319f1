"""The gRPC server: EnvService, where one learner plays at a time, and Health."""

import asyncio
import time
import traceback

import grpc
import gymnasium

from flotilla.v1 import env_pb2
from flotilla_gym import health_pb2
from flotilla_gym.play import MAX_MESSAGE_BYTES, PlayStream
from flotilla_gym.refused import Refused, cut, one_line
from flotilla_gym.replay import play_again
from flotilla_gym.rows import PREFIX, Rows, exited, make, spec_of

SERVICE = "flotilla.v1.EnvService"
_MAX_STREAMS = 64  # open at once, refused ones among them
_MAX_REPLAYS = 4  # at a time
_MAX_STATUS_BYTES = 2048  # gRPC drops a call whose status is much longer
_GRACE = 1  # seconds for ends of streams to reach their learners
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # A few compressed bytes could stand for gigabytes.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
    ("grpc.max_concurrent_streams", 1000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


class Server:
    """Environments step on the event loop: a process is one thread of stepping, and env.num_workers has more of them."""

    hello_timeout = 10  # seconds
    actions_timeout = None  # a dead learner is noticed by its connection

    def __init__(self, max_num_envs, version, retry_wait, renew_failed, make=make):
        self.max_num_envs = max_num_envs
        self._make = make
        self.retry_wait = retry_wait  # seconds
        self.renew_failed = renew_failed
        self.version = version
        self._streams = {}  # PlayStream -> the future that ends it with a Refused
        self._playing = None
        self._replays = 0
        self._stopping = None

    async def serve(self, address, on_listening):
        """Until stop() is called. Raises RuntimeError if nothing can listen at `address`."""
        self._stopping = asyncio.Event()
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._env_service(), self._health()))
        port = server.add_insecure_port(address)
        await server.start()
        on_listening(address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}")
        await self._stopping.wait()
        for end in self._streams.values():
            _end(end, Refused("UNAVAILABLE", "the env server shuts down"))
        await server.stop(_GRACE)

    def stop(self):
        self._stopping.set()

    def rows(self, hello):
        return Rows(hello, self.retry_wait, self.renew_failed, self._make)

    def take_seat(self, stream):
        """Makes `stream` the one that plays, or refuses it."""
        hello = stream.hello
        if self._playing is not None:
            player = self._playing.hello
            if player.learner_id != hello.learner_id:
                raise Refused(
                    "RESOURCE_EXHAUSTED",
                    f'learner "{player.learner_id}" is playing {player.num_envs} x {player.env_id} here; '
                    f'learner "{hello.learner_id}" has to wait',
                )
            if hello.incarnation <= player.incarnation:
                raise Refused(
                    "ABORTED",
                    f'learner "{hello.learner_id}" is playing here as incarnation {player.incarnation}; '
                    f"hello.incarnation is {hello.incarnation}, want a newer one",
                )
            took_over = f'incarnation {hello.incarnation} of learner "{hello.learner_id}" took over'
            _end(self._streams[self._playing], Refused("ABORTED", f"{took_over} from incarnation {player.incarnation}"))
        self._playing = stream

    async def _play(self, _, context):
        if self._stopping.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the env server shuts down")
        if len(self._streams) >= _MAX_STREAMS:
            full = f"this server has {len(self._streams)} streams open, its limit; try again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, full)
        stream = PlayStream(self, context)
        end = self._streams[stream] = asyncio.get_running_loop().create_future()
        play = asyncio.ensure_future(stream.run())
        try:
            await asyncio.wait({play, end}, return_when=asyncio.FIRST_COMPLETED)
            if not play.done():
                play.cancel()
            outcome = (await asyncio.gather(play, return_exceptions=True))[0]
            if end.done():
                outcome = end.result()
        finally:  # also when the learner cancels
            play.cancel()
            del self._streams[stream]
            if self._playing is stream:
                self._playing = None
        await _finish(context, outcome)

    async def _replay(self, request, context):
        try:
            if request is None:
                raise Refused("INVALID_ARGUMENT", "a message is not a flotilla.v1.ReplayRequest")
            if self._replays >= _MAX_REPLAYS:
                full = f"{self._replays} games are played again here, the most; try again later"
                raise Refused("RESOURCE_EXHAUSTED", full)
            self._replays += 1
            try:
                for answer in play_again(request, self._make):
                    if self._stopping.is_set():
                        raise Refused("UNAVAILABLE", "the env server shuts down")
                    await context.write(answer)
            finally:
                self._replays -= 1
        except Exception as error:  # an environment's own, too
            await _finish(context, error)
        except SystemExit as error:
            await _finish(context, exited(request.env_id, error))

    async def _get_spec(self, request, context):
        response = env_pb2.GetSpecResponse(version=self.version)
        response.env_id.extend(sorted(PREFIX + env_id for env_id in gymnasium.registry))
        env_id, options = request.env_id, request.options
        if self._playing is not None:
            hello = self._playing.hello
            response.session.add(
                learner_id=hello.learner_id,
                incarnation=hello.incarnation,
                env_id=hello.env_id,
                num_envs=hello.num_envs,
                steps=self._playing.steps,
                episodes=self._playing.episodes,
                seconds=time.monotonic() - self._playing.begun,
            )
            if not env_id:
                env_id, options = hello.env_id, hello.options
        if not env_id:
            return response
        try:
            response.spec.CopyFrom(spec_of(env_id, options, self._make))
        except Exception as error:  # an environment's own, too
            await _finish(context, error)
        except SystemExit as error:
            await _finish(context, exited(env_id, error))
        return response

    def _env_service(self):
        handlers = {
            "Play": grpc.stream_stream_rpc_method_handler(
                self._play, parse(env_pb2.PlayRequest), env_pb2.PlayReply.SerializeToString
            ),
            "Replay": grpc.unary_stream_rpc_method_handler(
                self._replay, parse(env_pb2.ReplayRequest), env_pb2.ReplayStep.SerializeToString
            ),
            "GetSpec": grpc.unary_unary_rpc_method_handler(
                self._get_spec, env_pb2.GetSpecRequest.FromString, env_pb2.GetSpecResponse.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _health(self):
        response = health_pb2.HealthCheckResponse

        async def check(request, context):
            if request.service not in ("", SERVICE):
                await context.abort(grpc.StatusCode.NOT_FOUND, f'there is no service "{request.service}" here')
            return response(status=response.SERVING)

        async def watch(request, _):
            known = request.service in ("", SERVICE)
            yield response(status=response.SERVING if known else response.SERVICE_UNKNOWN)
            await self._stopping.wait()
            yield response(status=response.NOT_SERVING if known else response.SERVICE_UNKNOWN)

        kinds = {"Check": (grpc.unary_unary_rpc_method_handler, check), "Watch": (grpc.unary_stream_rpc_method_handler, watch)}
        handlers = {
            name: kind(method, health_pb2.HealthCheckRequest.FromString, response.SerializeToString)
            for name, (kind, method) in kinds.items()
        }
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)


def parse(message):
    """None for what cannot be parsed: gRPC would end the call with INTERNAL."""

    def parse(data):
        try:
            return message.FromString(data)
        except Exception:  # DecodeError, by its implementation's name
            return None

    return parse


def _end(future, refused):
    if not future.done():
        future.set_result(refused)


async def _finish(context, outcome):
    """Ends a call: well, unless `outcome` is an exception."""
    if isinstance(outcome, Refused):
        await context.abort(outcome.code, cut(str(outcome), _MAX_STATUS_BYTES))
    elif isinstance(outcome, asyncio.CancelledError):
        raise outcome
    elif isinstance(outcome, BaseException):
        traceback.print_exception(type(outcome), outcome, outcome.__traceback__)
        message = f"{type(outcome).__name__}: {one_line(outcome)}"
        await context.abort(grpc.StatusCode.INTERNAL, cut(message, _MAX_STATUS_BYTES))
