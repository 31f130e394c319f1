#ifndef FLOTILLA_LEARNER_ALGO_ALGORITHM_H_
#define FLOTILLA_LEARNER_ALGO_ALGORITHM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/collective/collective.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/policy.h"
#include "learner/rollout/rollout.h"
#include "services/base/metrics.h"
#include "services/env/spaces.h"

namespace flotilla {

class ReplayBuffer;

// Where a run stands when an update begins.
struct UpdateContext {
  int64_t update = 0;  // counts from 0
  int64_t global_step =
      0;  // environment steps of all ranks before this rollout
  Collective* collective = nullptr;
};

// Learns from rollouts. PPO, IMPALA and DQN differ only behind this interface;
// the training loop does not know which one it runs.
//
// Not thread-safe: the training loop owns it.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // Called before a rollout is collected: exploration may follow `global_step`,
  // the environment steps of all ranks so far.
  virtual void BeforeCollecting(int64_t global_step) { (void)global_step; }

  // Learns from one rollout and reports what happened, each metric this rank's
  // mean over its samples. May take many gradient steps (PPO's epochs) or none;
  // how many depends on the configuration, on the steps of all ranks before and
  // on reduced values, never on what is in this rank's rollout, or ranks would
  // wait for each other forever.
  // Errors: those of Collective; kInternal if the loss is not finite, on every
  // rank alike, with the weights as they were before that gradient step.
  virtual absl::StatusOr<std::vector<Metric>> Update(
      const Rollout& rollout, const UpdateContext& context) = 0;

  // From the next update on learns as `config` says. It differs from what the
  // algorithm was made of in fields alone that can change in flight
  // (services/base/config_change.h). Between updates. What was learned stays.
  // Errors: kUnimplemented, and nothing changes, if it takes no changes.
  virtual absl::Status Reconfigure(const v1::RunConfig& config) {
    (void)config;
    return absl::UnimplementedError(
        "this algorithm takes no changes in flight");
  }

  // Acts with the weights being trained; borrowed. Only between updates.
  virtual Policy* live_policy() = 0;

  // A frozen copy that another thread may use.
  virtual std::unique_ptr<Policy> Freeze() const = 0;

  // Likewise, and it explores as it does at the end of training, whenever that is
  // called: an earlier self.
  virtual std::unique_ptr<Policy> FreezeForPlay() const { return Freeze(); }

  // The policy's weights, as checkpoints name them: live views.
  virtual std::vector<NamedTensor> Weights() = 0;

  // Everything else Update depends on (optimizer moments, step counts,
  // targets): live views, so that copying into them restores. Not what replay()
  // holds.
  virtual std::vector<NamedTensor> State() = 0;

  // What was seen that it learns from again; null if it keeps nothing. Each
  // rank's is its own.
  virtual ReplayBuffer* replay() { return nullptr; }

  // Call after weights or state were copied into, before anything else.
  virtual void StateWasReplaced() {}
};

// Makes the algorithm `config` names, on `device`, with weights from its seed:
// that row of algorithm_table.h.
// Errors: kInvalidArgument, kUnimplemented when it does not fit `spaces`.
absl::StatusOr<std::unique_ptr<Algorithm>> MakeAlgorithm(
    const v1::RunConfig& config, const Spaces& spaces, torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_ALGORITHM_H_
