"""Our side of the comparisons."""
import json
import os
import re

from contender import Contender

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(os.environ.get("FLOTILLA_BIN", os.path.join(REPOSITORY, "build", "bin")))
# Benchmark programs lie beside the build's bin/.
BENCH_BIN = os.path.abspath(os.environ.get("FLOTILLA_BENCH_BIN", os.path.join(BIN, "..", "tests", "bench")))

MOST_OF_A_LINE = 1 << 16


def program(name, folder=BIN):
    path = os.path.join(folder, name)
    if os.access(path, os.X_OK):
        return path, ""
    target = "programs" if folder == BIN else name
    return path, f"not built: cmake --build {os.path.relpath(os.path.dirname(BIN), REPOSITORY)} --target {target}"


def tests_python():
    deps = os.environ.get("FLOTILLA_DEPS", os.path.join(REPOSITORY, ".deps"))
    return os.path.join(deps, "testvenv", "bin", "python")


def metric_lines(folder):
    try:
        with open(os.path.join(folder, "metrics.jsonl")) as f:
            text = f.read()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def newest_line(folder):
    """The last of metric_lines, or None: no more is read, as others are measured meanwhile."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - MOST_OF_A_LINE))
            lines = f.read().split(b"\n")[:-1]  # what is behind the last one is not whole yet
    except FileNotFoundError:
        return None
    return json.loads(lines[-1]) if lines else None


def read_run(output, folder, counts=lambda line: True):
    """The metrics of the peers' meter, from metrics.jsonl: whose clock starts when training does. Of updates alone that
    count."""
    lines = metric_lines(folder)
    updates = [x for x in lines if "charts/SPS" in x and counts(x)]
    if len(updates) < 2:
        return {}
    first, last = updates[0], updates[-1]
    solved = next((x for x in updates if x["charts/episodes"] >= 100 and x["charts/episodic_return"] >= 475), None)
    evaluated = next((x for x in lines if x.get("eval/mean_return", 0) >= 475), None)
    return {
        "steps_per_second": (last["global_step"] - first["global_step"]) / (last["wall_seconds"] - first["wall_seconds"]),
        "update_seconds": (last["wall_seconds"] - first["wall_seconds"]) / (last["update"] - first["update"]),
        "seconds_to_target": solved and solved["wall_seconds"],
        "seconds_to_eval_475": evaluated and evaluated["wall_seconds"],
        "span": span(folder, first, last),
    }


def span(folder, first, last):
    """(began, ended, steps) by time.time(), of two updates: the file was last written at the last one."""
    ended = os.stat(os.path.join(folder, "metrics.jsonl")).st_mtime
    return ended - (last["wall_seconds"] - first["wall_seconds"]), ended, last["global_step"] - first["global_step"]


def trained_for(seconds):
    def over(folder):
        line = newest_line(folder)
        return line is not None and line["wall_seconds"] >= seconds
    return over


def train(name, config, learners, limit_s, read=read_run, flop_per_step=0, **settings):
    """`settings`: a__b=1 stands for --set a.b=1."""
    path, missing = program("flotilla")
    command = [path, "train", config, "--nproc-per-node", str(learners), "--standalone", "--progress", "none",
               "--run-dir", "{run}", "--set", "seed={seed}"]
    for key, value in settings.items():
        command += ["--set", f"{key.replace('__', '.')}={value}"]
    return Contender(name, command, read, cap_s=limit_s + 30, until=trained_for(limit_s), missing=missing,
                     flop_per_step=flop_per_step)


def step(name, case, seconds):
    """One case of flotilla_env_service_bench, whose server is another process."""
    path, missing = program("flotilla_env_service_bench", BENCH_BIN)

    def read(output, folder):
        found = re.search(r"median +(\d+) steps/s.*best +(\d+) steps/s", output)
        return {"steps_per_second": float(found[1]), "best_steps_per_second": float(found[2])} if found else {}

    return Contender(name, [path, str(seconds), case], read, env={"FLOTILLA_BIN": BIN}, cap_s=seconds + 30,
                     missing=missing)
