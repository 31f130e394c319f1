#!/usr/bin/env python3
"""Learning curves as a Markdown table: each configuration, seed and number of learners once.

  tests/bench/learning.py cartpole_ppo:1,2,4 maze_ppo:1 'maze_ppo:1 model.recurrent=NONE' [--seeds 3]

A run is CONFIG:LEARNERS[,LEARNERS...] and any settings (a.b=value) after it. Means are over seeds, with the
standard deviation. Training numbers are of the last 100 episodes; a curve has them at tenths of the run's steps.
With --keep FOLDER runs stay there, and the same command goes on: what ended is read, what was interrupted resumed.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLOTILLA = os.path.join(os.environ.get("FLOTILLA_BIN", os.path.join(ROOT, "build", "bin")), "flotilla")


def ended(folder):
    """The summary of a run that was not interrupted, or None."""
    try:
        with open(os.path.join(folder, "summary.json")) as f:
            summary = json.load(f)
    except FileNotFoundError:
        return None
    return None if summary["status"] == "stopped" else summary


def train(config, learners, seed, settings, folder):
    command = [FLOTILLA, "train", config, "--standalone", "--progress=none", "--run-dir", folder, "--nproc-per-node",
               str(learners), "--set", f"seed={seed}"]
    for setting in settings:
        command += ["--set", setting]
    if os.path.exists(os.path.join(folder, "checkpoints", "latest")):
        command.append("--resume")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run(command, capture_output=True, text=True)
    summary = ended(folder)
    if done.returncode != 0 or summary is None:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return summary


def run(config, learners, seed, settings, metrics, folder):
    summary = ended(folder) or train(config, learners, seed, settings, folder)
    assert len(set(summary["parameters_sha256"])) == 1, "ranks differ"
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    summary["curves"] = {metric: curve([(line["global_step"], line[metric]) for line in lines if metric in line])
                         for metric in metrics}
    return summary


def curve(points):
    """The metric at tenths of the steps: the last value so far, None before the first."""
    return [next((v for s, v in reversed(points) if s <= points[-1][0] * i / 10), None)
            for i in range(1, 11)] if points else [None] * 10


def spread(values):
    values = [v for v in values if v is not None]
    if not values:
        return "-"
    deviation = statistics.stdev(values) if len(values) > 1 else 0
    digits = 1 if max(map(abs, values)) >= 10 else 2
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="CONFIG:LEARNERS [SETTING...]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", metavar="FOLDER", help="where runs stay; without it they are removed")
    parser.add_argument("--metric", action="append", help="whose curve; may be repeated (charts/episodic_return)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the run that it waits for
    metrics = options.metric or ["charts/episodic_return"]
    print("| configuration | learners | status | steps | seconds | training return | evaluation |"
          + "".join(f" {m}: end; curve |" for m in metrics)
          + "\n| --- | --: | --- | --: | --: | --: | --: |" + " --- |" * len(metrics), flush=True)
    for text in options.runs:
        name, *settings = text.split()
        config, _, worlds = name.partition(":")
        for learners in (worlds or "1").split(","):
            results = []
            for seed in range(1, options.seeds + 1):
                with tempfile.TemporaryDirectory() as temporary:
                    folder = "-".join([config, f"x{learners}", f"seed{seed}", *settings]).replace("/", "_")
                    results.append(run(config, learners, seed, settings, metrics,
                                       os.path.join(options.keep or temporary, folder)))
                print(f"{text} x{learners}, seed {seed}: {results[-1]['status']}, "
                      f"return {results[-1]['mean_return']:.4g}", file=sys.stderr, flush=True)
            statuses = [r["status"] for r in results]
            cells = [" ".join([config, *settings]), learners,
                     ", ".join(f"{statuses.count(s)} {s}" for s in sorted(set(statuses))),
                     f"{statistics.mean(r['global_steps'] for r in results):,.0f}",
                     spread([r["wall_seconds"] for r in results]), spread([r["mean_return"] for r in results]),
                     spread([r.get("eval_mean_return") for r in results])]
            for metric in metrics:
                curves = [r["curves"][metric] for r in results]
                means = ["-" if None in at else f"{statistics.mean(at):.3g}" for at in zip(*curves)]
                cells.append(f"{spread([c[-1] for c in curves])}; {' '.join(means)}")
            print("| " + " | ".join(cells) + " |", flush=True)


main()
