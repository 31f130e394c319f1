"""PufferLib's trainer on its own native Breakout. usage: puffer_breakout.py own|mlp

own is its breakout.ini to the letter: 8 × 1,024 games, a network with an LSTM, 90 million steps. mlp
leaves the LSTM out and takes 1,024 games and default.ini's numbers, as our native_breakout does, for
30 million.
"""
import os
import sys

import pufferlib.vector
import torch
from pufferlib import pufferl

import puffer
from meter import SEED, Meter

task, sys.argv = sys.argv[1], sys.argv[:1]  # PufferLib reads it
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.manual_seed(SEED)

args = pufferl.load_config("puffer_breakout" if task == "own" else "default")
if task == "mlp":
    args |= dict(package="ocean", vec=dict(num_envs=1), env=dict(num_envs=1024), policy=dict(hidden_size=128))
    args["train"] |= dict(total_timesteps=30_000_000, ent_coef=0.003)
args["vec"] = dict(num_envs=args["vec"]["num_envs"], seed=SEED, backend=pufferlib.vector.Serial)
args["train"] |= dict(device="cpu", use_rnn=args["rnn_name"] is not None, env="puffer_breakout", seed=SEED,
                      checkpoint_interval=10 ** 9)
envs = pufferl.load_env("puffer_breakout", args)
trainer = pufferl.PuffeRL(args["train"], envs, pufferl.load_policy(args, envs))
meter = Meter(target=860)  # of 864: some of any hundred games are begun by chance


def look(stats):
    if stats.get("score"):
        meter.mean(stats["score"][-1])  # of the games that ended in the last 128 steps


puffer.train(trainer, meter, look)
