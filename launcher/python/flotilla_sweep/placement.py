"""Which cores and GPUs a trial gets, of those that this process may use."""

import dataclasses
import os


@dataclasses.dataclass
class Slot:
    number: int
    cores: list
    gpus: list


def make_slots(placement, usable=None):
    """One for each trial at a time. Cores are their own while there are enough, else
    some share one; they stand side by side, as they are numbered."""
    usable = sorted(os.sched_getaffinity(0)) if usable is None else usable
    parallel = placement["parallel"]
    count = placement["cores"] or max(1, len(usable) // parallel)
    gpus = placement["gpus"]
    slots = []
    for i in range(parallel):
        cores = sorted({usable[(i * count + k) % len(usable)] for k in range(count)})
        slots.append(Slot(i, cores, list(range(i * gpus, (i + 1) * gpus))))
    return slots
