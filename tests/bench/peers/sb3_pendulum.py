"""Stable-Baselines3 SAC on Pendulum-v1, at CleanRL's sizes: 256 × 256, 256 transitions a gradient step, one a step."""
import os

import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from meter import SEED, Meter

STARTS = 256  # steps without learning
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
meter = Meter()


class Watch(BaseCallback):
    def _on_training_start(self):
        meter.begin()

    def _on_step(self):
        return not meter.out_of_time()

    def _on_rollout_start(self):
        if self.num_timesteps > STARTS:
            meter.steps(self.num_timesteps)


env = make_vec_env("Pendulum-v1", n_envs=1, seed=SEED)
model = SAC("MlpPolicy", env, device="cpu", verbose=0, seed=SEED, batch_size=256, buffer_size=100_000,
            learning_starts=STARTS, train_freq=1, gradient_steps=1, policy_kwargs=dict(net_arch=[256, 256]))
model.learn(10 ** 6, callback=Watch())
meter.report()
