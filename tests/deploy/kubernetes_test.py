"""deploy/kubernetes against the schemas of Kubernetes, and against itself."""

import copy
import os
import pathlib
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("FLOTILLA_BIN", SOURCE / "build" / "bin"))
DEPLOY = SOURCE / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
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


def override(args, field, default):
    return next((a.split("=", 2)[2] for a in reversed(args) if a.startswith(f"--set={field}=")), default)


def launcher():
    return find("Job", "flotilla-train")["spec"]["template"]["spec"]["containers"][0]


def learners():
    """In all: one a GPU."""
    assert flag(launcher()["args"], "nproc-per-node") == "auto"
    return find("Job", "flotilla-train")["spec"]["completions"] * int(launcher()["resources"]["limits"]["nvidia.com/gpu"])


def env_servers():
    return sum(o["spec"]["replicas"] for _, o in OBJECTS if o["kind"] == "StatefulSet")


def has_emulator():
    """Whether the Job's image has one, as the first lines of its Dockerfile build it."""
    return re.search(r"(?m)^ARG FLOTILLA_ATARI=(\w+)$", (DEPLOY / "docker" / "learner.Dockerfile").read_text())[1] != "OFF"


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


def test_images_have_what_is_played():
    command, config, *args = launcher()["args"]
    assert command == "train"
    shipped = re.search(r'(?m)^  id: "(.+?)"', (DEPLOY / "configs" / f"{config}.textproto").read_text())[1]
    if override(args, "env.id", shipped).startswith("ALE/"):
        assert has_emulator(), "the Job plays an Atari game, and its image is built without the emulator"
        images = {pod["spec"]["containers"][0]["image"] for pod in pods()}
        assert images == {launcher()["image"]}, "the image of env hosts has no emulator"


def test_env_hosts_are_as_many_as_learners_lease():
    """None where none are leased, and none for nothing: a server plays for one learner at a time."""
    assert learners() * int(override(launcher()["args"], "env.remote_workers", 0)) == env_servers()


@pytest.mark.parametrize("pod", pods(), ids=lambda pod: pod["spec"]["containers"][0]["name"])
def test_flags_are_ours(pod):
    command, *args = pod["spec"]["containers"][0]["args"]
    said = subprocess.run([BIN / "flotilla", command, "--help"], capture_output=True, text=True, timeout=30).stdout
    known = set(re.findall(r"(?m)^  (--[a-z-]+)", said))
    assert {a.split("=")[0] for a in args if a.startswith("--")} <= known


# Takes what files it is given, and says what it was asked.
KUBECTL = """#!/bin/sh
echo "$@" >> asked
for word in "$@"; do
  case $word in
    --from-file=*) [ -s "${word##*=}" ] || { echo "kubectl: ${word##*=} is missing" >&2; exit 1; } ;;
  esac
done
"""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_the_guide_makes_the_secrets_that_pods_mount(tmp_path):
    section = re.search(r"(?ms)^## Kubernetes$(.*?)^## ", (DEPLOY / "README.md").read_text())[1]
    (block,) = re.findall(r"(?ms)^```\n(.*?)^```$", section)
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").write_text(KUBECTL)
    (tmp_path / "bin" / "kubectl").chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euc", block], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    *creates, apply = (tmp_path / "asked").read_text().splitlines()
    assert apply.split() == ["apply", "-f", "deploy/kubernetes/"]
    made = {}
    for line in creates:
        create, secret, generic, name, *files = line.split()
        assert (create, secret, generic) == ("create", "secret", "generic")
        made[name] = {word.split("=")[1] for word in files if word.startswith("--from-file=")}
    mounted = {}  # secret: files of it that arguments name
    for pod in pods():
        container = pod["spec"]["containers"][0]
        secrets = {v["name"]: v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v}
        for mount in container["volumeMounts"]:
            if mount["name"] in secrets:
                named = re.findall(rf"={mount['mountPath']}/(\S+)", " ".join(container["args"]))
                mounted.setdefault(secrets[mount["name"]], set()).update(named)
    assert made == mounted


@pytest.mark.skipif(not (BIN / "flotilla-learner").exists(), reason="built without the learner")
def test_the_job_trains_as_it_says(tmp_path):
    """Its command with --dry-run, as pod 0 has it, but for files that are not here."""
    args = [a for a in launcher()["args"] if not a.startswith(("--tls-", "--token-file=", "--run-dir=", "--nproc"))]
    gpus = launcher()["resources"]["limits"]["nvidia.com/gpu"]
    words = [*args, "--insecure", f"--run-dir={tmp_path / 'run'}", f"--nproc-per-node={gpus}", "--dry-run"]
    topology = ("RANK", "LOCAL_", "WORLD_", "MASTER_", "SLURM_", "OMPI_", "JOB_", "TORCHELASTIC_", "GROUP_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(topology)} | {"JOB_COMPLETION_INDEX": "0"}
    if not has_emulator():
        env["FLOTILLA_ATARI_LIBRARY"] = str(tmp_path / "none.so")
    result = subprocess.run(
        [BIN / "flotilla", *words], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=50,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert f"of {learners()}\n" in re.search(r"ranks here.*\n", result.stdout)[0]
    leased = re.search(r"of other hosts +\d+ +(\d+)", result.stdout)
    assert (int(leased[1]) if leased else 0) == env_servers()
    if leased:
        each = int(re.search(r"env workers .* (\d+) environments each", result.stdout)[1])
        server = find("StatefulSet", "flotilla-env-host")["spec"]["template"]["spec"]["containers"][0]
        assert each <= int(flag(server["args"], "num-envs"))
