#ifndef FLOTILLA_LEARNER_NN_RESIDENT_POLICY_H_
#define FLOTILLA_LEARNER_NN_RESIDENT_POLICY_H_

#include <cstdint>
#include <vector>

#include "learner/rollout/batch.h"
#include "learner/torch.h"
#include "services/base/random.h"

namespace flotilla {

// Decides on a device about what lies there, and leaves it there: nothing waits.
//
// Random numbers are the host's, drawn row by row as Policy::Decide draws them, so
// that both decide alike to rounding; they travel with what was seen.
//
// As thread-safe as its Policy.
class ResidentPolicy {
 public:
  virtual ~ResidentPolicy() = default;

  // N: numbers that the decision of one row takes.
  virtual int64_t noise_size() const = 0;
  // [rows, N]: uniform in [0, 1) for each choice, then normal for each value.
  virtual void DrawNoise(int64_t rows, Random* rng, double* noise) const = 0;

  struct Decision {
    Actions action;          // [R, ...]
    torch::Tensor log_prob;  // [R] float32
    torch::Tensor value;     // [R] float32
    torch::Tensor state;     // [R, S] after this step; undefined if S is 0
  };
  // What Decide reads beside its arguments, where that stays for all rollouts. Empty:
  // it does not, or numbers of the host count too, so that a decision must not be
  // recorded (device/graph.h).
  virtual std::vector<torch::Tensor> memory() const { return {}; }
  // All on the device. `state` [R, S] is what rows remember before this step, if S
  // is not 0. Without `noise` [R, N] float64 nothing but the value is wanted.
  virtual Decision Decide(const Batch& seen, const torch::Tensor& state,
                          const torch::Tensor& noise) const = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_RESIDENT_POLICY_H_
