#ifndef FLOTILLA_LEARNER_TRAINING_STRAGGLERS_H_
#define FLOTILLA_LEARNER_TRAINING_STRAGGLERS_H_

#include <cstdint>
#include <future>

#include "flotilla/v1/config.pb.h"
#include "learner/actor/collector.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// Straggler preemption (Wijmans et al. 2020, DD-PPO), seen from one rank: ranks
// tell the coordinator when they have collected; once
// distributed.preemption_fraction of them have, it asks the others to end their
// rollouts short.
//
// Not thread-safe.
class Stragglers {
 public:
  // `coordinator` is borrowed and must outlive this.
  Stragglers(const v1::RunConfig& config, CoordinatorClient* coordinator);

  // When to end the rollout of update `update` short; null where preemption is
  // off. Valid until the next call.
  const Preemption* Begin(uint64_t generation, int64_t update);

  // This rank has collected the whole rollout. Does not wait for the
  // coordinator: one that is away only means that nobody is preempted.
  void Finished();

 private:
  const double fraction_;
  CoordinatorClient* const coordinator_;
  Preemption preemption_;
  uint64_t generation_ = 0;
  int64_t number_ = 0;  // of the update, from 1
  std::future<void> report_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_STRAGGLERS_H_
