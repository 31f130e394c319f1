"""Optuna's samplers, by ask and tell.

Optuna keeps what it is told in SWEEP/optuna.log, which its own tools read
(optuna.storages.JournalStorage). The sweep's journal is what counts: a trial that
Optuna was asked for and the journal does not have is used the next time, and a result
that the journal has and Optuna does not is told then.
"""

import importlib.util
import sys

from flotilla_sweep.journal import named
from flotilla_sweep.plans import Flat
from flotilla_sweep.space import unit
from flotilla_sweep.state import Trial

PACKAGES = {"TPE": (), "CMA_ES": ("cmaes",), "GP": ("scipy", "torch"), "QMC": ("scipy",)}
STUDY = "flotilla"


def missing(sweep):
    """What is to be installed, in one line; "" if nothing is."""
    wanted = [name for name in ("optuna", *PACKAGES[sweep["sampler"]]) if importlib.util.find_spec(name) is None]
    if not wanted:
        return ""
    return (
        f"method OPTUNA with sampler {sweep['sampler']} takes {' and '.join(wanted)}, which {sys.executable} does not have; "
        f"{sys.executable} -m pip install {' '.join(wanted)}, or set FLOTILLA_PYTHON to a Python that has it, or use method RANDOM"
    )


def make_sampler(optuna, sweep, trial):
    """Its chance follows from the sweep's seed and the trial, as everywhere."""
    seed = int(unit(sweep["seed"], "optuna", trial) * 2**31)
    samplers = optuna.samplers
    if sweep["sampler"] == "TPE":
        return samplers.TPESampler(seed=seed, constant_liar=sweep["placement"]["parallel"] > 1)
    if sweep["sampler"] == "CMA_ES":
        return samplers.CmaEsSampler(seed=seed)
    if sweep["sampler"] == "GP":
        return samplers.GPSampler(seed=seed, deterministic_objective=False)
    # One sequence for all; what it does not propose (while no trial has a score) is each trial's own.
    one = int(unit(sweep["seed"], "optuna") * 2**31)
    return samplers.QMCSampler(seed=one, scramble=True, independent_sampler=samplers.RandomSampler(seed=seed))


def suggest(trial, p):
    """The same again of a trial that was asked before."""
    if p["kind"] == "choice":
        return trial.suggest_categorical(p["field"], p["values"])
    if p["kind"] == "integer":
        high = p["high"] - (p["high"] - p["low"]) % p["step"]
        return trial.suggest_int(p["field"], p["low"], high, step=p["step"])
    return trial.suggest_float(p["field"], p["low"], p["high"], log=p["kind"] == "log_uniform")


class NoLock:
    """The sweep's lock is enough, and is gone with its process, which Optuna's is not."""

    def acquire(self):
        return True

    def release(self):
        pass


class Proposals(Flat):
    """A plan whose trials Optuna proposes."""

    def __init__(self, sweep, folder):
        super().__init__(sweep)
        import optuna
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna = optuna
        self.path = folder / "optuna.log"
        self.backend = JournalFileBackend

    def study(self, trial):
        """As it is on the disk now. Under the sweep's lock alone."""
        cut_last_line(self.path)
        storage = self.optuna.storages.JournalStorage(self.backend(str(self.path), lock_obj=NoLock()))
        return self.optuna.create_study(
            storage=storage, study_name=STUDY, load_if_exists=True, sampler=make_sampler(self.optuna, self.sweep, trial),
            direction=self.sweep["metric"]["goal"].lower(),
        )  # fmt: skip

    def tell(self, study, state):
        """What has ended since, in the order of the trials: for good, so not what is to be
        tried again."""
        again = {part.trial for part in state.failed_for_now()}
        running = self.optuna.trial.TrialState.RUNNING
        for trial in study.get_trials(deepcopy=False, states=(running,)):
            if trial.number not in state.trials or trial.number in again or not state.ended(trial.number, 0):
                continue
            score = state.score(trial.number, 0)
            if score is None:
                study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial.number, score)

    def settle(self, state):
        """Tells Optuna all that there is."""
        if self.path.exists():
            with named(self.path):
                self.tell(self.study(0), state)

    def next_trial(self, state):
        number = len(state.trials)
        if number >= self.sweep["trials"]:
            return None
        with named(self.path):
            study = self.study(number)
            self.tell(study, state)
            asked = study.get_trials(deepcopy=False)
            if len(asked) > number:  # and its asker was killed
                trial = self.optuna.trial.Trial(study, asked[number]._trial_id)
            else:
                trial = study.ask()
            values = {}
            for p in self.sweep["parameters"]:
                value = suggest(trial, p)
                values[p["field"]] = value if isinstance(value, str) else repr(value)
        return Trial(number, values)


def cut_last_line(path):
    """Optuna's journal has lines as ours does, and one may be cut off."""
    try:
        with open(path, "rb+") as file:
            data = file.read()
            if data and not data.endswith(b"\n"):
                file.truncate(data.rfind(b"\n") + 1)
    except FileNotFoundError:
        pass
