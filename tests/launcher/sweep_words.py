"""What launcher/sweep_file.cc makes of a sweep's file, as tests vary it."""

RATE = {"field": "optimizer.learning_rate", "kind": "log_uniform", "low": 1e-4, "high": 1e-2, "values": []}
CLIP = {"field": "ppo.clip_ratio", "kind": "uniform", "low": -0.5, "high": 0.5, "values": []}
ENVS = {"field": "env.num_envs", "kind": "integer", "low": 8, "high": 64, "step": 8, "values": []}
TYPE = {"field": "optimizer.type", "kind": "choice", "values": ["ADAM", "RMSPROP", "MUON"]}
SPACE = [RATE, CLIP, ENVS, TYPE]


def make_sweep(**more):
    return {
        "parameters": SPACE, "method": "RANDOM", "sampler": "TPE", "trials": 9, "seeds": 1, "seed": 1, "base_seed": 5, "set": [],
        "metric": {"name": "score", "goal": "MAXIMIZE", "lines": 1}, "budget": {"field": "total_env_steps", "value": 900},
        "placement": {"parallel": 1, "learners": 1, "gpus": 0, "cores": 0},
    } | more  # fmt: skip
