#ifndef FLOTILLA_LEARNER_NN_FRESH_GRADIENTS_H_
#define FLOTILLA_LEARNER_NN_FRESH_GRADIENTS_H_

#include <vector>

#include "learner/nn/flat_parameters.h"
#include "learner/nn/gradient_factors.h"
#include "learner/torch.h"

namespace flotilla {

// While it lives, backward passes add to gradients that begin at zero, whatever was there
// before; when it ends, net.gradients holds all of them, in their places. Until then a
// large weight's .grad() is undefined, and where its first product is made by a kernel,
// that writes it in its place: zeros need not be written, read and added to.
//
//   {
//     const FreshGradients fresh(net);
//     loss.backward();
//   }
//
// Where several passes add to each other, Settle() is between them.
//
// With `factors`, of a weight of the network's on a CPU that nobody watches
// (gradient_buckets.h), its gradient is left there instead, and what net.gradients holds
// in its place is of no use. The weight may be used once: dies otherwise.
//
// One at a time for a network. Thread-safe between networks.
class FreshGradients {
 public:
  explicit FreshGradients(const FlatParameters& net,
                          GradientFactors* factors = nullptr);
  ~FreshGradients();

  FreshGradients(const FreshGradients&) = delete;
  FreshGradients& operator=(const FreshGradients&) = delete;

  // Between two backward passes: the gradients that Torch made go to their places. Two
  // weights' may be views of one tensor until then, those of w.flatten() + v.flatten()
  // are, and the next pass would add both of its gradients to both. For weights without
  // factors.
  void Settle() const;

  // For a backward pass, of a weight without a gradient: where all of it is to be
  // written, contiguous float32, and is weight.grad() from then on. Undefined where none
  // is awaited.
  static torch::Tensor Take(const torch::Tensor& weight);
  // Likewise, where its factors go; null where they are not awaited.
  static GradientFactors* TakeFactors(const torch::Tensor& weight);

 private:
  struct Weight {
    torch::Tensor leaf, place;
    GradientFactors* factors = nullptr;
  };
  std::vector<Weight> large_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_FRESH_GRADIENTS_H_
