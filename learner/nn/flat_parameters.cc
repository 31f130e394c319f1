#include "learner/nn/flat_parameters.h"

namespace flotilla {

FlatParameters::FlatParameters(int64_t size, torch::Device device) {
  const auto f32 = torch::TensorOptions().dtype(torch::kFloat32).device(device);
  parameters = torch::zeros({size}, f32);
  gradient_message = torch::zeros({size + kTail}, f32);
  gradients = gradient_message.narrow(0, 0, size);
}

torch::Tensor FlatParameters::Take(const std::string& name,
                                   torch::IntArrayRef shape) {
  int64_t taken = 0;
  for (const NamedTensor& t : named) taken += t.tensor.numel();
  const int64_t n = c10::multiply_integers(shape);
  torch::Tensor p = parameters.narrow(0, taken, n).view(shape).detach();
  named.push_back({name, p.detach()});
  p.set_requires_grad(true);
  p.mutable_grad() = gradients.narrow(0, taken, n).view(shape);
  leaf.push_back(p);
  return p;
}

}  // namespace flotilla
