"""Serves Gymnasium and PettingZoo environments to Flotilla learners.

It speaks flotilla.v1.EnvService as proto/flotilla/v1/env.proto describes it, and
nothing else of Flotilla: to read how a server in another language would be
written, start with play.py. What cannot be reached dials in: dialling.py.
"""

import os

# Environments fork processes of their own. With this support gRPC begins threads anew in
# them, some of which crash; without it, what does not speak gRPC is left alone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def dial(address, env, **how):
    """Offers `env` to the run whose coordinator is at `address`, "HOST:PORT". See flotilla_gym.dialling.dial."""
    from flotilla_gym import dialling  # the server does without

    return dialling.dial(address, env, **how)
