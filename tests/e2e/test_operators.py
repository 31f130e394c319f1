"""What operators see of a run: /metrics, as Prometheus reads it, and the board made of it."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from harness import SOURCE, guide, poll

LONG = ("--nproc-per-node", 2, "--set", "total_env_steps=1000000000")


def scrape(address, token=None, tls=None):
    request = urllib.request.Request(f"{'https' if tls else 'http'}://{address}/metrics")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=20, context=tls) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parse(answer.read().decode())


def parse(text):
    """{sample: {labels: value}}"""
    samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in samples.setdefault(sample.name, {}), sample
            samples[sample.name][labels] = sample.value
    return samples


def one(samples, name):
    (value,) = samples[name].values()
    return value


@pytest.fixture(scope="module")
def job(shared_sandbox):
    running = shared_sandbox.train(
        shared_sandbox.config("cartpole_ppo", "evaluation { every_updates: 2 episodes: 2 num_envs: 2 }"),
        *LONG, "--metrics-listen", "127.0.0.1:0",
    )  # fmt: skip
    running.await_status(lambda s: s.update >= 3 and s.evaluation.round >= 1, "an evaluation")
    running.await_status(lambda s: all(l.env_worker for l in s.learner), "the workers of both")
    return running


def address(job):
    return (job.run_dir / "metrics.address").read_text().strip()


def test_prometheus_reads_what_status_says(job):
    before = job.status()
    samples = scrape(address(job))
    after = job.await_more_updates(1)
    assert before.update <= one(samples, "flotilla_updates_total") <= after.update
    assert before.global_step <= one(samples, "flotilla_env_steps_total") <= after.global_step
    assert one(samples, "flotilla_world_size") == 2
    assert {labels: value for labels, value in samples["flotilla_generation_state"].items() if value} == {(("state", "ACTIVE"),): 1}
    assert sorted(dict(labels)["rank"] for labels in samples["flotilla_learner_up"]) == ["0", "1"]
    assert set(samples["flotilla_learner_up"].values()) == {1}
    assert dict(next(iter(samples["flotilla_info"])))["run"] == "run"
    assert sum(samples["flotilla_env_workers"].values()) == 2
    assert one(samples, "flotilla_evaluations_total") >= 1


def test_every_expression_of_the_board_names_what_there_is(job):
    board = json.loads((SOURCE / "deploy/grafana/flotilla.json").read_text())
    there = set(scrape(address(job)))
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    expressions += [variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    assert len(expressions) > 10
    for expression in expressions:
        named = re.findall(r"\bflotilla_\w+", expression)
        assert named and set(named) <= there, expression
    # And what there is, is on it.
    shown = set(re.findall(r"\bflotilla_\w+", " ".join(expressions)))
    assert there - shown <= {"flotilla_learners_min", "flotilla_learners_max", "flotilla_evaluation_update"}


def test_floods_and_slow_readers_cost_the_run_nothing(job):
    host, port = address(job).split(":")
    begin = job.status().update
    done = threading.Event()

    def pester():
        while not done.is_set():
            sockets = []
            for words in (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n", b"x" * 100, b"GET /" + b"a" * 10000, b""):
                try:
                    s = socket.create_connection((host, int(port)), timeout=5)
                    s.sendall(words)
                    sockets.append(s)
                except OSError:
                    pass
            for s in sockets:
                s.close()

    threads = [threading.Thread(target=pester) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        job.await_update(begin + 5)
    finally:
        done.set()
        for thread in threads:
            thread.join()


    def again():
        with contextlib.suppress(OSError):  # some of the flood is still there
            return scrape(address(job))

    poll(again, "a page again")
    assert job.status().generation == 1


def test_no_other_page_is_served_and_no_other_host_is_meant(job):
    host, port = address(job).split(":")

    def code(method, path, headers):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request(method, path, headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    assert code("GET", "/", {}) == 404
    assert code("GET", "/metrics", {"Host": "evil.example"}) == 421
    assert code("PUT", "/metrics", {}) == 405


def test_it_is_there_again_with_another_coordinator(job):
    (pid,) = [pid for pid, words in job.sandbox.processes().items() if "flotilla-coordinator" in words]
    epoch = job.status().epoch
    os.kill(pid, signal.SIGKILL)
    job.await_status(lambda s: s.epoch != epoch and s.update > 0, "another coordinator")

    def counts():
        with contextlib.suppress(OSError):  # its page comes after what answers about the run
            return one(scrape(address(job)), "flotilla_updates_total") > 0

    poll(counts, "its page")
    assert job.sandbox.run("stop", "run").returncode == 0
    job.succeeds()


def test_who_may_read_is_said(sandbox):
    token = sandbox.folder / "scrape.token"
    token.write_text("s3cret\n")
    token.chmod(0o600)

    def refused(*words):
        done = sandbox.run("coordinator", "--listen", "127.0.0.1:0", *words)
        assert done.returncode == 2, done.stdout + done.stderr
        return done.stderr

    assert "other hosts may reach --metrics-listen 0.0.0.0:0: give --metrics-token-file" in refused("--metrics-listen", "0.0.0.0:0")
    assert "would show everybody on this host" in refused("--metrics-listen", "127.0.0.1:0", "--token-file", token)
    process = sandbox.serve(
        "flotilla-coordinator", "--listen", "127.0.0.1:0", "--run-token", sandbox.folder / "run.token",
        "--metrics-listen", "0.0.0.0:0", "--metrics-token-file", token, "--metrics-address-file", sandbox.folder / "metrics.address",
    )  # fmt: skip
    path = sandbox.folder / "metrics.address"
    poll(lambda: path.exists() and path.read_text().strip(), "the address")
    at = path.read_text().strip().replace("0.0.0.0", "127.0.0.1")
    with pytest.raises(urllib.error.HTTPError) as error:
        scrape(at)
    assert error.value.code == 401
    assert one(scrape(at, "s3cret"), "flotilla_world_size") == 0
    process.terminate()
    assert process.wait(20) == 0


def test_with_tls_the_page_is_https(sandbox):
    certs = sandbox.folder / "certs"

    def certify(*words):
        subprocess.run([SOURCE / "deploy" / "certs.sh", certs, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def trusting(authority, name=None):
        context = ssl.create_default_context(cafile=authority)
        if name:
            context.load_cert_chain(certs / f"{name}.pem", certs / f"{name}.key")
        return context

    certify("ca")
    certify("token")
    certify("coordinator", "node0", "localhost", "127.0.0.1")
    certify("client", "prometheus")
    path = sandbox.folder / "metrics.address"

    def serve(*words):
        path.unlink(missing_ok=True)
        process = sandbox.serve(
            "flotilla-coordinator", "--listen=127.0.0.1:0", "--metrics-listen=0.0.0.0:0", f"--metrics-address-file={path}",
            f"--tls-cert={certs}/node0.pem", f"--tls-key={certs}/node0.key", f"--tls-ca={certs}/ca.pem", *words,
        )  # fmt: skip
        poll(lambda: path.exists() and path.read_text().strip(), "the address")
        return process, path.read_text().strip().replace("0.0.0.0", "localhost")

    # As the guide has Prometheus ask.
    (told,) = yaml.safe_load(re.search(r"(?ms)^```\n(.*?)^```$", guide("deploy", "Prometheus"))[1])["scrape_configs"]
    ours = trusting(certs / pathlib.Path(told["tls_config"]["ca_file"]).name.removeprefix("flotilla-"))
    token = (certs / pathlib.Path(told["authorization"]["credentials_file"]).suffix[1:]).read_text().strip()
    process, at = serve(f"--metrics-token-file={certs}/token")
    assert told["scheme"] == "https" and one(scrape(at, token, ours), "flotilla_world_size") == 0
    for shown in (None, "wrong"):
        with pytest.raises(urllib.error.HTTPError) as error:
            scrape(at, shown, ours)
        assert error.value.code == 401
    with pytest.raises(urllib.error.HTTPError) as error:
        scrape(at, token)
    assert error.value.code == 400 and error.value.read() == b"400 Bad Request: this page is served over https\n"
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        scrape(at, token, ssl.create_default_context())
    process.terminate()
    assert process.wait(20) == 0

    # Without a token, those who may look at the run.
    process, at = serve()
    assert one(scrape(at, tls=trusting(certs / "ca.pem", "prometheus")), "flotilla_world_size") == 0
    with pytest.raises((urllib.error.URLError, ssl.SSLError), match="(?i)certificate required|handshake"):
        scrape(at, tls=ours)
    process.terminate()
    assert process.wait(20) == 0
    refused = sandbox.run(
        "coordinator", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", f"--token-file={certs}/token",
        f"--tls-cert={certs}/node0.pem", f"--tls-key={certs}/node0.key", f"--tls-ca={certs}/ca.pem",
    )  # fmt: skip
    assert refused.returncode == 2 and "would show everybody on this host a run that takes a token" in refused.stderr
