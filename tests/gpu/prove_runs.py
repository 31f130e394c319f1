"""Proves whole runs on a device of this machine: `prove.sh --device cuda` calls it.

usage: prove_runs.py --device cuda|DEVICE [--flotilla PATH] [--kernels FOLDER] [--devices N] [--minutes M] [--atari]
                     [--runs FOLDER] --out REPORT.md

Each section is one thing that no machine without the device can show; each run has its share of the minutes, and one
that does not end in it has failed. Needs Python alone. Exits with 1 if anything fails.
"""
import argparse
import array
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

# What rounding may make of the weights after the updates below; a wrong sum is orders above it.
BOUND = 1e-3
SAME = [("cartpole_ppo", 5, []), ("native_breakout", 3, ["--set=env.num_envs=64", "--set=rollout.length=16"]),
        ("maze_ppo", 3, ["--set=env.num_envs=8", "--set=env.options.maze.episode_steps=24", "--set=rollout.length=32"]),
        ("cartpole_impala", 10, ["--set=impala.deterministic_lag=true"]),
        ("cartpole_dqn", 20, ["--set=optimizer.type=MUON", "--set=dqn.learning_starts=0"]),
        ("pendulum_sac", 20, ["--set=sac.learning_starts=0"])]
FASTER = [("cartpole_ppo", []), ("pointnav_ddppo", ["--set=env.num_envs=32"]), ("native_breakout", [])]
ATARI = [("breakout_ppo", []), ("pong_ppo", [])]
ATARI_SAME = [("breakout_ppo", 3, ["--set=rollout.length=32", "--set=runtime.precision=FP32"])]


# Nothing but training.
ALONE = ["--set=evaluation.every_updates=1000000000", "--set=evaluation.at_start=false"]


class Failed(Exception):
    pass


class Prover:
    def __init__(self, options, folder):
        self.options, self.folder, self.runs = options, folder, 0
        self.lines, self.failures = [], 0
        self.end = time.monotonic() + 60 * options.minutes

    def section(self, title, attempts):
        """`attempts`: pairs of a name and a function that gives what is to be said of it, or raises Failed."""
        self.lines += ["", f"## {title}", ""]
        for name, attempt in attempts:
            began = time.monotonic()
            try:
                said = attempt()
            except Failed as failed:
                self.failures += 1
                said = f"**FAILED**: {failed}"
            self.lines.append(f"- {name}: {said} ({time.monotonic() - began:.0f} s)")
            print(self.lines[-1], file=sys.stderr, flush=True)

    def left(self):
        """Seconds."""
        left = self.end - time.monotonic()
        if left < 5:
            raise Failed(f"the {self.options.minutes} minutes are over")
        return left

    def train(self, config, *words, learners=1, seconds=120, endless=False):
        """The folder of a run that ended by itself, or if it is `endless` was stopped after `seconds`."""
        self.runs += 1
        run = self.folder / f"run{self.runs}"
        left = self.left()
        command = [self.options.flotilla, "train", config, "--nproc-per-node", str(learners), "--standalone", "--progress",
                   "none", "--run-dir", str(run), "--set", "metrics.tensorboard=false", *words]
        training = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = training.communicate(timeout=min(left, seconds))
        except subprocess.TimeoutExpired:
            training.terminate()
            output, _ = training.communicate()
            if not endless:
                raise Failed(f"`{' '.join(command)}` had not ended after {min(left, seconds):.0f} s") from None
        except KeyboardInterrupt:
            training.terminate()
            training.wait()
            raise
        else:
            if training.returncode != 0 or endless:
                raise Failed(f"`{' '.join(command)}` exited with {training.returncode}: " +
                             " / ".join(output.splitlines()[-3:]))
        return run

    def on(self, device):
        return f"--set=runtime.device={device}"

    def kernels(self, program):
        """Every test of a program of tests/learner/cuda, whose kernels a GPU runs."""
        seconds = self.left()
        env = {name: value for name, value in os.environ.items() if name != "GTEST_FILTER"}  # every one of them
        try:
            done = subprocess.run([program], env=env | {"FLOTILLA_KERNELS_ON": "gpu"}, capture_output=True, text=True,
                                  timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"`{program}` had not ended after {seconds:.0f} s") from None
        passed = re.search(r"\[  PASSED  \] (\d+) test", done.stdout)
        if done.returncode != 0 or not passed:
            raise Failed(f"exited with {done.returncode}: " + " / ".join(
                sorted(set(re.findall(r"(?m)^\[  FAILED  \] (\w+/?\w*\.\S+)", done.stdout))) or done.stderr.splitlines()[-3:]))
        return f"{passed[1]} tests pass"

    def same(self, config, updates, words):
        runs = [self.train(config, f"--set=total_updates={updates}", *ALONE, self.on(device), *words)
                for device in ("cpu", self.options.device)]
        apart = largest_difference(*(run / "checkpoints" / "latest" / "weights.safetensors" for run in runs))
        if not apart <= BOUND:
            raise Failed(f"weights {apart:.1e} apart after {updates} updates, want at most {BOUND}")
        return f"weights at most {apart:.1e} apart after {updates} updates{graphs(runs[1])}"

    def ranks(self, learners, *words):
        run = self.train("cartpole_ppo", "--set=total_updates=20", *ALONE, self.on(self.options.device), *words,
                         learners=learners)
        sums = json.loads((run / "summary.json").read_text())["parameters_sha256"]
        if len(sums) != learners or len(set(sums)) != 1:
            raise Failed(f"parameters of {learners} ranks: {sums}")
        return f"parameters equal on {learners} rank{'s' * (learners > 1)}{graphs(run)}"

    def speed(self, config, words):
        rates = [self.measured(config, device, words) for device in ("cpu", self.options.device)]
        return f"{rates[1]:,.0f} steps/s, on the CPU {rates[0]:,.0f}"

    def measured(self, config, device, words):
        run = self.train(config, self.on(device), "--steps=1000000000000", *ALONE, *words,
                         seconds=self.options.speed_seconds, endless=True)
        lines = [line for line in metrics(run) if "charts/SPS" in line]
        half = lines[len(lines) // 2:]
        if len(half) < 2:
            raise Failed(f"{config} on {device}: {len(lines)} updates in {self.options.speed_seconds} s")
        return (half[-1]["global_step"] - half[0]["global_step"]) / (half[-1]["wall_seconds"] - half[0]["wall_seconds"])

    def solved(self, config, score, words=()):
        run = self.train(config, self.on(self.options.device), f"--set=evaluation.stop_return={score}",
                         "--steps=20000000", *words, seconds=600)
        last = [line for line in metrics(run) if "eval/mean_return" in line][-1]
        if last["eval/mean_return"] < score:
            raise Failed(f"{last['eval/mean_return']:.1f} after {last['global_step']:,} steps, want {score}")
        return f"{last['eval/mean_return']:.1f} after {last['global_step']:,} steps, {last['wall_seconds']:.1f} s"


def metrics(run):
    with open(run / "metrics.jsonl") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def graphs(run):
    """What a learner's log says of gradient steps that could not be recorded."""
    for log in sorted(run.glob("logs/rank_*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if "not recorded as graphs" in line:
                return f"; **{line.split('] ', 1)[-1]}**"
    return ""


def tensors(path):
    """float32 tensors of a safetensors file, by name."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = {}
    for name, spec in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and spec["dtype"] == "F32":
            begin, end = spec["data_offsets"]
            found[name] = array.array("f", data[8 + size + begin:8 + size + end])
    return found


def largest_difference(ours, theirs):
    ours, theirs = tensors(ours), tensors(theirs)
    if not ours or {name: len(t) for name, t in ours.items()} != {name: len(t) for name, t in theirs.items()}:
        raise Failed(f"not the same weights: {sorted(ours)} and {sorted(theirs)}")
    apart = [abs(a - b) for name in ours for a, b in zip(ours[name], theirs[name])]
    return float("nan") if any(x != x for x in apart) else max(apart)


def parse():
    parser = argparse.ArgumentParser(prog="prove_runs.py")
    parser.add_argument("--device", required=True)
    parser.add_argument("--flotilla", default="flotilla", help="the launcher (that on PATH)")
    parser.add_argument("--devices", type=int, default=1, help="GPUs of this machine (1)")
    parser.add_argument("--minutes", type=float, default=25, help="for all of it (25)")
    parser.add_argument("--speed-seconds", type=float, default=45, help="for each measure of speed (45)")
    parser.add_argument("--kernels", type=pathlib.Path, help="the folder of cuda_*_test, built with FLOTILLA_CUDA=ON (none)")
    names = ("kernels", "same", "nccl", "learning", "speed")
    parser.add_argument("--only", nargs="+", choices=names, help="these sections (all; of kernels, with --kernels alone)")
    parser.add_argument("--atari", action="store_true", help="the emulator is installed: its games too")
    parser.add_argument("--runs", type=pathlib.Path, help="an empty folder where the runs stay (they are removed)")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.programs = sorted(options.kernels.glob("cuda_*_test")) if options.kernels else []
    options.only = options.only or [name for name in names if name != "kernels" or options.kernels]
    if "kernels" in options.only and not options.programs:
        parser.error(f"--kernels is {options.kernels}, want a folder with cuda_*_test")
    return options


def main():
    options = parse()
    worlds = [1] + [options.devices] * (options.devices > 1)
    nccl = ["--set=distributed.backend=nccl", "--set=distributed.force_group=true"]
    with tempfile.TemporaryDirectory(prefix="flotilla-prove-", ignore_cleanup_errors=True) as folder:
        prover = Prover(options, options.runs or pathlib.Path(folder))
        sections = {
            "kernels": ("Kernels beside Torch and the formulas", [
                (f"`{program.name}`", lambda program=program: prover.kernels(program)) for program in options.programs]),
            "same": ("The same as on the CPU", [
                (f"`{config}`", lambda case=(config, updates, words): prover.same(*case))
                for config, updates, words in SAME + ATARI_SAME * options.atari]),
            "nccl": ("NCCL", [(f"{n} rank{'s' * (n > 1)}", lambda n=n: prover.ranks(n, *nccl)) for n in worlds] +
                     [(f"{n} rank{'s' * (n > 1)}, bfloat16, in buckets", lambda n=n: prover.ranks(
                         n, *nccl, "--set=distributed.gradients=BUCKETS",
                         "--set=distributed.gradient_type=GRADIENT_BFLOAT16")) for n in worlds]),
            "learning": ("Learning", [("`cartpole_fast`", lambda: prover.solved("cartpole_fast", 475))]),
            "speed": ("Speed, one learner", [(f"`{' '.join([config, *words])}`", lambda case=(config, words): prover.speed(*case))
                                             for config, words in FASTER + ATARI * options.atari]),
        }
        for name in options.only:
            prover.section(*sections[name])
    head = [f"# Whole runs on the device \"{options.device}\"", "", "**Something failed.**" if prover.failures else
            "All passed."]
    options.out.write_text("\n".join(head + prover.lines) + "\n")
    print(f"prove_runs.py: {options.out}")
    sys.exit(1 if prover.failures else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
