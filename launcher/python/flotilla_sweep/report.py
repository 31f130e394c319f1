"""What a sweep says of itself: a table, an object, a picture, the best configuration."""

import json

from flotilla_sweep.front import front_svg
from flotilla_sweep.journal import write_whole
from flotilla_sweep.state import Part
from flotilla_sweep.trial_run import run_name

MOST_WIDTH = 40  # of a cell


def number(value):
    return "" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def status_of(state, trial):
    """Of its newest round, in one word or two."""
    if trial not in state.rounds:
        return "waits"
    parts = state.parts(trial, max(state.rounds[trial]))
    words = sorted({state.results[part].status if part in state.results else "unfinished" for part in parts})
    return "/".join(words)


def row_of(state, sweep, trial):
    """All there is of a trial, for people and for scripts."""
    last = state.last_round(trial)
    runs = []
    for part in state.parts(trial, last or 0):
        result = state.results.get(part)
        run = {"run": f"trials/{run_name(sweep, part)}", "seed": sweep["base_seed"] + part.seed}
        if result is not None:
            run |= {"status": result.status, "score": result.score, "steps": result.steps, "seconds": round(result.seconds, 3)}
            if result.error:
                run["error"] = result.error
        runs.append(run)
    rounds = [{"round": round, "score": state.score(trial, round)} for round in state.ended_rounds(trial)]
    return {
        "trial": trial, "score": state.score(trial, last) if last is not None else None, "status": status_of(state, trial),
        "round": last, "values": state.trials[trial].values, "parent": state.trials[trial].parent,
        "steps": max((run.get("steps", 0) for run in runs), default=0), "seconds": max((run.get("seconds", 0.0) for run in runs), default=0.0),
        "rounds": rounds, "runs": runs,
    }  # fmt: skip


def table(state, sweep, plan):
    fields = [p["field"] for p in sweep["parameters"]]
    many = len(plan.budgets) > 1
    parents = any(trial.parent is not None for trial in state.trials.values())
    head = ["trial", sweep["metric"]["name"], *(["round"] if many else []), *(["from"] if parents else []), *fields, "steps", "time", "status"]
    rows = [head]
    best = state.best()
    for trial in state.ranked():
        row = row_of(state, sweep, trial)
        rows.append([
            f"{trial}{' *' if trial == best else ''}", number(row["score"]),
            *(["" if row["round"] is None else f"{row['round'] + 1}/{len(plan.budgets)}"] if many else []),
            *(["" if row["parent"] is None else str(row["parent"])] if parents else []),
            *(row["values"].get(field, "") for field in fields), f"{row['steps']:,}", f"{row['seconds']:.1f} s", row["status"],
        ])  # fmt: skip
    rows = [[cell if len(cell) <= MOST_WIDTH else cell[: MOST_WIDTH - 3] + "..." for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "".join("  ".join(cell.ljust(width) if i in (0, len(head) - 1) else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))).rstrip() + "\n" for row in rows)


def as_json(state, sweep, folder, finished):
    best = state.best()
    return json.dumps({
        "sweep": str(folder), "status": "done" if finished else "unfinished", "metric": sweep["metric"]["name"], "goal": sweep["metric"]["goal"].lower(),
        "best": best, "best_config": None if best is None else str(folder / "best.textproto"), "front": str(folder / "front.svg"),
        "trials": [row_of(state, sweep, trial) for trial in state.ranked()],
    }, indent=2) + "\n"  # fmt: skip


def write_best(state, sweep, folder):
    """best.textproto, which `flotilla train` takes; under the sweep's lock."""
    best = state.best()
    if best is None:
        return
    run = folder / "trials" / run_name(sweep, Part(0, best, 0))
    try:
        config = (run / "config.textproto").read_text()
    except OSError:
        return  # somebody has removed it
    values = "".join(f"\n#   {field}={value}" for field, value in state.trials[best].values.items())
    score = state.score(best, state.last_round(best))
    about = f"# Trial {best} of the sweep {folder}: {sweep['metric']['name']} {score!r} with{values}\n"
    write_whole(folder / "best.textproto", about + config)


def write_front(state, sweep, folder):
    points = []
    for trial in sorted(state.trials):
        row = row_of(state, sweep, trial)
        if row["score"] is not None:
            label = ", ".join(f"{field}={value}" for field, value in row["values"].items())
            points.append({"trial": trial, "score": row["score"], "steps": row["steps"], "seconds": row["seconds"], "label": label})
    if points:
        write_whole(folder / "front.svg", front_svg(points, sweep["metric"], state.best(), f"{folder.name}: {len(points)} of {len(state.trials)} trials"))
