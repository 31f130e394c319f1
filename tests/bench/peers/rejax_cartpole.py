"""rejax's PPO on gymnax's CartPole-v1, environments and all compiled by JAX. usage: rejax_cartpole.py 4x128|64x32

Compiling is not counted. It tells nothing of its training episodes, so that there is no time to 475.
"""
import sys

import jax
from rejax import get_algo

from meter import SEED, Meter

NUM_ENVS, NUM_STEPS, OPTIONS = {
    # The numbers of CleanRL's ppo.py.
    "4x128": (4, 128, dict(learning_rate=2.5e-4, gamma=0.99, gae_lambda=0.95, ent_coef=0.01)),
    # Those of our cartpole_fast.
    "64x32": (64, 32, dict(learning_rate=2.5e-3, gamma=0.98, gae_lambda=0.9, ent_coef=0.0)),
}[sys.argv[1]]
UPDATES = 100  # between two looks at the clock
STEPS = NUM_ENVS * NUM_STEPS

agent = get_algo("ppo").create(
    env="CartPole-v1", num_envs=NUM_ENVS, num_steps=NUM_STEPS, num_epochs=4, num_minibatches=4, clip_eps=0.2, vf_coef=0.5,
    max_grad_norm=0.5, total_timesteps=STEPS * UPDATES, agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
    **OPTIONS,
)
state = jax.jit(agent.init_state)(jax.random.PRNGKey(SEED))
train = jax.jit(lambda state: jax.lax.scan(lambda s, _: (agent.train_iteration(s), None), state, length=UPDATES)[0])
train = train.lower(state).compile()
meter, steps = Meter(), 0
meter.steps(steps)
while not meter.out_of_time():
    state = jax.block_until_ready(train(state))
    steps += STEPS * UPDATES
    meter.steps(steps)
meter.report()
