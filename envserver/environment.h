#ifndef FLOTILLA_ENVSERVER_ENVIRONMENT_H_
#define FLOTILLA_ENVSERVER_ENVIRONMENT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// One row of a message: a span for each leaf, unaligned.
using Row = std::span<const std::span<std::byte>>;
using ConstRow = std::span<const std::span<const std::byte>>;

// What one step did, besides the observation.
struct Outcome {
  float reward = 0;         // what the learner sees
  bool terminated = false;  // the task ended; a time limit is not a termination
  bool truncated = false;   // a time limit of the environment's own
  // The step takes this long without using the CPU; the learner waits for it.
  absl::Duration delay = absl::ZeroDuration();
};

// One environment: the interface you implement to add a task. See
// envs/cartpole.h for a complete one, what `flotilla new environment` writes for
// one in a program of its own, and registry.h for how it is named and what options
// it declares.
//
// An implementation is deterministic given its seeds and actions, writes every
// byte of `observation`, and does not count steps: ThreadVectorEnv applies
// spec().max_episode_steps and the automatic reset.
//
// An error or an exception costs the learner one transition: the environment is
// made anew. Not thread-safe; calls on one object never overlap, but may come
// from different threads.
class Environment {
 public:
  virtual ~Environment() = default;

  // Constant for the object's life.
  virtual const v1::EnvSpec& spec() const = 0;

  // Starts an episode and writes its first observation. `observation` has one
  // span per leaf: this environment's row of the outgoing message.
  virtual absl::Status Reset(uint64_t seed, Row observation) = 0;

  // Advances one step. `action` has one span per leaf and is in range. Only
  // called between a Reset and the end of its episode.
  virtual absl::StatusOr<Outcome> Step(ConstRow action, Row observation) = 0;

  // Called after the Reset that follows an episode's end. Returns whether the
  // game ended with the episode, as it does in most environments, and then may
  // correct `end`, which holds the rewards and steps since the last game, and
  // add metrics.
  virtual bool GameOver(v1::EpisodeEnd* end) {
    static_cast<void>(end);
    return true;
  }
};

// Element `index` of a leaf.
template <typename T>
T ReadValue(std::span<const std::byte> leaf, size_t index = 0) {
  T value;
  std::memcpy(&value, leaf.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void WriteValue(std::span<std::byte> leaf, size_t index, T value) {
  std::memcpy(leaf.data() + index * sizeof(T), &value, sizeof(T));
}

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVIRONMENT_H_
