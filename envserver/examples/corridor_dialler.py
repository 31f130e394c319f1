"""The environments of corridor_server.py where nobody can reach them: they dial in.

Written from proto/flotilla/v1/coordinator.proto and env.proto alone; without TLS, for brevity.
"""

import argparse
import os
import pathlib
import queue
import secrets
import socket
import threading
import time

import grpc
from corridor_server import EnvService
from flotilla.v1 import coordinator_pb2, coordinator_pb2_grpc, env_pb2, env_pb2_grpc

# A peer that is gone is noticed within 25 s, though no packet says so.
ALIVE = [("grpc.keepalive_time_ms", 15000), ("grpc.keepalive_timeout_ms", 10000), ("grpc.http2.max_pings_without_data", 0)]
PAUSE = 1  # seconds before anything is tried again


class Refused(Exception):
    pass


class Line:
    """Stands for the call that corridor_server's handlers are given."""

    def abort(self, code, message):
        raise Refused(message)


def keep_seat(flags, member, metadata, told):
    """Has the newest command in told[0], whatever becomes of the network."""
    while not told[0].closed:
        try:
            with grpc.insecure_channel(flags.coordinator, options=ALIVE) as channel:
                stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
                request = coordinator_pb2.RegisterRequest(member=member)
                period = stub.Register(request, metadata=metadata, timeout=5).heartbeat_ms / 1000
                beat = coordinator_pb2.Heartbeat(member_id=member.id, incarnation=member.incarnation)

                def beats():
                    while True:
                        yield beat
                        time.sleep(period)

                for command in stub.Session(beats(), metadata=metadata):
                    told[0] = command
                    if command.register_again or command.closed:
                        break
        except grpc.RpcError as error:
            print(f"coordinator: {error.details()}", flush=True)
        time.sleep(PAUSE)


def play(address, introduction, metadata):
    """Until the stream ends, whoever ends it."""
    with grpc.insecure_channel(address, options=ALIVE) as channel:
        requests = queue.Queue()

        def replies():
            yield env_pb2.PlayReply(introduction=introduction)
            try:
                yield from EnvService().Play(iter(requests.get, None), Line())
            except Refused as refused:
                print(f"refused: {refused}", flush=True)
                call.cancel()

        call = env_pb2_grpc.DialServiceStub(channel).Dial(replies(), metadata=metadata)
        try:
            for request in call:
                requests.put(request)
        except grpc.RpcError as error:
            print(f"learner: {error.details()}", flush=True)
        requests.put(None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True, help="HOST:PORT of the run's")
    parser.add_argument("--token-file")
    flags = parser.parse_args()
    member = coordinator_pb2.Member(
        id=f"env/{socket.gethostname()}/{os.getpid()}", incarnation=1, role=coordinator_pb2.ENV_SERVER, dials=True, num_envs=64
    )
    metadata = []
    if flags.token_file:
        metadata.append(("authorization", "Bearer " + pathlib.Path(flags.token_file).read_text().strip()))
    seat = [("flotilla-member", member.id), ("flotilla-secret", secrets.token_hex(32))]
    told = [coordinator_pb2.Command()]
    threading.Thread(target=keep_seat, args=(flags, member, metadata + seat, told), daemon=True).start()
    introduction = env_pb2.Introduction(server_id=member.id, version="1")
    while not told[0].closed:
        if told[0].dial:
            introduction.incarnation += 1
            play(told[0].dial, introduction, metadata)
        time.sleep(PAUSE / 10 if told[0].dial == "" else PAUSE)


if __name__ == "__main__":
    main()
