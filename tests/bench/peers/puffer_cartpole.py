"""PufferLib's trainer on CartPole-v1. usage: puffer_cartpole.py 4x128|64x32|own

4x128 and 64x32 map the other peers' settings onto its trainer; own keeps PufferLib's defaults (Muon
and all) but for sizes that suit one small environment: 64 environments, 64 steps.
"""
import os
import sys

import gymnasium as gym
import pufferlib
import pufferlib.emulation
import pufferlib.models
import pufferlib.vector
import torch
from pufferlib import pufferl

import puffer
from meter import SEED, Meter

task = sys.argv[1]
sys.argv = sys.argv[:1]  # PufferLib reads it
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.manual_seed(SEED)
meter = Meter()

ADAM = dict(optimizer="adam", adam_beta1=0.9, adam_eps=1e-5, prio_alpha=0.0, clip_coef=0.2, vf_coef=0.5,
            max_grad_norm=0.5, update_epochs=4, total_timesteps=500_000)
settings = {
    "4x128": (4, 128, dict(ADAM, minibatch_size=128, learning_rate=2.5e-4, gamma=0.99, gae_lambda=0.95, ent_coef=0.01,
                           vf_clip_coef=0.2)),
    "64x32": (64, 32, dict(ADAM, minibatch_size=512, learning_rate=2.5e-3, gamma=0.98, gae_lambda=0.9, ent_coef=0.0,
                           vf_clip_coef=1e9)),
    "own": (64, 64, dict(minibatch_size=1024, total_timesteps=1_000_000)),
}
num_envs, horizon, options = settings[task]


def make(buf=None, seed=0):
    env = pufferlib.EpisodeStats(gym.make("CartPole-v1"))
    return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)


config = pufferl.load_config("default")["train"]
config.update(device="cpu", use_rnn=False, env="CartPole-v1", batch_size=num_envs * horizon, bptt_horizon=horizon,
              checkpoint_interval=10 ** 9, **options)
envs = pufferlib.vector.make(make, num_envs=num_envs, seed=SEED, backend=pufferlib.vector.Serial)
trainer = pufferl.PuffeRL(config, envs, pufferlib.models.Default(envs.driver_env, hidden_size=64))
seen, last = 0, None


def look(stats):
    global seen, last
    returns = stats.get("episode_return", [])
    if returns is not last:  # the trainer began new statistics since
        seen, last = 0, returns
    for episode_return in returns[seen:]:
        meter.episode(episode_return)
    seen = len(returns)


puffer.train(trainer, meter, look)
