#include "learner/nn/initialize.h"

#include <cmath>

namespace flotilla {

void InitializeUniformly(const std::vector<Layer*>& layers, uint64_t seed) {
  torch::NoGradGuard no_grad;
  // On the CPU whatever the device, so that all ranks draw the same numbers.
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (Layer* layer : layers) {
    if (!layer->bias.defined()) {  // an embedding
      layer->weight.copy_(
          torch::empty(layer->weight.sizes()).normal_(0, 1, generator));
      continue;
    }
    const double bound =
        1 / std::sqrt(static_cast<double>(layer->weight[0].numel()));
    for (torch::Tensor* p : {&layer->weight, &layer->bias}) {
      p->copy_(torch::empty(p->sizes()).uniform_(-bound, bound, generator));
    }
  }
}

}  // namespace flotilla
