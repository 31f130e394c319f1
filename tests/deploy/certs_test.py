"""What deploy/certs.sh makes, against the real programs: who gets in, and who does not."""

import os
import pathlib
import re
import subprocess
import sys
import time

import grpc
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import SOURCE, Sandbox, coordinator_pb2, coordinator_pb2_grpc, env_pb2, env_pb2_grpc, guide, poll  # noqa: E402
from hostile import SilentFlood  # noqa: E402
from ports import free_port  # noqa: E402

CERTS = SOURCE / "deploy" / "certs.sh"


def make(folder, *words, **env):
    subprocess.run([CERTS, folder, *words], check=True, env=os.environ | env, stdout=subprocess.DEVNULL)


class Place:
    """A coordinator and an env server behind TLS and a token, and their folder."""

    def __init__(self, folder):
        self.sandbox = Sandbox(folder)
        self.folder = folder
        make(folder, "ca")
        make(folder, "token")
        for role in ("learner", "client"):
            make(folder, role, role)
        for role in ("coordinator", "envserver"):
            make(folder, role, role, "127.0.0.1")
        self.coordinator = self.serve("coordinator")
        self.envserver = self.serve("envserver")

    def serve(self, role, name=None, prefix=()):
        name = name or role
        address = self.folder / f"{name}.address"
        files = [f"--tls_cert={name}.pem", f"--tls_key={name}.key", "--tls_ca=ca.pem", "--token_file=token"]
        words = ["--listen=127.0.0.1:0", f"--address_file={address}", *files]
        process = self.sandbox.serve(f"flotilla-{role}", *words, prefix=prefix)
        log = self.folder / f"flotilla-{role}.log"

        def served():
            assert process.poll() is None, log.read_text()
            return address.exists()

        poll(served, f"the {role} to listen", 20)
        return address.read_text().strip()

    def channel(self, address, name=None, ca=None, token=None, target=None):
        """As `name`, who believes `ca` and calls the server `target`. Without a name: no certificate."""
        parts = [(ca or self.folder / "ca.pem").read_bytes()]
        if name is not None:
            parts += [(self.folder / f"{name}.key").read_bytes(), (self.folder / f"{name}.pem").read_bytes()]
        secret = (self.folder / "token").read_text().strip() if token is None else token
        return grpc.secure_channel(
            address,
            grpc.composite_channel_credentials(
                grpc.ssl_channel_credentials(*parts), grpc.access_token_call_credentials(secret)
            ),
            options=[("grpc.ssl_target_name_override", target)] if target else [],
        )

    def status(self, *args, **kwargs):
        with self.channel(self.coordinator, *args, **kwargs) as channel:
            stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
            return stub.GetStatus(coordinator_pb2.GetStatusRequest(), timeout=10)

    def call(self, name, method, request):
        with self.channel(self.coordinator, name) as channel:
            return getattr(coordinator_pb2_grpc.CoordinatorServiceStub(channel), method)(request, timeout=10)

    def spec(self, name):
        with self.channel(self.envserver, name) as channel:
            return env_pb2_grpc.EnvServiceStub(channel).GetSpec(
                env_pb2.GetSpecRequest(env_id="CartPole-v1"), timeout=10
            )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("place"))
    yield place
    place.sandbox.close()


def refused(code, call, *args, **kwargs):
    with pytest.raises(grpc.RpcError) as error:
        call(*args, **kwargs)
    assert error.value.code() == code, error.value
    return error.value.details()


UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
DENIED = grpc.StatusCode.PERMISSION_DENIED


def test_what_others_run_with_is_not_replaced(tmp_path):
    for what, file, remedy in (("ca", "ca.key", "a new authority would void"), ("token", "token", "remove it first")):
        make(tmp_path, what)
        before = (tmp_path / file).read_bytes()
        again = subprocess.run([CERTS, tmp_path, what], capture_output=True, text=True)
        assert again.returncode == 2 and f"{tmp_path}/{file} exists; " in again.stderr and remedy in again.stderr, again
        assert (tmp_path / file).read_bytes() == before
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    (tmp_path / "token").unlink()
    make(tmp_path, "token")
    assert (tmp_path / "token").read_bytes() != before


def test_members_get_in(place):
    for name in ("client", "learner", "envserver"):
        assert place.status(name).version
    place.spec("client")


def test_no_certificate_is_refused(place):
    refused(UNAVAILABLE, place.status)


def test_another_authority_is_refused_by_both_sides(place, tmp_path):
    make(tmp_path, "ca")
    make(tmp_path, "client", "stranger")
    for end in ("pem", "key"):
        (place.folder / f"stranger.{end}").write_bytes((tmp_path / f"stranger.{end}").read_bytes())
    refused(UNAVAILABLE, place.status, "stranger")
    refused(UNAVAILABLE, place.status, "client", ca=tmp_path / "ca.pem")


def test_an_expired_certificate_is_refused(place):
    make(place.folder, "client", "late", CERT_DAYS="-1")
    refused(UNAVAILABLE, place.status, "late")


def test_plaintext_is_refused_and_the_server_lives(place):
    with grpc.insecure_channel(place.coordinator) as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        refused(UNAVAILABLE, stub.GetStatus, coordinator_pb2.GetStatusRequest(), timeout=10)
    place.status("client")


def test_a_wrong_token_is_refused(place):
    refused(grpc.StatusCode.UNAUTHENTICATED, place.status, "client", token="wrong")


def test_a_certificate_for_many_hosts_is_good_for_one_of_them(place):
    """As the env hosts of deploy/kubernetes share one."""
    make(place.folder, "envserver", "hosts", "*.env-hosts.default")
    address = place.serve("envserver", "hosts")

    def ask(name):
        with place.channel(address, "client", target=name) as channel:
            stub = env_pb2_grpc.EnvServiceStub(channel)
            return stub.GetSpec(env_pb2.GetSpecRequest(env_id="CartPole-v1"), timeout=10)

    ask("env-host-0.env-hosts.default")
    refused(UNAVAILABLE, ask, "env-host-0.env-hosts.other")


def test_roles_limit_what_a_certificate_does(place):
    refused(DENIED, place.call, "envserver", "Stop", coordinator_pb2.StopRequest())
    assert "client; yours has learner" in refused(DENIED, place.call, "learner", "Set", coordinator_pb2.SetRequest())
    refused(DENIED, place.call, "client", "KvSet", coordinator_pb2.KvSetRequest(generation=1, key="k"))
    refused(DENIED, place.call, "envserver", "JoinGeneration", coordinator_pb2.JoinGenerationRequest())
    refused(DENIED, place.call, "coordinator", "GetStatus", coordinator_pb2.GetStatusRequest())
    assert "yours has envserver" in refused(DENIED, place.spec, "envserver")


def test_a_learner_passes_on_a_signal_that_it_got(tmp_path):
    place = Place(tmp_path)
    try:
        place.call("learner", "Stop", coordinator_pb2.StopRequest(reason="learner/0/0 got SIGTERM"))
        assert place.status("client").stop_reason == "learner/0/0 got SIGTERM"
    finally:
        place.sandbox.close()


def test_an_env_server_cannot_register_as_a_learner(place):
    member = coordinator_pb2.Member(id="learner/0", incarnation=1, role=coordinator_pb2.LEARNER)
    request = coordinator_pb2.RegisterRequest(member=member)
    assert "LEARNER" in refused(DENIED, place.call, "envserver", "Register", request)


def test_a_learner_cannot_pass_for_the_coordinator(place, tmp_path):
    """Its certificate is good for clients only, wherever it serves."""
    make(place.folder, "learner", "impostor", "127.0.0.1")
    address = tmp_path / "address"
    place.sandbox.serve(
        "flotilla-coordinator", "--listen=127.0.0.1:0", f"--address_file={address}", "--tls_cert=impostor.pem",
        "--tls_key=impostor.key", "--tls_ca=ca.pem", "--token_file=token",
    )  # fmt: skip
    poll(address.exists, "the impostor to listen", 20)
    result = place.sandbox.run(
        "status", "--coordinator", address.read_text().strip(), "--tls-cert", "client.pem",
        "--tls-key", "client.key", "--tls-ca", "ca.pem", "--token-file", "token",
    )  # fmt: skip
    assert result.returncode == 1 and not result.stdout, result


def test_our_own_client_gets_in(place):
    result = place.sandbox.run(
        "status", "--json", "--coordinator", place.coordinator, "--tls-cert", "client.pem",
        "--tls-key", "client.key", "--tls-ca", "ca.pem", "--token-file", "token",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_health_is_open_to_every_certificate(place):
    flags = ["--tls-cert", "client.pem", "--tls-key", "client.key", "--tls-ca", "ca.pem", "--token-file", "token"]
    for address in (place.coordinator, place.envserver):
        served = place.sandbox.run("health", address, *flags)
        assert served.returncode == 0 and served.stdout == "serving\n", served
    assert place.sandbox.run("health", place.envserver, "--token-file", "token").returncode == 1
    assert place.sandbox.run("health", "127.0.0.1:1", "--timeout", "1").returncode == 1
    assert place.sandbox.run("health").returncode == 2
    unknown = place.sandbox.run("health", place.coordinator, "--service", "none", *flags)
    assert unknown.returncode != 0 and "none" in unknown.stderr, unknown


def two_nodes(place, name, tls):
    """Starts node 0 or 1 of a short run. The certificate names localhost alone: the name that was given is checked."""
    make(place.folder, "coordinator,learner", "local", "localhost")
    files = ["--tls-cert=local.pem", "--tls-key=local.key", "--tls-ca=ca.pem"] if tls else []
    address = f"localhost:{free_port()}"
    words = ["cartpole_fast", "--nnodes=2", "--nproc-per-node=1", f"--coordinator={address}", *files]
    words += ["--token-file=token", "--set", "total_env_steps=1000000000", "--set", "evaluation.stop_return=1000000"]
    return address, lambda rank: place.sandbox.train(*words, f"--node-rank={rank}", run_dir=name)


def trains_and_ends(hosting, other):
    log = hosting.run_dir / "logs" / "coordinator.log"
    hosting.poll(lambda: "generation 1 has formed" in log.read_text(), "the learners of both to join")
    for job in (hosting, other):
        job.process.terminate()
    for job in (hosting, other):
        job.process.wait(120)


@pytest.mark.parametrize("tls", [True, False])
def test_a_node_that_starts_first_joins_soon_after_the_coordinator_listens(place, tls):
    address, start = two_nodes(place, f"first_{'tls' if tls else 'plain'}", tls)
    waiting = start(1)
    waiting.poll(lambda: "waiting for the coordinator" in waiting.output(), "node 1 to wait")
    time.sleep(4)  # while connecting fails, all of its backoff builds up
    hosting = start(0)
    assert hosting.address() == address
    files = ["--tls-cert=client.pem", "--tls-key=client.key", "--tls-ca=ca.pem"] if tls else []
    fresh = place.sandbox.run("status", "--coordinator", address, "--token-file=token", *files)  # load slows both
    assert fresh.returncode == 0, fresh.stderr
    answered = time.monotonic()
    waiting.poll(lambda: "(started elsewhere)" in waiting.output(), "node 1 to find it")
    assert time.monotonic() - answered < 2
    trains_and_ends(hosting, waiting)


def test_a_node_that_starts_second_joins_too(place):
    address, start = two_nodes(place, "second", tls=True)
    hosting = start(0)
    assert hosting.address() == address
    joining = start(1)
    joining.poll(lambda: "(started elsewhere)" in joining.output(), "node 1 to find it")
    trains_and_ends(hosting, joining)


def test_the_guide_is_true(place):
    """On this host, whose name is another: its certificates, node 0's launcher, and who looks on."""
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", guide("deploy", "Who may do what"))
    run_dir = place.folder / "guide"
    for there, here in (
        ("deploy/certs.sh", str(CERTS)), ("node0.example.com", "localhost"), (":29400", f":{free_port()}"), ("CONFIG", "cartpole_fast"),
        ("/shared/runs/first", str(run_dir)),
    ):  # fmt: skip
        assert there in block
        block = block.replace(there, here)
    lines = [re.sub(r"\s+#.*", "", line) for line in block.replace("\\\n", "").splitlines() if line]
    *makes, train, status = (line.split() for line in lines)
    for words in makes:
        subprocess.run(words, cwd=place.folder, check=True, stdout=subprocess.DEVNULL)
    assert {path.name for path in (place.folder / "certs").iterdir()} >= {"ca.pem", "token", "node0.pem", "learners.pem", "cpu1.pem", "alice.pem"}
    before = place.sandbox.processes()
    launcher = place.sandbox.serve(*train)
    try:
        poll(lambda: (run_dir / "coordinator.address").exists(), "the coordinator to listen", 60)
        told = place.sandbox.run(*status[1:])
        assert told.returncode == 0, told.stderr
    finally:
        launcher.kill()
        launcher.wait()
    poll(lambda: place.sandbox.processes() == before, "the end of what it started", 20)


def test_silent_connections_keep_nobody_out(place):
    make(place.folder, "coordinator", "flooded", "127.0.0.1")
    address = place.serve("coordinator", "flooded", prefix=("prlimit", "--nofile=1024:1024"))
    flags = ["--tls-cert=client.pem", "--tls-key=client.key", "--tls-ca=ca.pem", "--token-file=token"]
    with SilentFlood(address, 1300):
        assert place.sandbox.run("status", "--coordinator", address, *flags).returncode == 0
    assert place.sandbox.run("status", "--coordinator", address, *flags).returncode == 0


def an_env_server_does_not_pass_for_a_learner(place, address):
    """Neither by its role nor with a secret of its own."""
    learner = coordinator_pb2.Member(id="learner/0/0", incarnation=2**64 - 1, role=coordinator_pb2.LEARNER)
    server = coordinator_pb2.Member(id="learner/0/0", incarnation=2**64 - 1, role=coordinator_pb2.ENV_SERVER)
    beat = coordinator_pb2.Heartbeat(member_id="learner/0/1", incarnation=0, generation=1)
    attacks = [
        (DENIED, "Session", iter([beat])),
        (DENIED, "Leave", coordinator_pb2.LeaveRequest(member_id="learner/0/1")),
        (DENIED, "Register", coordinator_pb2.RegisterRequest(member=learner)),
        (grpc.StatusCode.INVALID_ARGUMENT, "Register", coordinator_pb2.RegisterRequest(member=server)),
    ]
    with place.channel(address, "envserver") as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        for code, method, request in attacks:
            with pytest.raises(grpc.RpcError) as error:
                answer = getattr(stub, method)(request, timeout=10, metadata=[("flotilla-secret", "0" * 64)])
                if method == "Session":
                    next(answer)
            assert error.value.code() == code, (method, error.value)
    with place.channel(address, "client") as channel:
        status = coordinator_pb2_grpc.CoordinatorServiceStub(channel).GetStatus(
            coordinator_pb2.GetStatusRequest(), timeout=10
        )
    assert status.generation == 1 and [learner.state for learner in status.learner] == ["alive", "alive"]


def test_a_whole_run_behind_tls(place):
    """The launcher's certificate serves as coordinator and trains; people stop it with theirs."""
    make(place.folder, "coordinator,learner", "node0", "127.0.0.1")
    flags = ["--tls-cert=node0.pem", "--tls-key=node0.key", "--tls-ca=ca.pem", "--token-file=token"]
    job = place.sandbox.train(
        "cartpole_fast", "--nproc-per-node=2", "--standalone", "--set", "total_env_steps=1000000000",
        "--set", "evaluation.stop_return=1000000", *flags,
    )  # fmt: skip
    metrics = job.run_dir / "metrics.jsonl"
    job.poll(lambda: metrics.exists() and metrics.stat().st_size > 0, "the first update")
    person = ["--tls-cert=client.pem", "--tls-key=client.key", "--tls-ca=ca.pem", "--token-file=token"]
    address = job.address()
    told = place.sandbox.run("status", "--run-dir", job.run_dir)
    assert told.returncode == 1 and "it speaks TLS: give --tls-cert" in told.stderr, told
    told = place.sandbox.run("status", "--run-dir", job.run_dir, *person[:3])
    assert told.returncode == 1 and "--token-file" in told.stderr, told
    an_env_server_does_not_pass_for_a_learner(place, address)
    server = ["--tls-cert=envserver.pem", "--tls-key=envserver.key", "--tls-ca=ca.pem", "--token-file=token"]
    denied = place.sandbox.run("stop", "--run-dir", job.run_dir, *server)
    assert denied.returncode == 1 and "yours has envserver" in denied.stderr, denied
    stopped = place.sandbox.run("stop", "--run-dir", job.run_dir, *person)
    assert stopped.returncode == 0, stopped.stderr
    assert job.process.wait(60) == 0, job.diagnosis()


def test_renewed_files_are_taken_up(place, tmp_path):
    """The coordinator goes over to another authority without a restart."""
    before = place.sandbox.processes()
    make(tmp_path, "ca")
    make(tmp_path, "coordinator", "coordinator", "127.0.0.1")
    make(tmp_path, "client", "client")
    for name in ("ca.pem", "coordinator.key", "coordinator.pem", "client.key", "client.pem"):
        os.replace(tmp_path / name, place.folder / name)

    def renewed():
        try:
            return place.status("client")
        except grpc.RpcError as error:
            assert error.code() == UNAVAILABLE
            return None

    poll(renewed, "the coordinator to show its new certificate", 40, interval=0.2)
    assert place.sandbox.processes() == before


def test_an_open_address_in_plaintext_is_refused(place):
    result = place.sandbox.run("coordinator", "--listen=0.0.0.0:0")
    assert result.returncode == 2 and "--insecure" in result.stderr, result
