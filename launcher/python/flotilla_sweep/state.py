"""What a sweep has come to, from the events of its journal."""

import dataclasses
import math


@dataclasses.dataclass
class Trial:
    number: int
    values: dict  # {field: text}
    parent: int | None = None  # PBT: whose checkpoint it began with
    round: int = 0  # that it began in


@dataclasses.dataclass(frozen=True, order=True)
class Part:
    """A run of a trial up to the end of one round: what is claimed, begun and ended."""

    round: int
    trial: int
    seed: int  # from 0; which of the trial's runs


@dataclasses.dataclass
class Result:
    status: str  # of the run's summary, "failed" or "refused"
    score: float | None = None
    steps: int = 0
    seconds: float = 0.0
    error: str = ""
    verdict: bool = False  # of "failed": on its values, not on where it ran


class State:
    def __init__(self, sweep):
        self.sweep = sweep  # as it is asked for; the journal may know it with fewer trials
        self.trials = {}  # by number
        self.results = {}  # by part
        self.rounds = {}  # by trial: those that any of its parts has ended or begun
        self.begun = {}  # the newest begin of parts that have not ended, by part
        self.again = set()  # parts that failed and were taken back, to run once more
        self.begun_as = None  # the sweep that the journal was begun with

    def take(self, event):
        kind = event["event"]
        if kind == "sweep":
            self.begun_as = event["sweep"]
        elif kind == "trial":
            self.trials.setdefault(event["trial"], Trial(event["trial"], event["values"], event.get("parent"), event.get("round", 0)))
        elif kind in ("begin", "end"):
            part = Part(event["round"], event["trial"], event["seed"])
            self.rounds.setdefault(part.trial, set()).add(part.round)
            if event.get("again"):
                self.results.pop(part, None)
                self.again.add(part)
            if kind == "begin" and part not in self.results:
                self.begun[part] = event
            elif kind == "end" and part not in self.results:
                self.begun.pop(part, None)
                fields = {field.name for field in dataclasses.fields(Result)}
                self.results[part] = Result(**{name: value for name, value in event.items() if name in fields})

    def failed_for_now(self):
        """Parts that failed where they ran, and that nothing was built upon since."""
        newest = max((round for rounds in self.rounds.values() for round in rounds), default=0)
        newest = max(newest, *(trial.round for trial in self.trials.values()), 0)
        return [part for part, result in sorted(self.results.items()) if result.status == "failed" and not result.verdict and part.round == newest]

    # ---- Scores

    def scored(self):
        return any(result.score is not None for result in self.results.values())

    @property
    def seeds(self):
        return self.sweep["seeds"]

    def parts(self, trial, round):
        return [Part(round, trial, seed) for seed in range(self.seeds)]

    def ended(self, trial, round):
        return all(part in self.results for part in self.parts(trial, round))

    def score(self, trial, round):
        """The mean over its seeds; None if one of them has none."""
        scores = [self.results[part].score if part in self.results else None for part in self.parts(trial, round)]
        return None if None in scores else math.fsum(scores) / len(scores)

    def rank(self, trial, round):
        """What sorts the best first, and what has no score last."""
        score = self.score(trial, round)
        if score is None:
            return (1, 0.0, trial)
        return (0, -score if self.sweep["metric"]["goal"] == "MAXIMIZE" else score, trial)

    def ended_rounds(self, trial):
        return [round for round in sorted(self.rounds.get(trial, ())) if self.ended(trial, round)]

    def last_round(self, trial):
        """The newest that it has ended, with a score if it has any; None if none."""
        rounds = self.ended_rounds(trial)
        scored = [round for round in rounds if self.score(trial, round) is not None]
        return (scored or rounds or [None])[-1]

    def ranked(self):
        """Trial numbers: those that came furthest first, the best of them first."""

        def key(trial):
            last = self.last_round(trial)
            if last is None:
                return (2, 0, (1, 0.0, trial))
            rank = self.rank(trial, last)
            return (rank[0], -last, rank)

        return sorted(self.trials, key=key)

    def best(self):
        """Of those that came furthest; None if none has a score."""
        for trial in self.ranked()[:1]:
            last = self.last_round(trial)
            if last is not None and self.score(trial, last) is not None:
                return trial
        return None
