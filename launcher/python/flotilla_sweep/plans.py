"""What a sweep does next. Everything here follows from the sweep, its seed and the
scores that there are: no clock, no chance, no order of ends."""

from flotilla_sweep.space import grid_point, perturb, sample, unit
from flotilla_sweep.state import Trial


def draw_trial(sweep, number):
    values = grid_point(sweep, number) if sweep["method"] == "GRID" else sample(sweep, number)
    return Trial(number, values)


class Flat:
    """Every trial once, for the whole budget."""

    def __init__(self, sweep):
        self.sweep = sweep
        self.budgets = [sweep["budget"]["value"]]

    def next_trial(self, state):
        """The trial to add to the journal now; None if none is due."""
        number = len(state.trials)
        return draw_trial(self.sweep, number) if number < self.sweep["trials"] else None

    def due(self, state):
        """[(trial, round)] that are to run now, or run; those that have ended are not
        among them."""
        return [(trial, 0) for trial in sorted(state.trials) if not state.ended(trial, 0)]

    def finished(self, state):
        return len(state.trials) >= self.sweep["trials"] and not self.due(state)

    def total(self):
        """How many times a trial ends, of a sweep in which none fails."""
        return self.sweep["trials"]


class Halving(Flat):
    """Successive halving (Jamieson and Talwalkar 2016), a round after the other."""

    def __init__(self, sweep):
        super().__init__(sweep)
        first, factor, budget = sweep["halving"]["first"], sweep["halving"]["factor"], sweep["budget"]["value"]
        self.budgets = []
        while first < budget:
            self.budgets.append(first)
            first *= factor
        self.budgets.append(budget)

    def survivors(self, state, round):
        """Those that go into a round; None while the one before goes on."""
        if round == 0:
            return list(range(self.sweep["trials"]))
        before = self.survivors(state, round - 1)
        if before is None or not all(state.ended(trial, round - 1) for trial in before):
            return None
        good = [trial for trial in before if state.score(trial, round - 1) is not None]
        good.sort(key=lambda trial: state.rank(trial, round - 1))
        return sorted(good[: max(1, len(before) // self.sweep["halving"]["factor"])])

    def due(self, state):
        for round in range(len(self.budgets)):
            trials = self.survivors(state, round)
            if trials is None:
                return []
            left = [(trial, round) for trial in trials if trial in state.trials and not state.ended(trial, round)]
            if left:
                return left
        return []

    def finished(self, state):
        last = self.survivors(state, len(self.budgets) - 1)
        return last is not None and all(state.ended(trial, len(self.budgets) - 1) for trial in last)

    def total(self):
        count, total = self.sweep["trials"], 0
        for _ in self.budgets:
            total += count
            count = max(1, count // self.sweep["halving"]["factor"])
        return total


class Pbt(Flat):
    """Population based training (Jaderberg et al. 2017). Whoever takes a parent's
    checkpoint is a new trial, whose run is a fork of the parent's."""

    def __init__(self, sweep):
        super().__init__(sweep)
        interval, budget = sweep["pbt"]["interval"], sweep["budget"]["value"]
        self.budgets = [*range(interval, budget, interval), budget]

    def rounds(self, state):
        """([trial], [Trial to fork before it begins]) of each round up to the first
        that has not ended."""
        members, forks = list(range(self.sweep["trials"])), []
        number = len(members)
        for round in range(len(self.budgets)):
            yield members, forks
            if not all(state.ended(trial, round) for trial in members):
                return
            members, forks = self.exchange(state, round, members, number)
            number += len(forks)

    def exchange(self, state, round, members, number):
        """Who trains on after a round; forks are numbered from `number` on."""
        ranked = sorted(members, key=lambda trial: state.rank(trial, round))
        count = max(1, int(len(ranked) * self.sweep["pbt"]["quantile"]))
        stay, forks = [], []
        for at, member in enumerate(ranked):
            parent = ranked[int(unit(self.sweep["seed"], "parent", round, member) * count)]
            worse = state.rank(member, round)[:2] > state.rank(parent, round)[:2]
            if at >= len(ranked) - count and worse:
                values = perturb(self.sweep, state.trials[parent].values, number)
                forks.append(Trial(number, values, parent, round + 1))
                number += 1
            elif state.score(member, round) is not None:  # what failed is left out
                stay.append(member)
        return sorted(stay + [fork.number for fork in forks]), forks

    def next_trial(self, state):
        if len(state.trials) < self.sweep["trials"]:
            return draw_trial(self.sweep, len(state.trials))
        for _, forks in self.rounds(state):
            for fork in forks:
                if fork.number not in state.trials:
                    return fork
        return None

    def due(self, state):
        for round, (members, forks) in enumerate(self.rounds(state)):
            # Nobody trains on before the forks have their copies.
            if any(fork.number not in state.trials for fork in forks):
                return []
            left = [(trial, round) for trial in members if trial in state.trials and not state.ended(trial, round)]
            if left:
                return left
        return []

    def finished(self, state):
        rounds = list(self.rounds(state))
        last = len(self.budgets) - 1
        return len(rounds) > last and all(state.ended(trial, last) for trial in rounds[last][0])

    def total(self):
        return self.sweep["trials"] * len(self.budgets)


def plan_of(sweep):
    if "halving" in sweep:
        return Halving(sweep)
    if "pbt" in sweep:
        return Pbt(sweep)
    return Flat(sweep)
