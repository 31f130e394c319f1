"""Sample Factory's own Atari example, whose settings are those of CleanRL's ppo_atari.py, on a CPU.

usage: sf_breakout.py [SETTINGS...]
8 processes of a game each, 128 steps, 4 epochs of 4 minibatches of 256; learning waits for acting, as its example has it.
"""
import os
import shutil
import sys
import tempfile

import ale_py  # noqa: F401  registers the Atari environments, ROMs included
import psutil
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.train import make_runner
from sf_examples.atari.train_atari import parse_atari_args, register_atari_components

from meter import SEED, Meter


class Reader(AlgoObserver):
    def __init__(self, folder):
        self.folder, self.meter = folder, Meter()

    def on_training_step(self, runner, training_iteration_since_resume):
        steps = sum(runner.env_steps.values())
        if self.meter.last is None or steps > self.meter.last[0]:
            self.meter.steps(steps)
        if self.meter.out_of_time():
            self.meter.report()
            for child in psutil.Process().children(recursive=True):  # by themselves they take seconds to end
                child.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(0)


def main():
    register_atari_components()
    folder = tempfile.mkdtemp()
    cfg, runner = make_runner(parse_atari_args([
        "--env=atari_breakout", "--device=cpu", f"--seed={SEED}", f"--train_dir={folder}",
        "--summaries_use_frameskip=False", "--with_wandb=False", *sys.argv[1:]]))
    runner.register_observer(Reader(folder))
    if runner.init() == ExperimentStatus.SUCCESS:
        runner.run()


if __name__ == "__main__":  # its processes import this file
    main()
