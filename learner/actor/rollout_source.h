#ifndef FLOTILLA_LEARNER_ACTOR_ROLLOUT_SOURCE_H_
#define FLOTILLA_LEARNER_ACTOR_ROLLOUT_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/actor/collector.h"
#include "learner/actor/env_pool.h"
#include "learner/nn/policy.h"
#include "learner/rollout/normalizer.h"
#include "learner/rollout/rollout.h"
#include "services/env/spaces.h"

namespace flotilla {

// What the trainer gets for one update.
struct Experience {
  const Rollout* rollout = nullptr;  // borrowed until the next call
  CollectStats stats;
  int64_t env_steps = 0;      // valid ones; those of dropped rollouts included
  int64_t policy_lag = 0;     // updates since the rollout's policy was frozen
  int64_t dropped = 0;        // rollouts beyond rollout.max_policy_lag
  std::vector<double> noted;  // the normalizer's Take
};

// Where the trainer's rollouts come from, one an update: collected when asked,
// one ahead, or all the time (see Collection in services/base/config.h).
//
// Every rank takes one rollout an update and waits for it, however it is
// collected: the number of gradient steps depends on no queue.
//
// Not thread-safe: the trainer owns it.
class RolloutSource {
 public:
  virtual ~RolloutSource() = default;

  // A generation begins, in which this learner is `rank`. Waits end, and with
  // them what collects ahead, when `fence` is requested.
  virtual void Begin(int rank, std::stop_token fence) = 0;

  // Experience for `update`, the number of updates behind the weights as they
  // are now. Within a generation updates follow each other. Blocks until it is
  // there; what is collected when asked for may be preempted (null: not).
  // Errors: kCancelled after a fence; those of EnvPool::Receive.
  virtual absl::StatusOr<Experience> Next(int64_t update,
                                          const Preemption* preemption) = 0;

  // The generation is over: forgets what was collected ahead. Blocks until the
  // environments have answered what they were last sent. Idempotent.
  virtual void End() = 0;

  // Whether the policy decides right now, rather than environments step. From
  // any thread.
  virtual bool deciding() const { return false; }
};

// All borrowed and must outlive the source.
struct RolloutSourceOptions {
  v1::RunConfig config;
  Spaces spaces;
  bool pinned = false;
  torch::Device acts_on = torch::kCPU;  // where policies decide
  // Where rollouts are learned from; if that is no CPU they are filled there too, as
  // far as who collects decides there (Rollout::there). Not those of a library's
  // algorithm (custom), which finds all of them on the host whatever this says.
  torch::Device learned_on = torch::kCPU;
  int64_t state_size = 0;  // the policy's
  EnvPool* pool = nullptr;
  Normalizer* normalizer = nullptr;  // of the weights being trained
  Policy* live_policy = nullptr;     // the same, between updates
  std::function<std::unique_ptr<Policy>()> freeze;
  std::function<bool()> hurry = {};  // Collector::Options's
  // Who plays the slots that are not learned from, as of now; null: nobody.
  std::function<std::shared_ptr<const Opponents>()> opponents = [] {
    return nullptr;
  };
};

// A rollout of `rows` rows for them.
Rollout MakeRolloutFor(const RolloutSourceOptions& options, int64_t rows);

Collector::Options CollectorOptions(const RolloutSourceOptions& options);

// The kind that the configuration asks for.
std::unique_ptr<RolloutSource> MakeRolloutSource(RolloutSourceOptions options);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_ROLLOUT_SOURCE_H_
