#ifndef FLOTILLA_LEARNER_NN_FLAT_PARAMETERS_H_
#define FLOTILLA_LEARNER_NN_FLAT_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "learner/torch.h"

namespace flotilla {

// A tensor with the name it has in checkpoints.
struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// A network's parameters in one buffer and their gradients in another, so that
// an all-reduce, a clip and an optimizer step are each one pass over memory.
// Copies are views of the same memory.
struct FlatParameters {
  // Numbers that travel behind the gradients in one all-reduce.
  static constexpr int kTail = 3;

  FlatParameters() = default;
  FlatParameters(int64_t size, torch::Device device);

  // The next parameter: a leaf that is a view into `parameters`, with its
  // gradient a view into `gradients`, which large ones lack while a FreshGradients
  // lives. All of them together take `size` numbers.
  torch::Tensor Take(const std::string& name, torch::IntArrayRef shape);

  // Of parameters that are there already, any module's: float32 and on one
  // device. They keep their values, and are views into `parameters` from now on.
  static FlatParameters Adopt(const std::vector<NamedTensor>& module);

  torch::Tensor parameters;         // [P] float32
  torch::Tensor gradient_message;   // [P + kTail] float32
  torch::Tensor gradients;          // [P]  the message's beginning
  std::vector<NamedTensor> named;   // views into `parameters`, in its order
  std::vector<torch::Tensor> leaf;  // the same, as autograd knows them

  int64_t size() const { return parameters.numel(); }
  torch::Device device() const { return parameters.device(); }
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_FLAT_PARAMETERS_H_
