#ifndef FLOTILLA_ENVSERVER_ENVIRONMENT_H_
#define FLOTILLA_ENVSERVER_ENVIRONMENT_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envserver/multi_agent_environment.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// One environment: the interface you implement to add a task. See
// envs/cartpole.h for a complete one, what `flotilla new environment` writes for
// one in a program of its own, registry.h for how it is named and what options
// it declares, and multi_agent_environment.h if it has several agents.
//
// An implementation is deterministic given its seeds and actions, writes every
// byte of `observation`, and does not count steps: ThreadVectorEnv applies
// spec().max_episode_steps and the automatic reset.
//
// An error or an exception costs the learner that row's episode. The next one begins
// by a Reset of the same object; with --renew-failed, or where that Reset fails too,
// by that of one made anew. Not thread-safe; calls on one object never overlap, but may come
// from different threads.
class Environment : public MultiAgentEnvironment {
 public:
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

 private:
  absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) final {
    return Reset(seed, slots[0].observation);
  }

  absl::Status StepSlots(std::span<Slot> slots) final {
    absl::StatusOr<Outcome> outcome =
        Step(slots[0].action, slots[0].observation);
    if (!outcome.ok()) return outcome.status();
    slots[0].outcome = *outcome;
    return absl::OkStatus();
  }

  bool SlotGameOver(size_t, v1::EpisodeEnd* end) final { return GameOver(end); }
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVIRONMENT_H_
