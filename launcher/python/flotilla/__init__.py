"""Runs of Flotilla, taken home: their policies, metrics and configurations.

    policy = flotilla.load("runs/first")        # or one checkpoint of it
    action = policy.act(observation)            # as the environment gives and takes it
    run = flotilla.Run("runs/first")
    run.metrics()["charts/episodic_return"]     # numpy columns

A policy needs torch, all else numpy and protobuf alone.
"""

from pkgutil import extend_path

# The messages, flotilla.v1, are a package without __init__.py: generated beside this one, or wherever a path has
# them. Both are `flotilla`.
__path__ = extend_path(__path__, __name__)

from flotilla.errors import Error  # noqa: E402
from flotilla.run import Run  # noqa: E402

__all__ = ["Error", "Run", "load"]


def load(path, checkpoint="latest", env=None, device="cpu", seed=0):
    """The policy in a run's folder, or in a checkpoint's own: flotilla.policy.Policy.

    Of a run, `checkpoint` names which ("best"). `env`, a Gymnasium environment, is only looked at: its spaces say how
    observations and actions nest where their paths leave that open, and from which value its discrete actions count
    (0 without it). `seed` is of sampled actions. Raises flotilla.Error.
    """
    from flotilla.policy import Policy  # needs torch

    return Policy.load(path, checkpoint, env, device, seed)
