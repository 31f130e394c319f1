#ifndef FLOTILLA_LEARNER_ACTOR_AGENT_COLLECTOR_H_
#define FLOTILLA_LEARNER_ACTOR_AGENT_COLLECTOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "learner/actor/action_columns.h"
#include "learner/actor/collector.h"

namespace flotilla {

// Of environments with several agents, whose slots need not decide every step
// (StepBatch.active). A rollout counts a slot's own decisions: each row has a
// place of its own in it, which moves on when the slot decides again or its
// episode ends. What comes in between is summed up:
//
//   a game of turns       slot 0 decides . decides . decides .
//                         slot 1 . decides . decides . decides(wins)
//   row 0 of the rollout  decision, decision, decision: reward -1, terminated
//   row 1 of the rollout  decision, decision, decision: reward  1, terminated
//
// so that nothing behind it knows of turns. A rollout ends when its fullest row
// is full; others are padded with steps that are not valid. A decision whose
// outcome is still to come then opens the next rollout, with what its policy said
// of it.
//
// Slots that Opponents play get no row. Which those are rotates: of environment e
// slots e, e + 1, ... (modulo the agents).
//
// Not thread-safe.
class AgentCollector final : public Collector {
 public:
  AgentCollector(EnvPool* pool, const Spaces& spaces, const Options& options,
                 Normalizer* normalizer);

  int64_t rows() const override { return rows_; }

 private:
  // One agent's slot of one environment.
  struct Seat {
    int64_t row = 0;       // of the rollout; of opponents, of `aside_`
    bool learns = true;    // false: played by the game's opponent
    int64_t at = 0;        // where it decides next, or has decided
    bool due = false;      // observes `at`, and is to decide
    bool pending = false;  // decided at `at`; the outcome is still to come
    bool fresh = true;     // what it sees next begins an episode
  };
  // One environment.
  struct Game {
    Opponents::Player opponent;
    bool chosen = false;                 // for the episode that is played
    double learners = 0, opponents = 0;  // returns in this episode, summed
  };

  absl::Status Fill(const Task& task) override;
  void Begin(const Task& task);
  void Carry(int slot, const Rollout& r);

  // What a batch brings to the slot's seats. Errors: those of EnvPool::Receive.
  absl::StatusOr<EnvPool::Event> Take(int slot, const Task& task,
                                      absl::FunctionRef<bool()> give_up);
  void TakeEpisodes(int slot, const Task& task);
  void TakeOutcome(int slot, int i, const Task& task);
  void TakeObservation(int slot, int i, Rollout* r);
  void Bootstrap(int slot, int i, const Task& task);
  // The seat's decision has come to its outcome, or was lost.
  void Complete(Seat* seat, bool valid, bool ended, Rollout* r);
  void Lose(Seat* seat, int64_t index, Rollout* r);

  // Whether a rollout of T steps has no place for another decision of the slot.
  bool Full(int slot, int64_t T) const;
  void Decide(int slot, const Task& task);
  void DecideFor(std::span<const int64_t> seats, Policy* policy,
                 const Task& task);
  // What the slot's seats see is worth, where they are not to decide yet.
  void Value(int slot, const Task& task);

  // Shows `policy` what the seats see, at `see_`.
  void Gather(std::span<const int64_t> seats, int64_t state_size, Rollout* r);
  Policy* PlayerOf(int64_t seat, const Task& task);
  ObservationStore* StoreOf(const Seat& seat, Rollout* r) {
    return seat.learns ? &r->observation : &aside_;
  }
  std::span<float> StateOf(int64_t seat) {
    return std::span(state_).subspan(seat * state_size_, state_size_);
  }

  const int agents_;
  int64_t rows_ = 0;         // B
  std::vector<Seat> seats_;  // of all environments, in the pool's order
  std::vector<Game> games_;
  std::vector<bool> started_;    // per slot: something has come
  std::vector<bool> in_flight_;  // per slot: actions were sent and not answered
  bool filled_ = true;           // the Fill before ended well

  int64_t state_size_ = 0;     // S, once a policy has played
  std::vector<float> state_;   // [seats, S]  before the next decision
  std::vector<float> before_;  // [B, S]  before the decision that is pending

  Rollout carried_;         // of one step: what opens the next rollout
  ObservationStore aside_;  // the newest that opponents saw

  // Of the decision being made, of M seats.
  Batch seen_;
  std::vector<const void*> pointers_;
  Observations see_;
  std::vector<int64_t> deciding_seats_;
  std::vector<float> row_state_, next_state_;
  std::vector<float> value_, log_prob_, continuous_;
  std::vector<int64_t> discrete_;
  ObservationStore::Scratch scratch_;
  std::vector<uint8_t> final_row_;

  // What the slot is sent: [R, K], [R, A].
  std::vector<int64_t> sent_discrete_;
  std::vector<float> sent_continuous_;
  ActionColumns columns_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_AGENT_COLLECTOR_H_
