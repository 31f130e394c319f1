"""Who floods a port, or sends what costs memory, keeps nobody else from working."""

import os
import signal
import time

import grpc
import pytest
from flotilla.v1 import coordinator_pb2, coordinator_pb2_grpc

import hostile
from harness import poll
from hostile import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    Http2,
    SilentFlood,
    field,
    frame,
    request,
)

FEW_DESCRIPTORS = ("prlimit", "--nofile=1024:1024")
MORE_THAN_THAT = 1300
MiB = 1 << 20


def serve(sandbox, program, *flags, prefix=()):
    """Its address, and the process."""
    path = sandbox.folder / f"{program}.address"
    process = sandbox.serve(program, "--listen=127.0.0.1:0", "--insecure", f"--address_file={path}", *flags, prefix=prefix)
    poll(lambda: path.exists() or process.poll() is not None, f"{program} to listen", 20)
    return path.read_text().strip(), process


def is_healthy(address, *options):
    """Over a connection of its own."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1), *options]) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        return check(b"", timeout=20, wait_for_ready=True) == b"\x08\x01"


def peak_bytes(process):
    for line in open(f"/proc/{process.pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


@pytest.mark.parametrize("program", ["flotilla-coordinator", "flotilla-envserver"])
def test_silent_connections_keep_nobody_out(sandbox, program):
    address, process = serve(sandbox, program, prefix=FEW_DESCRIPTORS)
    with SilentFlood(address, MORE_THAN_THAT):
        for _ in range(5):
            assert is_healthy(address)
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 512
    # After a refusal it would wait 5 s, less the fifth that gRPC varies that by: no busy machine takes that long.
    waits = [("grpc.initial_reconnect_backoff_ms", 5000), ("grpc.min_reconnect_backoff_ms", 5000)]
    gone = time.monotonic()
    assert is_healthy(address, *waits)
    assert time.monotonic() - gone < 4
    assert process.poll() is None


def test_a_learners_replacement_gets_in_through_a_flood(sandbox):
    job = sandbox.train(
        "cartpole_ppo", "--nproc-per-node", 2, "--set", "total_env_steps=1000000000", "--set", "env.num_workers=1",
        "--set", "evaluation.every_updates=0", prefix=FEW_DESCRIPTORS,
    )  # fmt: skip
    killed = job.await_update(3).learner[1].pid
    with SilentFlood(job.address(), MORE_THAN_THAT):
        os.kill(killed, signal.SIGKILL)
        job.await_status(lambda s: s.generation == 2 and s.world_size == 2, "the replacement")
        job.await_more_updates(3)
    assert sandbox.run("stop", "--run-dir", job.run_dir).returncode == 0
    assert job.succeeds()["restarts"]["learner"] == 1


class InItsName(grpc.UnaryUnaryClientInterceptor):
    """Every call comes from the learner that has joined."""

    def intercept_unary_unary(self, continuation, details, request_):
        metadata = [("flotilla-member", "learner/0/0"), ("flotilla-secret", "0" * 64)]
        return continuation(details._replace(metadata=metadata), request_)


@pytest.fixture
def coordinator(sandbox):
    """With one learner that has joined and stays: its stub, address and process."""
    address, process = serve(sandbox, "flotilla-coordinator", "--dead_after_seconds=600")
    with grpc.insecure_channel(address) as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(grpc.intercept_channel(channel, InItsName()))
        learner = coordinator_pb2.Member(id="learner/0/0", incarnation=1, role=coordinator_pb2.LEARNER)
        stub.Register(coordinator_pb2.RegisterRequest(member=learner), timeout=20)
        join = coordinator_pb2.JoinGenerationRequest(member_id=learner.id, incarnation=1, timeout_ms=20_000)
        assert stub.JoinGeneration(join, timeout=20).generation == 1
        yield stub, address, process
        assert is_healthy(address)


def test_waiting_for_many_keys_is_bounded_by_their_bytes(coordinator):
    stub, _, process = coordinator
    key = "k" * 1000
    request_ = coordinator_pb2.KvWaitRequest(generation=1, key=[key] * 4000, timeout_ms=60_000)
    calls = []
    for _ in range(120):
        calls.append(stub.KvWait.future(request_, timeout=60))
        poll(lambda: sum(not call.done() for call in calls) <= 20, "the rest to be refused", 30)
    refused = [call for call in calls if call.done()]
    assert {call.code() for call in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert "too many to wait for" in refused[0].details()
    assert 10 <= len(calls) - len(refused)
    assert peak_bytes(process) < 400 * MiB
    for call in calls:
        call.cancel()


    def fits():  # then it waits until its time is up
        request_.timeout_ms = 1
        with pytest.raises(grpc.RpcError) as error:
            stub.KvWait(request_, timeout=20)
        return error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    poll(fits, "what the cancelled waits took to be free again", 20)


def test_compressed_messages_are_refused_as_they_are(coordinator):
    stub, _, process = coordinator
    before = peak_bytes(process)
    bomb = coordinator_pb2.KvSetRequest(generation=1, key="k", value=bytes(200 * MiB))
    for method in (stub.KvSet, stub.KvAdd):
        with pytest.raises(grpc.RpcError) as error:
            method(bomb, compression=grpc.Compression.Gzip, timeout=60)
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED, error.value
    assert peak_bytes(process) - before < 50 * MiB


def test_rapid_resets_keep_nobody_out(coordinator):
    """CVE-2023-44487: calls that are cancelled as soon as they are made count against no limit of streams."""
    _, address, process = coordinator
    block = request("GetStatus")
    with Http2(address) as client:
        for call in range(5000):
            stream = 2 * call + 1
            client.send(frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, bytes(4)))
            if call % 1000 == 0:
                assert is_healthy(address)
    assert is_healthy(address)
    assert peak_bytes(process) < 300 * MiB  # about 20 KiB each, until they are worked off


def endless_fields():
    while True:
        yield b"".join(field(b"name-%d" % i, bytes(1000)) for i in range(16))


def endless_string():
    yield b"\0" + hostile.text(b"name") + hostile.number(1 << 30, 7)
    while True:
        yield bytes(16_000)


def endless_number():
    yield b"\0" + hostile.text(b"name") + b"\x7f"
    while True:
        yield b"\x80" * 16_000


@pytest.mark.parametrize("endless", [endless_fields, endless_string, endless_number])
def test_endless_headers_cost_no_more_than_their_bytes(coordinator, endless):
    """CVE-2023-33953: what is read before it is found too long."""
    _, address, process = coordinator
    before = peak_bytes(process)
    with Http2(address) as client:
        client.send(frame(HEADERS, 0, 1, request("GetStatus")))
        sent = 0
        for part in endless():
            sent += len(part)
            if not client.send(frame(CONTINUATION, 0, 1, part)) or sent > 4 * MiB:
                break
        assert is_healthy(address)
    assert peak_bytes(process) - before < 64 * MiB


def test_what_a_too_long_header_spoils_is_its_own_connection(coordinator):
    """CVE-2023-32731: after it, this gRPC's table of header fields lacks what came with it."""
    stub, address, _ = coordinator
    with Http2(address) as client:
        spoilt = request("GetStatus") + field(b"long", bytes(9000))
        client.send(frame(HEADERS, 0, 1, spoilt))
        client.send(frame(CONTINUATION, END_HEADERS, 1, field(b"kept", b"secret", keep=True)))
        newest = b"\xbe"  # the table's first entry of ours, if it is there
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, request("GetStatus") + newest))
        client.send(frame(PING, 0, 0, b"all read"))
        # Whether it refuses the calls by name depends on which frames it read at once.
        poll(lambda: client.over or frame(PING, ACK, 0, b"all read") in client.heard, "an answer or an end", 20)
        assert stub.GetStatus(coordinator_pb2.GetStatusRequest(), timeout=20).generation == 1
        assert is_healthy(address)
