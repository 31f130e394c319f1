#ifndef FLOTILLA_LEARNER_ACTOR_LOCKSTEP_COLLECTOR_H_
#define FLOTILLA_LEARNER_ACTOR_LOCKSTEP_COLLECTOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "learner/actor/action_columns.h"
#include "learner/actor/collector.h"
#include "learner/actor/resident_actor.h"

namespace flotilla {

// Of environments with one agent: every row decides every step. For each step
// and slot, receive, decide, send; while one slot's environments step, the next
// slot's batch is decided.
//
//   step t of slot s:  batch --> observation[t], reward[t - 1], ends[t - 1]
//                      policy --> action[t], log_prob[t], value[t]
//
// Not thread-safe.
class LockstepCollector final : public Collector {
 public:
  LockstepCollector(EnvPool* pool, const Spaces& spaces, const Options& options,
                    Normalizer* normalizer);

  int64_t rows() const override { return rows_; }

 private:
  absl::Status Fill(const Task& task) override;
  absl::StatusOr<EnvPool::Event> Take(int slot, int64_t t, const Task& task,
                                      absl::FunctionRef<bool()> give_up);
  void Decide(int slot, int64_t t, int64_t end, Policy* policy, Draws* draws,
              Rollout* r);
  void StoreObservation(int slot, int64_t t, Rollout* r);
  void Lose(int64_t t, int64_t row, Rollout* r) const;
  void StoreOutcome(int slot, int64_t t, Policy* policy, Rollout* r);
  void Bootstrap(int slot, int64_t t, Policy* policy, Rollout* r);
  void SendActions(int slot, int64_t t, const Rollout& r);
  void FindEnded(int slot);
  void Forget(int slot);

  const int64_t rows_;
  // Rollouts that are filled on a device too.
  std::optional<ResidentActor> resident_;
  bool acts_there_ = false;  // the current one is
  std::vector<bool> fresh_;  // per slot: was written since it was decided about
  bool started_ = false;
  bool filled_ = true;        // the rollout before, or there was none
  std::vector<bool> absent_;  // per slot, at the current step
  // Per slot: actions were sent and not answered. True at a Collect's begin
  // only after one that failed; that answer's transition is then forgotten.
  std::vector<bool> in_flight_;
  // Per slot: what was sent in the rollout before, which was filled, came too late
  // for it.
  std::vector<bool> late_;
  std::vector<uint8_t> failed_;  // [rows_per_slot]  in the batch's `error`
  int64_t state_size_ = 0;       // S, once a policy has played
  std::vector<float> state_;     // [B, S]  before the current step
  ObservationStore::Scratch scratch_;
  std::vector<uint8_t> final_row_;  // one final observation
  ActionColumns columns_;
  std::vector<uint8_t> ended_;  // [rows_per_slot]  or failed, or were lost
  // The last step of the rollout before, if that was filled.
  ObservationStore carried_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_LOCKSTEP_COLLECTOR_H_
