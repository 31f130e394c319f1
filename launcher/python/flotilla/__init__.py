"""Runs of Flotilla, taken home: their policies, metrics and configurations.

    policy = flotilla.load("runs/first")        # or one checkpoint of it
    action = policy.act(observation)            # as the environment gives and takes it
    run = flotilla.Run("runs/first")
    run.metrics()["charts/episodic_return"]     # numpy columns
    flotilla.train("cartpole_ppo", env=MyEnv)   # trains, on environments of this script or notebook

A policy needs torch, environments of your own gymnasium and grpcio, all else numpy and protobuf alone.
"""

from pkgutil import extend_path

# The messages, flotilla.v1, are a package without __init__.py: generated beside this one, or wherever a path has
# them. Both are `flotilla`.
__path__ = extend_path(__path__, __name__)

from flotilla.errors import Error  # noqa: E402
from flotilla.run import Run  # noqa: E402

__all__ = ["Error", "Run", "load", "train"]


def load(path, checkpoint="latest", env=None, device="cpu", seed=0):
    """The policy in a run's folder, or in a checkpoint's own: flotilla.policy.Policy.

    Of a run, `checkpoint` names which ("best"). `env`, a Gymnasium environment, is only looked at: its spaces say how
    observations and actions nest where their paths leave that open, and from which value its discrete actions count
    (0 without it). `seed` is of sampled actions. Raises flotilla.Error.
    """
    from flotilla.policy import Policy  # needs torch

    return Policy.load(path, checkpoint, env, device, seed)


def train(
    config, env=None, *, steps=None, seed=None, learners=None, run_dir=None, resume=None, overrides=None, in_process=False,
    flags=(), progress="auto", **sections,
):  # fmt: skip
    """Trains as `config` says, a configuration's name or file: flotilla.training.Training. Blocks until the run has ended.

    `env` is what makes a Gymnasium environment, a class or a function, with env.options.kwargs as its arguments, and may
    be of this script or notebook: env.num_workers processes a learner make theirs, and evaluations. With `in_process` it
    steps in this process instead, on a thread, sees its objects, and is not evaluated; one environment that is there
    already always does. Or an id: one that `flotilla envs` lists, Gymnasium's, gym:ID, module:Class. None: the
    configuration's own.

    Fields of the configuration are overridden by sections, ppo={"epochs": 8}, or by paths,
    overrides={"ppo.epochs": 8, "env.num_envs": 16}. `run_dir` is runs/CONFIG-TIME by default. `resume=True` goes on with
    what is in it, by default with the newest of runs/CONFIG-TIME; a checkpoint as `resume`, from there, by default in its
    run's folder. `learners` are 1 by default, and of a run that goes on as many as it had; in a process that torchrun,
    srun or mpirun started, the one of its rank. `flags` are more words for `flotilla train`: with --dry-run, the plan is
    printed, nothing is trained, and None is returned. Progress is a line in a terminal, an output that is rewritten in a
    notebook, lines elsewhere ("plain", "none").

    An interrupt saves a checkpoint, stops the run and raises KeyboardInterrupt; a second one does not wait. SIGTERM,
    SIGUSR1, SIGUSR2 and SIGHUP save one, too, and then end this process, as they do without a run; but one that the
    script handles or ignores itself is left to it, and so are all in another thread than the main one. The run never
    outlives this process. Raises flotilla.Error, with what the program said last, if it cannot start or fails.
    """
    from flotilla import training

    return training.train(
        config, env, steps=steps, seed=seed, learners=learners, run_dir=run_dir, resume=resume, overrides=overrides,
        in_process=in_process, flags=flags, progress=progress, sections=sections,
    )  # fmt: skip
