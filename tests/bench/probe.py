"""Whether the machine is as fast as it was: what machine_probe.cc measures, before and after."""
import json
import statistics
import subprocess

MOST = 0.05  # that a number may move
# Copies are printed and not held to it: on a host that others share they are the neighbours', and go from 15 to 40 GB/s
# and back within seconds while two idle cores multiply as ever. From one core to another likewise: it depends on where
# a hypervisor has put the two.
HELD = ("fma_gflops",)


def measure(program, cores):
    """{number: value} on the first `cores` cores; {} without a program."""
    if not program:
        return {}
    done = subprocess.run([program, str(cores)], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def moved(around, so_far=()):
    """What moved by more than MOST, in words; "" if nothing did: around a turn, from before it to after it, or from the
    median of turns `so_far`. A median is not moved by how many turns there were, as the best of them is: a processor that
    others share is 3 % above or below its own from one second to the next."""
    found = []
    for name in HELD:
        values = [numbers[name] for numbers in around if name in numbers]
        usual = [numbers[name] for numbers in so_far if name in numbers]
        for reference in [max(values), *([statistics.median(usual)] if usual else [])] if values else []:
            worst = max(values, key=lambda value: abs(value - reference))
            if abs(worst - reference) > MOST * reference:
                found.append(f"{name} was {worst:.4g} of {reference:.4g}")
                break
    return ", ".join(found)


def multiplies_bfloat16():
    """Whether this CPU has an instruction for it."""
    with open("/proc/cpuinfo") as lines:
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return "avx512_bf16" in flags or "amx_bf16" in flags
