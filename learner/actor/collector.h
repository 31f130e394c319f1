#ifndef FLOTILLA_LEARNER_ACTOR_COLLECTOR_H_
#define FLOTILLA_LEARNER_ACTOR_COLLECTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "learner/actor/env_pool.h"
#include "learner/actor/opponents.h"
#include "learner/actor/stopwatch.h"
#include "learner/kernels/draws.h"
#include "learner/nn/policy.h"
#include "learner/rollout/normalizer.h"
#include "learner/rollout/rollout.h"
#include "services/env/spaces.h"

namespace flotilla {

// What came with a rollout.
struct CollectStats {
  struct Episode {
    int64_t row = 0;
    double raw_return = 0;
    int64_t length = 0;                // environment steps
    std::vector<double> metrics = {};  // in the order of EnvSpec.episode_metric
    int agent = 0;                     // which slot of its environment
  };
  std::vector<Episode> episodes;
  std::vector<GameResult> games;  // against opponents
  double env_seconds = 0;         // waiting for environments
  double inference_seconds = 0;   // deciding
  double seconds = 0;             // until the rollout was there
  bool preempted = false;         // it ended short of the rollout's length
};

// Straggler preemption (Wijmans et al. 2020): when to end a rollout short.
struct Preemption {
  std::function<bool()> asked;  // polled, also while environments step
  int64_t min_steps = 1;        // to take whatever is asked; at least 1
};

// Plays an EnvPool with a policy and fills rollouts. The observation that a
// rollout ends with is kept and opens the next one: its action is decided then,
// by the next policy. Every observation is copied once, into the rollout.
//
// What a recurrent policy remembers is kept here for each row, over the borders
// of rollouts (unless Options.reset_state), and forgotten when an episode ends
// or its environment is lost; the value of a final observation is computed
// before that. The value that a rollout ends with leaves it as it is.
//
// A step with a RowError brings no valid transition. A rollout without a single
// one is collected again, for env.failed_seconds; and where that or worse goes on
// (FailedRows::Alarming), a rollout ends short that often, so that ranks can
// agree on what to do.
//
// Once the process is to end (Options.hurry), a rollout ends short where steps do
// not come within seconds, even with nothing in it.
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
    // then. Stays true. Called while rows fail, and every few milliseconds of
    // waiting.
    std::function<bool()> hurry = {};
    // Of each environment's slots, those that Opponents play.
    int opponent_slots = 0;
  };

  virtual ~Collector() = default;

  // Fills `rollout` (of rows() rows and any length; the same storage may be
  // used again). Blocks for length environment steps, or fewer where preempted:
  // the steps not taken are not valid, and what environments bring too late
  // opens the next rollout. So it is where the process is to end and they bring
  // nothing. `opponents` is read where there are opponent_slots.
  // Errors: those of EnvPool::Receive.
  absl::Status Collect(Policy* policy, Draws* draws, std::stop_token stop,
                       const Preemption* preemption,  // may be null
                       Rollout* rollout, CollectStats* stats,
                       const Opponents* opponents = nullptr);

  // Rows that are learned from: all of the pool's but those of opponents.
  virtual int64_t rows() const = 0;

  // Whether the policy decides right now, rather than environments step. From
  // any thread.
  bool deciding() const { return deciding_; }

 protected:
  // What one Collect goes by.
  struct Task {
    Policy* policy = nullptr;
    Draws* draws = nullptr;
    std::stop_token stop;
    const Preemption* preemption = nullptr;
    Rollout* rollout = nullptr;
    CollectStats* stats = nullptr;
    const Opponents* opponents = nullptr;
  };
  // Times it; while it lives, deciding() says so.
  class Deciding {
   public:
    Deciding(Collector* collector, CollectStats* stats)
        : deciding_(collector->deciding_), watch_(&stats->inference_seconds) {
      deciding_.store(true, std::memory_order_relaxed);
    }
    ~Deciding() { deciding_.store(false, std::memory_order_relaxed); }

   private:
    std::atomic<bool>& deciding_;
    const Stopwatch watch_;
  };

  // `pool` and `normalizer` (of vector observations and rewards) are borrowed
  // and must outlive this.
  Collector(EnvPool* pool, const Spaces& spaces, const Options& options,
            Normalizer* normalizer)
      : pool_(pool),
        normalizer_(normalizer),
        spaces_(spaces),
        options_(options) {}

  virtual absl::Status Fill(const Task& task) = 0;

  // Whether so many rows fail that this rollout is to end short; true once in a
  // while, as long as it is so.
  bool Alarmed();
  // The pool's, timed. Also gives up where the process is to end; see Hurried.
  absl::StatusOr<EnvPool::Event> Receive(int slot, const Task& task,
                                         absl::FunctionRef<bool()> give_up);
  CollectStats::Episode EpisodeOf(int64_t row, const v1::EpisodeEnd& end) const;

  EnvPool* const pool_;
  Normalizer* const normalizer_;
  const Spaces spaces_;
  const Options options_;

 private:
  // Whether the process is to end, and steps on their way have had their time.
  bool Hurried();

  std::atomic<bool> deciding_ = false;
  absl::Time cut_at_ = absl::InfinitePast();  // because too many failed
  std::optional<std::chrono::steady_clock::time_point> hurry_since_;
};

// For the pool's environments: of one agent, or of several. `pool` and
// `normalizer` are borrowed and must outlive it.
std::unique_ptr<Collector> MakeCollector(EnvPool* pool, const Spaces& spaces,
                                         const Collector::Options& options,
                                         Normalizer* normalizer);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_COLLECTOR_H_
