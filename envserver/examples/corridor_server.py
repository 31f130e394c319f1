"""An env server in one file, written from proto/flotilla/v1/env.proto alone.

Corridor-v0: start somewhere in a corridor, reach its right end. Actions are 0 (left) and 1 (right).
"""

import argparse
import json
import os
import random
from concurrent import futures

import grpc
import numpy as np
from flotilla.v1 import env_pb2, env_pb2_grpc

ENV_ID = "Corridor-v0"
LIMIT = 100  # steps
# Learners ping a HOST:PORT every 20 s, and may have nothing else to say for minutes.
PINGS = [("grpc.http2.min_ping_interval_without_data_ms", 10000), ("grpc.keepalive_permit_without_calls", 1)]
MASK = (1 << 64) - 1


def episode_seed(hello, row, episode):
    """EpisodeSeed of services/base/random.h."""
    values = (0x0065646F73697065, hello.seed, hello.worker_id, row, hello.incarnation, episode)
    seed = len(values)
    for value in values:
        seed = ((seed ^ value) + 0x9E3779B97F4A7C15) & MASK
        seed = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        seed = ((seed ^ (seed >> 27)) * 0x94D049BB133111EB) & MASK
        seed ^= seed >> 31
    return seed


class Corridor:
    """One row."""

    def __init__(self, hello, row, size):
        self.hello, self.row, self.size = hello, row, size
        self.limit = hello.options.max_episode_steps or LIMIT
        self.episode = 0

    def reset(self):
        self.at = random.Random(episode_seed(self.hello, self.row, self.episode)).randrange(self.size - 1)
        self.episode += 1
        self.steps = self.total = 0
        return self.observe()

    def observe(self):
        return np.array([self.at / self.size, 1], np.float32)

    def step(self, action):
        """(observation, reward, terminated, truncated)"""
        self.at = max(0, self.at + (1 if action else -1))
        self.steps += 1
        there = self.at == self.size - 1
        reward = 1.0 if there else -0.01
        self.total += reward
        return self.observe(), reward, there, not there and self.steps == self.limit


def step_group(envs, actions):
    """A group's StepBatch; without `actions`, that of its reset."""
    if actions is None:
        steps = [(env.reset(), 0.0, False, False) for env in envs]
    else:
        steps = [env.step(action) for env, action in zip(envs, actions)]
    batch, seen, finals = env_pb2.StepBatch(), [], []
    for row, (env, (observation, _, terminated, truncated)) in enumerate(zip(envs, steps)):
        if terminated or truncated:  # same step: what is seen starts the next episode
            finals.append(observation)
            batch.final_row.append(row)
            batch.episode_end.add(row=row, raw_return=env.total, length=env.steps)
            observation = env.reset()
        seen.append(observation)
    batch.inline.leaf.append(np.stack(seen).tobytes())
    batch.final_observation.leaf.append(b"".join(final.tobytes() for final in finals))
    batch.reward = np.array([step[1] for step in steps], np.float32).tobytes()
    batch.terminated = bytes(step[2] for step in steps)
    batch.truncated = bytes(step[3] for step in steps)
    return batch


class EnvService(env_pb2_grpc.EnvServiceServicer):
    def spec(self, env_id, options, context):
        """What is played, and the corridor's size. Ends the call if there is no such thing."""
        if env_id != ENV_ID:
            context.abort(grpc.StatusCode.NOT_FOUND, f'there is no environment "{env_id}" here; did you mean "{ENV_ID}"?')
        for name in options.kwargs:
            if name != "size":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f'env.options.kwargs.{name} is set; did you mean "size"?')
        spec = env_pb2.EnvSpec(env_id=ENV_ID, max_episode_steps=options.max_episode_steps or LIMIT, reward_threshold=0.9)
        spec.observation.add(dtype=env_pb2.FLOAT32, shape=[2])
        spec.action.add(dtype=env_pb2.INT64, num_values=2)
        spec.option.add(name="size", default_json="8", help="cells, the goal's among them")
        return spec, json.loads(options.kwargs.get("size", "8"))

    def GetSpec(self, request, context):
        response = env_pb2.GetSpecResponse(env_id=[ENV_ID], version="1")
        if request.env_id:
            response.spec.CopyFrom(self.spec(request.env_id, request.options, context)[0])
        return response

    def Play(self, requests, context):
        hello = next(requests).hello
        spec, size = self.spec(hello.env_id, hello.options, context)
        welcome = env_pb2.Welcome(protocol_version=1, version="1", spec=spec, autoreset_mode="same_step")
        yield env_pb2.PlayReply(welcome=welcome)
        next(requests)  # the start: nothing was offered, so payloads are inline
        rows = hello.num_envs // hello.num_groups
        envs = [Corridor(hello, row, size) for row in range(hello.num_envs)]
        seqs = [0] * hello.num_groups

        def reply(group, actions):
            batch = step_group(envs[group * rows : (group + 1) * rows], actions)
            batch.group, batch.seq = group, seqs[group]
            return env_pb2.PlayReply(step=batch)

        for group in range(hello.num_groups):
            yield reply(group, None)
        for request in requests:
            seqs[request.actions.group] += 1
            yield reply(request.actions.group, np.frombuffer(request.actions.action[0], "<i8"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--address-file")
    flags = parser.parse_known_args()[0]
    server = grpc.server(futures.ThreadPoolExecutor(64), options=PINGS)  # a thread a player
    env_pb2_grpc.add_EnvServiceServicer_to_server(EnvService(), server)
    server.add_insecure_port(flags.listen)
    server.start()
    if flags.address_file:
        with open(flags.address_file + ".part", "w") as file:
            file.write(flags.listen + "\n")
        os.rename(flags.address_file + ".part", flags.address_file)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
