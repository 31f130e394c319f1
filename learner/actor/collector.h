#ifndef FLOTILLA_LEARNER_ACTOR_COLLECTOR_H_
#define FLOTILLA_LEARNER_ACTOR_COLLECTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "learner/actor/env_pool.h"
#include "learner/nn/policy.h"
#include "learner/rollout/normalizer.h"
#include "learner/rollout/rollout.h"
#include "services/base/random.h"
#include "services/env/spaces.h"

namespace flotilla {

// What came with a rollout.
struct CollectStats {
  struct Episode {
    int64_t row = 0;
    double raw_return = 0;
    int64_t length = 0;                // environment steps
    std::vector<double> metrics = {};  // in the order of EnvSpec.episode_metric
  };
  std::vector<Episode> episodes;
  double env_seconds = 0;        // waiting for environments
  double inference_seconds = 0;  // deciding
  double seconds = 0;            // until the rollout was there
  bool preempted = false;        // it ended short of the rollout's length
};

// Straggler preemption (Wijmans et al. 2020): when to end a rollout short.
struct Preemption {
  std::function<bool()> asked;  // polled, also while environments step
  int64_t min_steps = 1;        // to take whatever is asked; at least 1
};

// Plays an EnvPool with a policy and fills rollouts: for each step and slot,
// receive, decide, send. While one slot's environments step, the next slot's
// batch is decided.
//
//   step t of slot s:  batch --> observation[t], reward[t - 1], ends[t - 1]
//                      policy --> action[t], log_prob[t], value[t]
//
// The observation at T is kept and opens the next rollout: its action is
// decided then, by the next policy. Every observation is copied once, into the
// rollout.
//
// What a recurrent policy remembers is kept here for each row, over the borders
// of rollouts (unless Options.reset_state), and forgotten when an episode ends
// or its environment is lost; the value of a final observation is computed
// before that. The value at T leaves it as it is.
//
// A step with a RowError brings no valid transition. A rollout without a single
// one is collected again, for env.failed_seconds; and where that or worse goes on
// (FailedRows::Alarming), a rollout ends short that often, so that ranks can
// agree on what to do.
//
// Not thread-safe.
class Collector {
 public:
  struct Options {
    // Compute the value of final observations where a time limit ended an
    // episode.
    bool bootstrap_truncation = true;
    // Zero what a recurrent policy remembers at each rollout's start.
    bool reset_state = false;
    // Whether this process is to end: rollouts of nothing are not tried again
    // then. Called while rows fail.
    std::function<bool()> hurry = {};
  };

  // `pool` and `normalizer` (of vector observations and rewards) are borrowed
  // and must outlive this.
  Collector(EnvPool* pool, const Spaces& spaces, int64_t rows,
            const Options& options, Normalizer* normalizer);

  // Fills `rollout` (of the pool's rows and any length; the same storage may be
  // used again). Blocks for length environment steps, or fewer where preempted:
  // the steps not taken are not valid, and what environments bring too late
  // opens the next rollout.
  // Errors: those of EnvPool::Receive.
  absl::Status Collect(Policy* policy, Random* rng, std::stop_token stop,
                       const Preemption* preemption,  // may be null
                       Rollout* rollout, CollectStats* stats);

  // Whether the policy decides right now, rather than environments step. From
  // any thread.
  bool deciding() const { return deciding_; }

 private:
  absl::Status Fill(Policy* policy, Random* rng, std::stop_token stop,
                    const Preemption* preemption, Rollout* r,
                    CollectStats* stats);
  bool Alarmed();
  absl::StatusOr<EnvPool::Event> Receive(int slot, int64_t t, Policy* policy,
                                         std::stop_token stop,
                                         absl::FunctionRef<bool()> give_up,
                                         Rollout* r, CollectStats* stats);
  void Decide(int slot, int64_t t, int64_t end, Policy* policy, Random* rng,
              Rollout* r);
  void StoreObservation(int slot, int64_t t, Rollout* r);
  void Lose(int64_t t, int64_t row, Rollout* r) const;
  void StoreOutcome(int slot, int64_t t, Policy* policy, Rollout* r);
  void Bootstrap(int slot, int64_t t, Policy* policy, Rollout* r);
  void SendActions(int slot, int64_t t, const Rollout& r);
  void Forget(int slot, bool all);

  EnvPool* const pool_;
  Normalizer* const normalizer_;
  const Spaces spaces_;
  const int64_t rows_;
  const Options options_;

  std::atomic<bool> deciding_ = false;
  bool started_ = false;
  std::vector<bool> absent_;  // per slot, at the current step
  // Per slot: actions were sent and not answered. True at a Collect's begin
  // only after one that failed; that answer's transition is then forgotten.
  std::vector<bool> in_flight_;
  std::vector<uint8_t> failed_;  // [rows_per_slot]  in the batch's `error`
  absl::Time cut_at_ = absl::InfinitePast();  // because too many failed
  int64_t state_size_ = 0;                    // S, once a policy has played
  std::vector<float> state_;                  // [B, S]  before the current step
  ObservationStore::Scratch scratch_;
  std::vector<uint8_t> final_row_;     // one final observation
  std::vector<float> clipped_action_;  // [rows_per_slot, A]
  std::vector<std::string> column_;    // what is sent, per action leaf
  std::vector<uint8_t> ended_;         // [rows_per_slot]
  // The last step of the rollout before.
  ObservationStore carried_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_COLLECTOR_H_
