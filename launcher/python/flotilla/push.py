"""`flotilla push`: a checkpoint as a Hugging Face model repository."""

import hashlib
import os
import pathlib
import re
import shlex
import shutil

from flotilla.checkpoint import CONFIG, ENVIRONMENT, PROGRESS, STATE, SUMS, WEIGHTS, Checkpoint, format_safetensors
from flotilla.errors import Error
from flotilla.run import read_json, read_rows
from flotilla.spaces import is_named, mask_paths

CARD = "README.md"
# In an ONNX file's metadata, from `flotilla export`.
ONNX_WEIGHTS = "flotilla.weights_sha256"
_LIBRARY = "library_name: flotilla"
# What push writes, and so may replace where there is a card of its own.
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
        raise Error(f"--onnx {onnx} is no file; `{_exporting(checkpoint, onnx)}` writes it")
    exported = _read_onnx(onnx, checkpoint) if onnx else None
    network = checkpoint.kept_file("network.pt") if config.model.torchscript else None
    if config.model.torchscript and network is None:
        raise Error(f"there is no network.pt with {checkpoint.folder}, the run's copy of its TorchScript network")
    summary = _summary(checkpoint)
    told = card(checkpoint, summary, _evaluation(checkpoint), repo, bool(onnx))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A checkpoint's files have the same names, and a README.md may be anybody's.
        ours = (folder / CARD).is_file() and _LIBRARY in (folder / CARD).read_text(errors="replace").splitlines()
        replaced = [p for p in folder.iterdir() if (p.name in FILES if ours else onnx and p.samefile(onnx))]
        others = sorted(p.name for p in folder.iterdir() if p not in replaced)
        if others:
            raise Error(f"{folder} holds what push did not write ({', '.join(others[:3])}); name an empty folder with --out")
        (folder / CARD).write_text(told)  # first: what is interrupted may be begun again
        for path in folder.iterdir():
            if path.name != CARD:
                path.unlink()
        # Training goes on from more; a policy needs no more than this.
        state = {name: array for name, array in checkpoint.state.items() if name.startswith("normalizer.")}
        (folder / STATE).write_bytes(format_safetensors(state))
        for name in (WEIGHTS, CONFIG, PROGRESS):
            shutil.copyfile(checkpoint.folder / name, folder / name)
        if config.model.init_from:  # a path of this machine, which says nothing elsewhere
            shared = type(config).FromString(config.SerializeToString())
            shared.model.ClearField("init_from")
            (folder / CONFIG).write_text(text_format.MessageToString(shared, as_utf8=True), encoding="utf-8")
        (folder / SUMS).write_text("".join(f"{_sha256(folder / name)}  {name}\n" for name in (WEIGHTS, STATE, PROGRESS, CONFIG)))
        (folder / ENVIRONMENT).write_text(text_format.MessageToString(checkpoint.spec))
        if summary:
            shutil.copyfile(checkpoint.folder.parent.parent / "summary.json", folder / "summary.json")
        if network:
            shutil.copyfile(network, folder / "network.pt")
        if exported:
            (folder / "policy.onnx").write_bytes(exported)
    except OSError as error:
        raise Error(f"cannot write {folder}: {error.strerror}") from None
    return sorted(folder.iterdir())


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _exporting(checkpoint, onnx):
    return shlex.join(["flotilla", "export", str(checkpoint.folder), "--onnx", str(onnx)])


def _read_onnx(path, checkpoint):
    """The file's bytes. Refuses one of other weights: what is published beside these is said to be the same policy."""
    try:
        import onnx
    except ImportError as error:
        raise Error(f"--onnx needs onnx, to see whose weights {path} has ({error}); run: python -m pip install onnx") from None
    from google.protobuf.message import DecodeError

    try:
        data = pathlib.Path(path).read_bytes()
        model = onnx.load_from_string(data)
    except (DecodeError, OSError) as error:
        raise Error(f"--onnx {path} cannot be read as ONNX ({error}); run: {_exporting(checkpoint, path)}") from None
    found = {entry.key: entry.value for entry in model.metadata_props}.get(ONNX_WEIGHTS)
    weights = checkpoint.weights_sha256
    if found != weights:
        known = f'has the weights "{found}"' if found else f"does not say whose weights it has ({ONNX_WEIGHTS})"
        raise Error(f"--onnx {path} {known}, want {weights} of {checkpoint.folder}; run: {_exporting(checkpoint, path)}")
    return data


def _run_summary(checkpoint):
    folder = checkpoint.run_folder
    return read_json(folder / "summary.json") if folder and (folder / "summary.json").is_file() else {}


def _summary(checkpoint):
    """The run's, if this is the checkpoint that it tells of."""
    summary = _run_summary(checkpoint)
    return summary if summary.get("global_steps") == checkpoint.step else {}


def _evaluation(checkpoint):
    """(episodes, mean return) of these very weights; None, without one. The run's own last evaluation may be of an earlier
    update than its last checkpoint: a run that is solved goes on for a few while its ranks agree to stop."""
    summary, folder = _run_summary(checkpoint), checkpoint.run_folder
    if summary.get("eval_mean_return") is not None and summary.get("eval_update", -1) == checkpoint.progress.get("update"):
        return summary.get("eval_episodes", "?"), summary["eval_mean_return"]
    found = None
    if folder:  # those of `flotilla evaluate --follow`, launcher/follow.h
        for row in read_rows(folder / "evaluations.jsonl"):
            if row.get("weights_sha256") == checkpoint.weights_sha256 and isinstance(row.get("eval/mean_return"), (int, float)):
                found = row.get("episodes", "?"), row["eval/mean_return"]
    return found


def card(checkpoint, summary, evaluation, repo, onnx):
    config, name = checkpoint.config, repo.split("/")[-1]
    env, algorithm = checkpoint.spec.env_id or config.env.id, config.WhichOneof("algorithm") or "ppo"
    scores = {}
    if evaluation:
        scores[f"evaluation, mean of {evaluation[0]} episodes"] = evaluation[1]
    if summary.get("mean_return") is not None:
        scores["training, mean of the newest episodes"] = summary["mean_return"]
    front = ["---", _LIBRARY, "tags:", "- reinforcement-learning", "- flotilla", f"- {algorithm}", f"- {_yaml(env)}"]
    if evaluation:  # the returns of training are other policies', too
        front += [
            "model-index:", f"- name: {_yaml(name)}", "  results:", "  - task:", "      type: reinforcement-learning",
            "    dataset:", f"      name: {_yaml(env)}", f"      type: {_yaml(env)}",
            "    metrics:", "    - type: mean_reward", f"      value: {evaluation[1]}",
        ]  # fmt: skip
    lines = [*front, "---", "", f"# {algorithm.upper()} on {env}", ""]
    lines.append(f"A policy that Flotilla trained for {checkpoint.step:,} environment steps.")
    if scores:
        lines += ["", "| return | |", "| --- | --- |", *(f"| {of} | {value:.2f} |" for of, value in scores.items())]
    lines += [
        "", "## Use", "", "```python", "import flotilla", "from huggingface_hub import snapshot_download", "",
        f'policy = flotilla.load(snapshot_download("{repo}"))', *_acting(checkpoint.spec),
    ]  # fmt: skip
    if onnx:
        lines += ["`policy.onnx` is the same for ONNX runtimes, which need no Flotilla: scaling and masks are inside.", ""]
    # What the run was given lay elsewhere.
    files = " --set model.torchscript=network.pt" if config.model.torchscript else ""
    files += " --set custom.library=algorithm.so" if config.custom.library else ""
    lines += [
        "## Train", "", "`config.textproto` is the whole configuration; the same again, or on from these weights:", "", "```",
        f"flotilla train config.textproto{files}", f"flotilla train config.textproto{files} --set model.init_from=.", "```", "",
    ]  # fmt: skip
    if config.model.init_from:
        lines += ["The run began with what another one had learned (`model.init_from`), which is not here.", ""]
    if config.custom.library:
        lines += ["`algorithm.so` is the algorithm, a C++ shared library that has to be built where it is to run: it is not here.", ""]
    return "\n".join(lines)


def _acting(spec):
    """Lines of the card, with the mask where one is to be given."""
    begins, told = "  # policy.reset() when an episode begins", 'policy.act(observation, mask=info["action_mask"])'
    masks = [path for path in mask_paths(spec) if path]
    if masks and is_named(spec):
        step = "observation, reward, terminated, truncated, info = env.step(action)"
        alike = "An observation that has the `action_mask` itself needs no `mask`."
        return ["observation, info = env.reset()", f"action = {told}{begins}", step, "```", "", alike, ""]
    lines = [f"action = policy.act(observation){begins}", "```", ""]
    if any(path.split("/")[0] == "action_mask" for path in masks):
        lines += [f"Where the environment says in `info` what is allowed: `{told}`.", ""]
    return lines


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
        # Of an earlier push, what this one has not: it is of other weights.
        gone = [name for name in FILES if not (pathlib.Path(folder) / name).exists()]
        return api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Push from Flotilla", delete_patterns=gone)
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
    if checkpoint.run_folder:
        return checkpoint.run_folder / "hub"
    raise Error(f"{path} lies in no run's folder; say with --out where the repository is to be written")
