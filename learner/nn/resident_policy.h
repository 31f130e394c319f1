#ifndef FLOTILLA_LEARNER_NN_RESIDENT_POLICY_H_
#define FLOTILLA_LEARNER_NN_RESIDENT_POLICY_H_

#include <cstdint>
#include <vector>

#include "learner/rollout/batch.h"
#include "learner/torch.h"

namespace flotilla {

// Decides on a device about what lies there, and leaves it there: nothing waits.
//
// Random numbers are those that Policy::Decide would draw, so that both decide alike
// to rounding: the host says where they are, and the device draws them.
//
// As thread-safe as its Policy.
class ResidentPolicy {
 public:
  virtual ~ResidentPolicy() = default;

  // N: places that the decision of one row takes (kernels/draws.h).
  virtual int64_t noise_size() const = 0;
  // How often rows do anything instead of what the network says. It may change from
  // one decision to the next.
  virtual double exploration() const { return 0; }

  // What is left to chance, as a graph reads it from its message.
  struct Chance {
    torch::Tensor stream;       // [2] int64  what Draws::Take(R * N) gave
    torch::Tensor exploration;  // [1] float64
  };

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
  // is not 0. Without a stream nothing but the value is wanted.
  virtual Decision Decide(const Batch& seen, const torch::Tensor& state,
                          const Chance& chance) const = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_RESIDENT_POLICY_H_
