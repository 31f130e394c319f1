#ifndef FLOTILLA_ENVSERVER_MULTI_AGENT_ENVIRONMENT_H_
#define FLOTILLA_ENVSERVER_MULTI_AGENT_ENVIRONMENT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
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

// An agent's place in an environment, and its part of one step. On cache lines of
// its own: neighbours may belong to different threads.
struct alignas(64) Slot {
  // What came in. A slot that did not act is to be left out: it was not its turn,
  // or its episode has ended; its action is anything.
  ConstRow action;
  bool acted = false;
  // What goes out. All that follows is as of now: nothing happened.
  Row observation;
  bool active = true;  // whether it decides next
  Outcome outcome;     // a reward or an end is of the last action it took
};

// An environment of several agents: spec().agents() of them, each in a slot that
// is always its own. See envs/connect4.h for one in which they take turns, and
// envs/diagnostic.h for two in which they act at once. Of one agent,
// environment.h is simpler.
//
// An environment's episode ends once every slot's has. A slot whose episode ended
// before that is not active until then, and what is said of it is not read. All
// else is as with Environment: determinism, no counting of steps (the step limit
// is of the environment's, and ends the episodes of all who still play), errors,
// which lose all slots, and threads.
class MultiAgentEnvironment {
 public:
  virtual ~MultiAgentEnvironment() = default;

  // Constant for the object's life.
  virtual const v1::EnvSpec& spec() const = 0;

  // Starts an episode: writes the observations of those who decide first. With
  // several agents, what is not written is zeros, here and in Step.
  virtual absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) = 0;

  // Advances one step, and writes the observations of those who decide next and
  // of those whose episodes ended.
  virtual absl::Status StepSlots(std::span<Slot> slots) = 0;

  // Called once for each slot whose episode ended; where the environment's ended
  // too, after the ResetSlots that follows. Returns whether the game ended with
  // the episode, as it does in most environments, and then may correct `end`,
  // which holds the slot's rewards and decisions since its last game, and add
  // metrics.
  virtual bool SlotGameOver(size_t slot, v1::EpisodeEnd* end) {
    static_cast<void>(slot);
    static_cast<void>(end);
    return true;
  }

  // Whether Render draws it. Constant for the object's life.
  virtual bool renders() const { return false; }

  // What it looks like now to people; picture.h helps. Changes nothing. Only
  // called where a game is played again, never where somebody learns, and always
  // of the same size.
  virtual v1::Frame Render() const { return v1::Frame(); }
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

#endif  // FLOTILLA_ENVSERVER_MULTI_AGENT_ENVIRONMENT_H_
