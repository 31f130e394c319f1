"""Whether the machine is as fast as it was: what machine_probe.cc measures, before and after."""
import json
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
    """What around a turn, or between it and turns `so_far`, moved by more than MOST, in words; "" if nothing did."""
    found = []
    for name in HELD:
        values = [numbers[name] for numbers in (*around, *so_far) if name in numbers]
        if values and min(values) < max(values) * (1 - MOST):
            found.append(f"{name} was {min(values):.4g} of {max(values):.4g}")
    return ", ".join(found)


def multiplies_bfloat16():
    """Whether this CPU has an instruction for it."""
    with open("/proc/cpuinfo") as lines:
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return "avx512_bf16" in flags or "amx_bf16" in flags
