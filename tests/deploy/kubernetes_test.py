"""deploy/kubernetes against the schemas of Kubernetes, and against itself."""

import copy
import pathlib
import re

import kubernetes_validate
import pytest
import yaml

MANIFESTS = sorted((pathlib.Path(__file__).resolve().parents[2] / "deploy" / "kubernetes").glob("*.yaml"))
OBJECTS = [(path.name, obj) for path in MANIFESTS for obj in yaml.safe_load_all(path.read_text())]
VERSIONS = ["1.31", "1.37"]  # podReplacementPolicy and podFailurePolicy are stable from 1.31 on


def find(kind, name):
    return next(o for _, o in OBJECTS if o["kind"] == kind and o["metadata"]["name"] == name)


def pods():
    return [o["spec"]["template"] for _, o in OBJECTS if "template" in o["spec"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("obj", [pytest.param(o, id=f"{f}:{o['kind']}:{o['metadata']['name']}") for f, o in OBJECTS])
def test_schema(obj, version):
    kubernetes_validate.validate(obj, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schema_notices_a_typo(version):
    wrong = copy.deepcopy(find("Job", "flotilla-train"))
    wrong["spec"]["template"]["spec"]["restartPolice"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def flag(args, name):
    return next(a.split("=", 1)[1] for a in args if a.startswith(f"--{name}="))


def test_sizes_and_names_agree():
    job = find("Job", "flotilla-train")["spec"]
    service = find("Service", "flotilla")
    pod = job["template"]["spec"]
    args = pod["containers"][0]["args"]
    assert job["completions"] == job["parallelism"] == int(flag(args, "nnodes"))
    host, port = flag(args, "coordinator").split(":")
    assert host == f"flotilla-train-0.{pod['subdomain']}" and pod["subdomain"] == service["metadata"]["name"]
    assert int(port) == service["spec"]["ports"][0]["port"]
    servers = find("StatefulSet", "flotilla-env-host")["spec"]
    assert flag(servers["template"]["spec"]["containers"][0]["args"], "coordinator") == f"{host}:{port}"
    assert servers["serviceName"] == find("Service", "flotilla-env-hosts")["metadata"]["name"]


def test_every_selector_matches_a_pod():
    labels = [pod["metadata"]["labels"] for pod in pods()]
    for _, obj in OBJECTS:
        spec = obj["spec"]
        selector = spec.get("podSelector", {}).get("matchLabels") or spec.get("selector")
        if obj["kind"] in ("Service", "NetworkPolicy"):
            assert any(selector.items() <= pod.items() for pod in labels), obj["metadata"]["name"]


def test_volumes_mounts_and_files_agree():
    for pod in pods():
        volumes = {v["name"] for v in pod["spec"]["volumes"]}
        container = pod["spec"]["containers"][0]
        mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
        assert set(mounts) == volumes
        for path in re.findall(r"=(/\S+)", " ".join(container["args"])):
            assert any(path.startswith(mount) for mount in mounts.values()), path


def test_nobody_runs_as_root_or_in_plaintext():
    for pod in pods():
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        container = pod["spec"]["containers"][0]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        for name in ("tls-cert", "tls-key", "tls-ca", "token-file"):
            assert flag(container["args"], name)
        assert "--insecure" not in container["args"]


def test_exit_codes_are_ours():
    """75: preempted, its state saved. 2: wrong usage. As in launcher/supervisor.h."""
    rules = find("Job", "flotilla-train")["spec"]["podFailurePolicy"]["rules"]
    codes = {tuple(r["onExitCodes"]["values"]): r["action"] for r in rules if "onExitCodes" in r}
    assert codes == {(75,): "Ignore", (2,): "FailJob"}
