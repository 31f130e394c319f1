"""`flotilla push`: a checkpoint as a Hugging Face model repository."""

import hashlib
import os
import pathlib
import re
import shutil

from flotilla.checkpoint import CONFIG, ENVIRONMENT, PROGRESS, STATE, SUMS, WEIGHTS, Checkpoint, format_safetensors
from flotilla.errors import Error
from flotilla.run import read_json

CARD = "README.md"
# What push writes, and so may replace.
FILES = (CARD, WEIGHTS, STATE, CONFIG, PROGRESS, SUMS, ENVIRONMENT, "summary.json", "network.pt", "policy.onnx")
REPO = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


def write(checkpoint, folder, repo, onnx=""):
    """The repository in `folder`. Returns its files, sorted."""
    from google.protobuf import text_format

    config = checkpoint.config
    if config.model.plugin:
        raise Error(f'model.plugin is "{config.model.plugin}": a network in a C++ shared library is of no use elsewhere; bring it as TorchScript')
    folder = pathlib.Path(folder)
    if (folder / SUMS).exists() and folder.resolve() == checkpoint.folder.resolve():
        raise Error(f"--out {folder} is the checkpoint itself; name another folder")
    if onnx and not pathlib.Path(onnx).is_file():
        raise Error(f"--onnx {onnx} is no file; `flotilla export {checkpoint.folder} --onnx {onnx}` writes it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(p.name for p in folder.iterdir() if p.name not in FILES)
        if others:
            raise Error(f"{folder} holds what push did not write ({', '.join(others[:3])}); name an empty folder with --out")
        for path in folder.iterdir():
            path.unlink()
        # Training goes on from more; a policy needs no more than this.
        state = {name: array for name, array in checkpoint.state.items() if name.startswith("normalizer.")}
        (folder / STATE).write_bytes(format_safetensors(state))
        for name in (WEIGHTS, CONFIG, PROGRESS):
            shutil.copyfile(checkpoint.folder / name, folder / name)
        (folder / SUMS).write_text("".join(f"{_sha256(folder / name)}  {name}\n" for name in (WEIGHTS, STATE, PROGRESS, CONFIG)))
        (folder / ENVIRONMENT).write_text(text_format.MessageToString(checkpoint.spec))
        summary = _summary(checkpoint)
        if summary:
            shutil.copyfile(checkpoint.folder.parent.parent / "summary.json", folder / "summary.json")
        if config.model.torchscript:
            network = checkpoint.kept_file("network.pt")
            if network is None:
                raise Error(f"there is no network.pt with {checkpoint.folder}, the TorchScript network that the run keeps a copy of")
            shutil.copyfile(network, folder / "network.pt")
        if onnx:
            shutil.copyfile(onnx, folder / "policy.onnx")
        (folder / CARD).write_text(card(checkpoint, summary, repo, bool(onnx)))
    except OSError as error:
        raise Error(f"cannot write {folder}: {error.strerror}") from None
    return sorted(folder.iterdir())


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _summary(checkpoint):
    """The run's, if this is the checkpoint that it tells of."""
    path = checkpoint.folder.parent.parent / "summary.json"
    if checkpoint.folder.parent.name != "checkpoints" or not path.is_file():
        return {}
    summary = read_json(path)
    return summary if summary.get("global_steps") == checkpoint.step else {}


def card(checkpoint, summary, repo, onnx):
    config, name = checkpoint.config, repo.split("/")[-1]
    env, algorithm = checkpoint.spec.env_id or config.env.id, config.WhichOneof("algorithm") or "ppo"
    scores = {}
    if "eval_mean_return" in summary:
        scores[f"evaluation, mean of {summary.get('eval_episodes', '?')} episodes"] = summary["eval_mean_return"]
    if "mean_return" in summary:
        scores["training, mean of the newest episodes"] = summary["mean_return"]
    front = ["---", "library_name: flotilla", "tags:", "- reinforcement-learning", "- flotilla", f"- {algorithm}", f"- {_yaml(env)}"]
    if scores:
        front += [
            "model-index:", f"- name: {_yaml(name)}", "  results:", "  - task:", "      type: reinforcement-learning",
            "    dataset:", f"      name: {_yaml(env)}", f"      type: {_yaml(env)}",
            "    metrics:", "    - type: mean_reward", f"      value: {next(iter(scores.values()))}",
        ]  # fmt: skip
    lines = [*front, "---", "", f"# {algorithm.upper()} on {env}", ""]
    lines.append(f"A policy that Flotilla trained for {checkpoint.step:,} environment steps.")
    if scores:
        lines += ["", "| return | |", "| --- | --- |", *(f"| {of} | {value:.2f} |" for of, value in scores.items())]
    lines += [
        "", "## Use", "", "```python", "import flotilla", "from huggingface_hub import snapshot_download", "",
        f'policy = flotilla.load(snapshot_download("{repo}"))', "action = policy.act(observation)  # policy.reset() when an episode begins", "```", "",
    ]  # fmt: skip
    if onnx:
        lines += ["`policy.onnx` is the same for ONNX runtimes, which need no Flotilla: scaling and masks are inside.", ""]
    lines += [
        "## Train", "", "`config.textproto` is the whole configuration; the same again, or on from these weights:", "", "```",
        "flotilla train config.textproto", "flotilla train config.textproto --set model.init_from=.", "```", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _yaml(text):
    return '"' + re.sub(r'["\\\n]', "_", text) + '"'


def upload(folder, repo, private):
    try:
        import huggingface_hub
    except ImportError as error:
        raise Error(f"uploading needs huggingface_hub ({error}); run: python -m pip install huggingface_hub, or give --dry-run") from None
    try:
        api = huggingface_hub.HfApi()
        api.create_repo(repo, private=private, exist_ok=True)
        return api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Push from Flotilla")
    except Exception as error:  # the library's, of the network, and of HTTP
        gist = str(error).strip().splitlines()
        raise Error(f"could not upload to {repo}: {gist[0] if gist else repr(error)}; {folder} is there, and `hf auth login` makes a token known") from None


def main(options):
    if not options.repo and not options.dry_run:
        raise Error("say where to: --repo USER/NAME, or --dry-run to see what would go there")
    repo = options.repo or "USER/NAME"
    if not REPO.fullmatch(repo):
        raise Error(f'--repo is "{repo}", want USER/NAME of letters, digits, ".", "_" and "-"')
    checkpoint = Checkpoint(options.run)
    folder = options.out or _default_folder(options.run, checkpoint)
    files = write(checkpoint, folder, repo, options.onnx)
    print(f"{folder}{os.sep}")
    for path in files:
        print(f"  {path.name}  {path.stat().st_size:,} bytes")
    if options.dry_run:
        print(f"--dry-run: nothing was uploaded to https://huggingface.co/{repo}")
        return
    print(upload(folder, repo, options.private))


def _default_folder(path, checkpoint):
    if (pathlib.Path(path) / "checkpoints").is_dir():
        return pathlib.Path(path) / "hub"
    if checkpoint.folder.parent.name == "checkpoints":
        return checkpoint.folder.parent.parent / "hub"
    raise Error(f"{path} lies in no run's folder; say with --out where the repository is to be written")
