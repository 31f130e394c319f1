"""Whether the machine is as fast as it was: what machine_probe.cc measures, before and after."""
import json
import subprocess

MOST = 0.05  # that a number may move
# From one core to another is printed and not held to it: it depends on where a hypervisor has put the two.
HELD = ("fma_gflops", "copy_gb_s")


def measure(program, cores):
    """{number: value} on the first `cores` cores; {} without a program."""
    if not program:
        return {}
    done = subprocess.run([program, str(cores)], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def moved(before, after):
    """What moved more than MOST, in words; "" if nothing did."""
    return ", ".join(f"{name} went from {before[name]:.4g} to {after[name]:.4g}" for name in HELD
                     if name in before and name in after and abs(after[name] / before[name] - 1) > MOST)
