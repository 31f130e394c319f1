"""A policy taken home as a model repository."""

import base64
import http.server
import json
import re
import subprocess
import threading

from trained_home import acts, home, python, refused, script  # noqa: F401


def test_a_model_repository_is_a_policy_again(home, script, tmp_path):
    import onnx

    run = home.trained("gru")
    home.run("export", run, "--onnx", tmp_path / "policy.onnx", "--decisions", 50)
    hub = tmp_path / "hub"
    # Of the same weights: others would be said to be the same policy.
    model, latest = onnx.load(tmp_path / "policy.onnx"), (run / "checkpoints" / "latest").resolve()
    ((key, weights),) = ((entry.key, entry.value) for entry in model.metadata_props)
    assert f"{weights}  weights.safetensors" in (latest / "SHA256SUMS").read_text()
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "unsigned.onnx")
    (tmp_path / "no.onnx").write_text("onnx")
    other = home.trained("mlp")
    attempts = [(str(run), "unsigned.onnx"), (str(run), "no.onnx"), (str(other), "policy.onnx")]
    said = script(f"""
from flotilla import push
for run, onnx in {attempts!r}:
    try:
        push.write(push.Checkpoint(run), "hub", "someone/memory", onnx)
    except flotilla.Error as error:
        print(error)
""").splitlines()
    remedy = f"run: flotilla export {latest} --onnx "
    assert said[0] == f"--onnx unsigned.onnx does not say whose weights it has ({key}), want {weights} of {latest}; {remedy}unsigned.onnx"
    assert said[1].startswith("--onnx no.onnx cannot be read as ONNX (") and said[1].endswith(f"; {remedy}no.onnx")
    assert said[2].startswith(f'--onnx policy.onnx has the weights "{weights}", want ') and len(said) == 3
    assert not hub.exists()
    done = home.run("push", run, "--repo", "someone/memory", "--onnx", tmp_path / "policy.onnx", "--out", hub, "--dry-run")
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in hub.iterdir())
    assert files == sorted(
        ["README.md", "SHA256SUMS", "config.textproto", "environment.textproto", "policy.onnx", "progress.json"]
        + ["state.safetensors", "summary.json", "weights.safetensors"]
    )
    for name in files:
        assert re.search(rf"^  {re.escape(name)}  [\d,]+ bytes$", done.stdout, re.M)
    assert "nothing was uploaded to https://huggingface.co/someone/memory" in done.stdout
    assert subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=hub).returncode == 0
    card = (hub / "README.md").read_text()
    summary = json.loads((run / "summary.json").read_text())
    assert f"{summary['mean_return']:.2f}" in card and "trained for 4,096 environment steps" in card
    assert 'flotilla.load(snapshot_download("someone/memory"))' in card
    # No longer the run's: what is in the folder is enough to act, and to begin another run with.
    ((compared, wrong, apart),) = acts(home, script, (hub, run))
    assert compared == 512 and wrong == 0 and apart < 1e-5
    again = home.train(hub / "config.textproto", "--set=total_env_steps=2048", f"--set=model.init_from={hub}", run_dir="again")
    again.succeeds()
    # Again, over what it wrote, and with it; but not over anything else.
    assert home.run("push", run, "--onnx", hub / "policy.onnx", "--out", hub, "--dry-run").returncode == 0
    assert (hub / "policy.onnx").read_bytes() == (tmp_path / "policy.onnx").read_bytes()
    assert home.run("push", run, "--out", hub, "--dry-run").returncode == 0
    assert "policy.onnx" not in {path.name for path in hub.iterdir()}
    (hub / "notes.txt").write_text("mine")
    refused(home.run("push", run, "--out", hub, "--dry-run"), "holds what push did not write (notes.txt)")


def test_a_card_has_the_return_of_these_weights_alone(home, script):
    script(f"""
import hashlib, json, pathlib, re, shutil
from flotilla import push
from flotilla.checkpoint import Checkpoint

run = pathlib.Path("run")
shutil.copytree({str(home.trained("mlp"))!r}, run, symlinks=True)
summary = json.loads((run / "summary.json").read_text())
latest = (run / "checkpoints" / "latest").resolve()
earlier = run / "checkpoints" / "step_000000000001"
shutil.copytree(latest, earlier)
progress = json.loads((earlier / "progress.json").read_text())
(earlier / "progress.json").write_text(json.dumps(progress | {{"update": progress["update"] - 1, "global_step": 1}}))
sums = [f"{{hashlib.sha256((earlier / name).read_bytes()).hexdigest()}}  {{name}}" for name in ("weights.safetensors", "state.safetensors", "progress.json", "config.textproto")]
(earlier / "SHA256SUMS").write_text("\\n".join(sums))

def told(path, **evaluation):
    (run / "summary.json").write_text(json.dumps(summary | evaluation))
    push.write(Checkpoint(path), "hub", "someone/it")
    card = pathlib.Path("hub/README.md").read_text()
    assert ("| training, " in card) == (path == run)
    return re.findall("value: (.*)", card), re.findall(r"^\\| (evaluation.*) \\|$", card, re.M), "model-index" in card

none, of_run = ([], [], False), (["7.25"], ["evaluation, mean of 10 episodes | 7.25"], True)
evaluation = {{"eval_mean_return": 7.25, "eval_episodes": 10, "eval_update": summary["updates"]}}
assert "eval_mean_return" not in summary and told(run) == none
assert told(run, **evaluation) == of_run and told(earlier, **evaluation) == none
evaluation["eval_update"] -= 1
assert told(run, **evaluation) == none and told(earlier, **evaluation) == of_run
lines = [{{"checkpoint": latest.name, "global_step": 4096, "episodes": 5, "eval/mean_return": 3.5, "weights_sha256": "0" * 64}}]
(run / "evaluations.jsonl").write_text(json.dumps(lines[0]) + "\\n")
assert told(run, **evaluation) == none
lines.append(lines[0] | {{"eval/mean_return": 9.5, "weights_sha256": Checkpoint(latest).weights_sha256}})
(run / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
assert told(run, **evaluation) == (["9.5"], ["evaluation, mean of 5 episodes | 9.50"], True)
""")


def test_a_card_says_how_it_acts_and_trains(home, script):
    runs = {kind: str(home.trained(kind)) for kind in ("mlp", "mask", "nested", "info")}
    script(f"""
import gymnasium, re
from flotilla import push
from flotilla.checkpoint import Checkpoint

def card(kind, library=""):
    checkpoint = Checkpoint({runs!r}[kind])
    if library:
        checkpoint.config.custom.library = library
    return push.card(checkpoint, {{}}, None, "someone/it", False)

plain = "action = policy.act(observation)  # policy.reset() when an episode begins"
told = 'policy.act(observation, mask=info["action_mask"])'
for kind in ("mlp", "mask", "nested"):
    assert plain in card(kind) and (told in card(kind)) == (kind == "nested"), card(kind)
lines = re.search("(?s)```python(.*?)```", card("info"))[1].replace('snapshot_download("someone/it")', repr({runs["info"]!r}))
env = gymnasium.make("Taxi-v4")
exec(lines.replace("from huggingface_hub import snapshot_download", ""))
assert told in lines and "action_mask" in info
assert info["action_mask"][policy.act(observation, mask=info["action_mask"])] == 1

for library in ("", "../mine/algorithm.so"):
    commands = re.findall("^flotilla train config.textproto(.*)$", card("mlp", library), re.M)
    more = " --set custom.library=algorithm.so" if library else ""
    assert commands == [more, more + " --set model.init_from=."]
    assert ("has to be built where it is to run" in card("mlp", library)) == bool(library)
""")


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does to what huggingface_hub asks, and keeps what is committed."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.headers["Authorization"]))
        if self.path == "/api/repos/create":
            answer = {"url": f"http://{self.headers['Host']}/someone/cartpole"}
            self.server.created = json.loads(body)
        elif self.path.endswith("/preupload/main"):
            answer = {"files": [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]}
        elif self.path.endswith("/commit/main"):
            lines = [json.loads(line) for line in body.splitlines()]
            self.server.deleted = [line["value"]["path"] for line in lines if line["key"] == "deletedFile"]
            self.server.committed = {line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"}
            answer = {"commitUrl": f"http://{self.headers['Host']}/someone/cartpole/commit/1", "commitOid": "1" * 40}
        else:
            answer = {"errors": [], "warnings": []}
        self.answer(answer)

    def do_GET(self):
        if "/tree/main" in self.path:
            self.answer([{"type": "file", "path": path, "oid": "0" * 40, "size": 1} for path in self.server.earlier])
        else:
            self.answer({"id": "someone/cartpole", "sha": "0" * 40, "siblings": []})

    def answer(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def test_a_repository_is_made_and_filled(home, tmp_path):
    """By huggingface_hub itself, with a token, on a hub of ours. What an earlier push left there of other weights goes."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        hub.asked, hub.created, hub.committed, hub.deleted = [], None, None, None
        hub.earlier = [".gitattributes", "README.md", "network.pt", "notes.md", "old/policy.onnx", "policy.onnx", "weights.safetensors"]
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        env = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_TOKEN": "hf_ours", "HF_HOME": str(tmp_path / "hf")}
        done = home.run("push", home.trained("mlp"), "--repo", "someone/cartpole", "--private", "--out", tmp_path / "hub", env=env)
        hub.shutdown()
    assert done.returncode == 0, done.stderr
    assert hub.created["name"] == "cartpole" and hub.created["organization"] == "someone"
    assert hub.created.get("private") is True or hub.created["visibility"] == "private"
    assert all(authorization == "Bearer hf_ours" for _, authorization in hub.asked)
    assert hub.committed == {path.name: path.read_bytes() for path in (tmp_path / "hub").iterdir()}
    assert sorted(hub.deleted) == ["network.pt", "policy.onnx"]
    assert done.stdout.splitlines()[-1].endswith("/someone/cartpole/commit/1")


def test_where_the_hub_is_out_of_reach_the_repository_is_there(home):
    run = home.trained("mlp")
    done = home.run("push", run, "--repo", "someone/cartpole", env={"HF_HUB_OFFLINE": "1"})
    refused(done, "could not upload to someone/cartpole", f"{run}/hub is there")
    assert (run / "hub" / "weights.safetensors").exists()
