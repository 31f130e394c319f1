"""Steps Pong with random actions and no learning. usage: step_pong.py ale|envpool sync|async NUM_ENVS

A step is one decision: 4 frames, 84x84 grey, 4 frames stacked. sync steps all games together; async
answers half of them a call while the other half is stepped.
"""
import os
import sys
import time

import numpy as np

from meter import LIMIT_S, emit

library, mode, num_envs = sys.argv[1], sys.argv[2], int(sys.argv[3])
THREADS = int(os.environ.get("THREADS", "2"))
batch = num_envs if mode == "sync" else num_envs // 2
actions = np.random.default_rng(0).integers(0, 6, (4096, batch)).astype(np.int32)

if library == "ale":  # send goes to the games that the last recv answered
    from ale_py.vector_env import AtariVectorEnv
    env = AtariVectorEnv(game="pong", num_envs=num_envs, batch_size=batch, num_threads=THREADS)
    env.reset()
    step = env.step
else:
    import envpool
    env = envpool.make("Pong-v5", env_type="gymnasium", num_envs=num_envs, batch_size=batch, num_threads=THREADS)
    if mode == "sync":
        env.reset()
        step = env.step
    else:
        env.async_reset()

        def step(action):
            env.send(action, env.recv()[4]["env_id"])

for i in range(50):
    step(actions[i])
calls, began = 0, time.perf_counter()
while time.perf_counter() - began < LIMIT_S:
    for _ in range(10):
        step(actions[calls % 4096])
        calls += 1
emit(steps_per_second=calls * batch / (time.perf_counter() - began))
os._exit(0)
