"""Their side: the runners in peers/, each in a virtual environment that peers/setup.sh made."""
import os
import subprocess
import tempfile

from contender import Contender, peer_line

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
PEERS_DIR = os.environ.get("PEERS_DIR", os.path.join(tempfile.gettempdir(), "peers"))
CLEANRL_DIR = os.environ.get("CLEANRL_DIR", "")


def peer(name, venv, runner, *arguments, limit_s, threads=(1,), flop_per_step=0):
    """`threads`: counts of Torch's threads; of several the fastest is found and taken. None: it is no Torch."""
    python = os.path.join(PEERS_DIR, venv, "bin", "python")
    env = {"LIMIT_S": str(limit_s), "PYTHONPATH": HERE, "PYTHONUNBUFFERED": "1",
           "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled",
           "GLOO_SOCKET_IFNAME": "lo"}
    env |= {"OMP_NUM_THREADS": str(threads[0])} if threads else {}
    missing = "" if os.access(python, os.X_OK) else "not installed: run tests/bench/peers/setup.sh"
    return Contender(name, [python, os.path.join(HERE, runner), *arguments], peer_line, env, cap_s=limit_s + 60,
                     missing=missing, threads=threads, flop_per_step=flop_per_step)


def cleanrl(name, script, *arguments, limit_s, threads=(1,), ranks=1, flop_per_step=0):
    who = peer(name, "v_cleanrl", "cleanrl_runner.py", CLEANRL_DIR, script, *arguments, limit_s=limit_s,
               threads=threads, flop_per_step=flop_per_step)
    if ranks > 1:
        who.command[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    if not os.path.isfile(os.path.join(CLEANRL_DIR, "cleanrl", script)):
        who.missing = "not installed: run tests/bench/peers/setup.sh, and set CLEANRL_DIR to a CleanRL checkout"
    return who


def versions():
    """What is installed, by virtual environment."""
    wanted = ["torch", "stable-baselines3", "pufferlib", "sample-factory", "envpool", "ale-py", "gymnasium", "rejax",
              "gymnax", "jax"]
    code = ("import importlib.metadata as m\n"
            "for n in %r:\n"
            "  try: print(n, m.version(n), end='  ')\n"
            "  except m.PackageNotFoundError: pass" % (wanted,))
    for venv in ("v_cleanrl", "v_sb3", "v_puffer", "v_sf", "v_envpool", "v_rejax"):
        python = os.path.join(PEERS_DIR, venv, "bin", "python")
        if os.access(python, os.X_OK):
            found = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60).stdout
            yield f"{venv}: {found.strip()}"
