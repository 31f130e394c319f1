#ifndef FLOTILLA_ENVSERVER_BATCH_ENVIRONMENT_H_
#define FLOTILLA_ENVSERVER_BATCH_ENVIRONMENT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "envserver/multi_agent_environment.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// How a step left an environment.
enum EpisodeState : uint8_t {
  kPlaying = 0,
  kTerminated = 1,  // the task ended; a time limit is not a termination
  kTruncated = 2,   // a time limit of the environment's own
};

// What one step of E environments of A agents each reads and writes, column by
// column: R = E * A rows, environment e's are [e * A, (e + 1) * A).
struct BatchColumns {
  ConstRow action;              // per leaf, [R, ...], in range; unaligned
  Row observation;              // per leaf, [R, ...]; unaligned
  std::span<float> reward;      // [R]  zeros, until StepAll adds to them
  std::span<EpisodeState> end;  // [E]  kPlaying, until StepAll says otherwise
};

// E environments that step together: the interface for games whose step takes
// less than a virtual call and a message's field would. envs/breakout.h is one,
// envs/snake.h one of several agents. BatchVectorEnv does for it what
// ThreadVectorEnv does for an Environment, which is simpler to write, and the one to
// choose where a step takes a microsecond.
//
// All of an environment's agents decide in every step, and their episodes end
// together. What an environment does is deterministic given its seeds and actions,
// and depends on no other. Steps are not counted: spec().max_episode_steps and the
// automatic reset are applied outside.
//
// Nothing here but CheckFits fails, and nothing throws: what can belongs behind an
// Environment. Not thread-safe; calls on one object never overlap, but may come from
// different threads.
class BatchEnvironment {
 public:
  virtual ~BatchEnvironment() = default;

  // Constant for the object's life.
  virtual const v1::EnvSpec& spec() const = 0;

  // Whether a stream may have so many such environments, in one object or several:
  // asked of one of them, before the others take memory. Errors: kInvalidArgument,
  // naming the options that make them too large.
  virtual absl::Status CheckFits(size_t environments) const {
    static_cast<void>(environments);
    return absl::OkStatus();
  }

  // Starts an episode in one environment and writes its rows of `observation`:
  // per leaf [R, ...].
  virtual void Reset(size_t environment, uint64_t seed,
                     Row observation) noexcept = 0;

  // Advances every environment one step. Writes every byte of the observation,
  // also where an episode ended.
  virtual void StepAll(const BatchColumns& columns) noexcept = 0;

  // Called for each agent of an environment whose episode ended, before the Reset
  // that follows. May add metrics to `end`, which has return and length.
  virtual void GameOver(size_t environment, size_t agent, v1::EpisodeEnd* end) {
    static_cast<void>(environment);
    static_cast<void>(agent);
    static_cast<void>(end);
  }

  // As MultiAgentEnvironment's, of one environment.
  virtual bool renders() const { return false; }
  virtual v1::Frame Render(size_t environment) const {
    static_cast<void>(environment);
    return v1::Frame();
  }
};

// Row `row` of a leaf [R, ...] whose rows are `bytes` each.
template <typename Byte>
std::span<Byte> RowOf(std::span<Byte> leaf, size_t row, size_t bytes) {
  return leaf.subspan(row * bytes, bytes);
}

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_BATCH_ENVIRONMENT_H_
