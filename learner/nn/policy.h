#ifndef FLOTILLA_LEARNER_NN_POLICY_H_
#define FLOTILLA_LEARNER_NN_POLICY_H_

#include <cstddef>
#include <cstdint>

#include "learner/kernels/draws.h"
#include "learner/rollout/observations.h"

namespace flotilla {

class ResidentPolicy;

// Where a decision is written, on the host; `discrete` if there are K > 0
// choices, `continuous` if there are A > 0 values.
struct DecisionOutput {
  int64_t* discrete = nullptr;  // [R, K]
  float* continuous = nullptr;  // [R, A]
  float* log_prob = nullptr;    // [R]  of all of them together
  float* value = nullptr;       // [R]
  // Recurrent policies only: after this step. May be Observations::state.
  float* state = nullptr;  // [R, S]
};

// What actors run. Writes into outputs it is given and allocates nothing after
// the first call with a batch size.
//
// Not thread-safe: each actor and evaluator has its own (Algorithm::Freeze). A
// live policy (Algorithm::live_policy) reads the weights being trained and may
// only be used between updates.
class Policy {
 public:
  virtual ~Policy() = default;

  // Samples actions with `draws`, which the caller owns, so that an actor replays
  // exactly: each row takes the same number of places. Or takes the most likely ones
  // if `greedy`, and none.
  virtual void Decide(const Observations& observations, bool greedy,
                      Draws* draws, const DecisionOutput& out) = 0;

  // State values alone; what rows remember stays as it is.
  virtual void Value(const Observations& observations, float* value) = 0;

  // S: numbers of recurrent state in a row, all 0 when an episode begins. The
  // caller keeps them, so that one policy can play any rows. 0: no memory.
  virtual int64_t state_size() const { return 0; }

  // The same policy for what lies on its network's device already; null if it
  // decides on the host alone.
  virtual const ResidentPolicy* resident() const { return nullptr; }
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_POLICY_H_
