"""Which cores and GPUs a trial gets, of those that this process may use."""

import dataclasses
import os
import pathlib

from flotilla_sweep.journal import Claim


@dataclasses.dataclass(eq=False)
class Slot:
    cores: list
    gpus: list
    claims: list = dataclasses.field(default_factory=list)  # of those that a trial has to itself

    def take(self):
        """Whether all of it is ours now."""
        if all(claim.take() for claim in self.claims):
            return True
        self.release()
        return False

    def release(self):
        for claim in self.claims:
            claim.release()


def make_slots(placement, usable=None, claims=None):
    """One for each trial at a time. Cores are their own while there are enough, else
    some share one; they stand side by side, as they are numbered. `claims` is the
    folder in which launchers tell each other what they have."""
    usable = sorted(os.sched_getaffinity(0)) if usable is None else usable
    parallel = placement["parallel"]
    count = placement["cores"] or max(1, len(usable) // parallel)
    gpus = placement["gpus"]
    slots = []
    for i in range(parallel):
        cores = sorted({usable[(i * count + k) % len(usable)] for k in range(count)})
        slots.append(make_slot(placement, cores, list(range(i * gpus, (i + 1) * gpus)), claims))
    return slots


def make_slot(placement, cores, gpus, claims=None):
    """Cores and GPUs that the sweep names are a trial's own."""
    if claims is None:
        return Slot(cores, gpus)
    uuids = dict(enumerate(placement.get("uuids", [])))
    names = [f"core-{core}-{this_host()}" for core in cores if placement["cores"]]
    names += [f"gpu-{uuids.get(gpu) or f'{gpu}-{this_host()}'}" for gpu in gpus]
    return Slot(cores, gpus, [Claim(claims / name) for name in names])


def this_host():
    """The same in all of its containers, whatever they are called, and nowhere else."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
