#ifndef FLOTILLA_LEARNER_ACTOR_ROLLOUTS_AHEAD_H_
#define FLOTILLA_LEARNER_ACTOR_ROLLOUTS_AHEAD_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "learner/actor/rollout_source.h"
#include "learner/device/stream.h"
#include "services/base/bounded_queue.h"
#include "services/base/mutex.h"

namespace flotilla {

// Rollouts collected in a thread, with frozen policies, while the trainer
// learns. Next publishes the weights as they are and takes the oldest rollout.
//
//   one ahead      rollout u is collected with the policy of update u - 1,
//                  while that update runs; in a generation's first two with the
//                  first. The same seed gives the same rollouts
//   free running   a rollout is collected with the newest policy there is when
//                  it begins. rollout.queue_capacity of them wait, then the
//                  actor does. Those over rollout.max_policy_lag updates old
//                  are dropped when their turn comes: counted, their steps and
//                  episodes too
//
// Observations and rewards are scaled as they were when the policy was frozen.
//
// On a device the thread decides on a stream of its own, beside the gradient steps:
// decisions do not queue behind those.
class RolloutsAhead : public RolloutSource {
 public:
  explicit RolloutsAhead(RolloutSourceOptions options);
  ~RolloutsAhead() override { End(); }

  void Begin(int rank, std::stop_token fence) override;
  absl::StatusOr<Experience> Next(int64_t update,
                                  const Preemption* preemption) override;
  void End() override;
  bool deciding() const override { return collector_->deciding(); }

 private:
  struct Published {
    int64_t version = 0;
    std::unique_ptr<Policy> policy;
    Normalizer scaling;
    std::shared_ptr<const Opponents> opponents;
    StreamMark frozen;  // where it has its weights
  };
  struct Collected {
    absl::Status status;
    size_t slot = 0;
    CollectStats stats;
    std::vector<double> noted;
    StreamMark filled;
    // Policies that the thread is done with. Their memory is the trainer's stream's,
    // which has to come after `filled` before that is given back.
    std::vector<Published> retired;
  };
  struct FreeSlot {
    size_t slot;
    StreamMark learned;  // from what was in it
  };

  // Ends every wait, here and in the thread.
  void Cancel();
  void CollectUntilCancelled(int rank, std::stop_token stop);
  // Brings `current` up to what rollout `index` is to be collected with; what it was
  // before goes to `retired`. Returns false once cancelled.
  bool AwaitPolicy(int64_t index, int64_t first,
                   std::optional<Published>* current,
                   std::vector<Published>* retired);
  size_t TakeFreeSlot();
  void Release(size_t slot);

  const RolloutSourceOptions options_;
  const bool one_ahead_;
  std::vector<Rollout> slots_;
  std::optional<size_t> lent_;  // the trainer's slot

  // The thread's own.
  Normalizer normalizer_;
  const std::unique_ptr<Collector> collector_;

  // Of one generation.
  std::unique_ptr<BoundedQueue<Collected>> filled_;
  std::stop_source stop_;
  std::optional<std::stop_callback<std::function<void()>>> on_fence_;
  std::thread thread_;

  Mutex mu_;
  std::condition_variable changed_;
  std::deque<Published> published_ ABSL_GUARDED_BY(mu_);  // oldest first
  std::vector<FreeSlot> free_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = true;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_ROLLOUTS_AHEAD_H_
