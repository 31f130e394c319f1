#ifndef FLOTILLA_LEARNER_NN_FRESH_GRADIENTS_H_
#define FLOTILLA_LEARNER_NN_FRESH_GRADIENTS_H_

#include "learner/nn/flat_parameters.h"
#include "learner/torch.h"

namespace flotilla {

// While it lives, a network's gradients begin at zero, and as many backward passes as
// are wanted add to them. What they are of large weights need not be there before: the
// first that has a product for all of one writes it, where zeros would be written, read
// and added to. After that net.gradients holds all of them.
//
//   {
//     const FreshGradients fresh(net);
//     loss.backward();
//   }
//
// Not for a network that has another one now. Thread-safe between networks.
class FreshGradients {
 public:
  explicit FreshGradients(const FlatParameters& net);
  ~FreshGradients();

  FreshGradients(const FreshGradients&) = delete;
  FreshGradients& operator=(const FreshGradients&) = delete;

  // For a backward pass, of a weight without a gradient: where all of it is to be
  // written, and is weight.grad() from then on. Not defined where none is awaited.
  static torch::Tensor Take(const torch::Tensor& weight);

 private:
  const FlatParameters net_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_FRESH_GRADIENTS_H_
