#include "learner/nn/flat_parameters.h"

namespace flotilla {

FlatParameters::FlatParameters(int64_t size, torch::Device device) {
  const auto f32 = torch::TensorOptions().dtype(torch::kFloat32).device(device);
  parameters = torch::zeros({size}, f32);
  gradient_message = torch::zeros({size + kTail}, f32);
  gradients = gradient_message.narrow(0, 0, size);
}

FlatParameters FlatParameters::Adopt(const std::vector<NamedTensor>& module) {
  torch::NoGradGuard no_grad;
  int64_t size = 0;
  for (const NamedTensor& t : module) size += t.tensor.numel();
  FlatParameters flat(size, module.at(0).tensor.device());
  for (const NamedTensor& t : module) {
    torch::Tensor theirs = t.tensor;
    const torch::Tensor ours = flat.Take(t.name, theirs.sizes());
    flat.named.back().tensor.copy_(theirs);
    theirs.set_requires_grad(true);
    theirs.set_data(flat.named.back().tensor);
    theirs.mutable_grad() = ours.grad();
    flat.leaf.back() = theirs;
  }
  return flat;
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
