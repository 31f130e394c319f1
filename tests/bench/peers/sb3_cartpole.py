"""Stable-Baselines3 PPO on CartPole-v1. usage: sb3_cartpole.py 4x128|64x32   (environments x steps)"""
import os
import sys

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from meter import SEED, Meter

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
meter = Meter()


class Watch(BaseCallback):
    def _on_training_start(self):
        meter.begin()

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:
                meter.episode(info["episode"]["r"])
        return meter.solved_at is None and not meter.out_of_time()

    def _on_rollout_end(self):
        meter.steps(self.num_timesteps)


settings = {
    # The numbers of CleanRL's ppo.py.
    "4x128": (4, dict(n_steps=128, batch_size=128, n_epochs=4, learning_rate=lambda left: left * 2.5e-4, gamma=0.99,
                      gae_lambda=0.95, ent_coef=0.01, clip_range=0.2)),
    # Those of our cartpole_fast.
    "64x32": (64, dict(n_steps=32, batch_size=512, n_epochs=4, learning_rate=lambda left: left * 2.5e-3, gamma=0.98,
                       gae_lambda=0.9, ent_coef=0.0, clip_range=0.2)),
}
num_envs, options = settings[sys.argv[1]]
env = make_vec_env("CartPole-v1", n_envs=num_envs, seed=SEED)
PPO("MlpPolicy", env, device="cpu", verbose=0, seed=SEED, **options).learn(500_000, callback=Watch())
meter.report()
