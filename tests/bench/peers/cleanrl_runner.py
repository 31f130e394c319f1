"""Runs an unmodified script of CleanRL, or of Cleanba, and reads the lines it prints.

usage: cleanrl_runner.py CHECKOUT SCRIPT SCRIPT_ARGS...
SCRIPT is in the checkout's folder cleanrl, or cleanba/cleanba_ppo.py of Cleanba's. Stops at LIMIT_S or once CartPole
is solved. Nothing in the checkout is changed.
"""
import builtins
import os
import re
import runpy
import signal
import sys
import time

from meter import SEED, Meter

checkout, script = sys.argv[1:3]
rank0 = os.environ.get("LOCAL_RANK", "0") == "0"
try:
    import ale_py  # noqa: F401  registers the Atari environments, ROMs included
except ImportError:
    pass

meter = Meter()
plain_print = builtins.print
episode = re.compile(r"global_step=\d+, episodic_return=\[?([-\d.e+]+)")


def finish():
    if rank0:
        meter.report()
    os._exit(0)


def watching_print(*words, **kw):
    if words and words[0] == "SPS:":
        names = sys._getframe(1).f_locals  # of the module, or of Cleanba's thread that steps
        if meter.first is None:  # the script's own clock started just before its first reset
            meter.begin(time.perf_counter() - (time.time() - names["start_time"]))
        meter.steps(names["global_step"])
        if rank0 and meter.out_of_time():
            finish()
        return
    found = words and isinstance(words[0], str) and episode.match(words[0])
    if not found:
        plain_print(*words, **kw)
        return
    meter.episode(float(found[1]))
    if meter.solved_at is not None and script == "ppo.py":
        finish()


builtins.print = watching_print
signal.signal(signal.SIGTERM, lambda *_: finish())
sys.path.insert(0, checkout)
theirs = os.path.dirname(script) or "cleanrl"
on_a_cpu = ["--no-cuda"] if theirs == "cleanrl" else []  # Cleanba has what JAX finds
sys.argv = [script, *sys.argv[3:], *on_a_cpu, "--seed", str(SEED)]
runpy.run_path(os.path.join(checkout, theirs, os.path.basename(script)), run_name="__main__")
finish()
