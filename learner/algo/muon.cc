#include "learner/algo/muon.h"

#include <algorithm>
#include <cmath>

namespace flotilla {
namespace {

// x -> a x + b x^3 + c x^5 of the singular values, step by step: those of
// PufferLib's extensions/muon.cpp.
struct Coefficients {
  double a, b, c;
};
constexpr Coefficients kNewtonSchulz[] = {{4.0848, -6.8946, 2.9270},
                                          {3.9505, -6.3029, 2.6377},
                                          {3.7418, -5.5913, 2.3037},
                                          {2.8769, -3.1427, 1.2046},
                                          {2.8366, -3.0525, 1.2012}};

}  // namespace

torch::Tensor Orthogonalize(const torch::Tensor& matrix) {
  // The smaller Gram matrix of the two; the result is the same.
  const bool tall = matrix.size(0) > matrix.size(1);
  torch::Tensor x = tall ? matrix.t() : matrix;
  x = x / x.norm().clamp_min(1e-7);
  for (const auto& [a, b, c] : kNewtonSchulz) {
    const torch::Tensor gram = x.mm(x.t());
    const torch::Tensor weights = torch::addmm(gram, gram, gram, b, c);
    x = torch::addmm(x, weights, x, a, 1);
  }
  return tall ? x.t() : x;
}

void MuonStep(const FlatParameters& net, double momentum, double learning_rate,
              torch::Tensor* buffer) {
  buffer->mul_(momentum).add_(net.gradients);
  const torch::Tensor update = net.gradients.add(*buffer, momentum);
  int64_t offset = 0;
  for (const NamedTensor& p : net.named) {
    const int64_t size = p.tensor.numel();
    const torch::Tensor u = update.narrow(0, offset, size);
    torch::Tensor parameter = net.parameters.narrow(0, offset, size);
    offset += size;
    if (p.tensor.dim() < 2) {
      parameter.sub_(u, learning_rate);
      continue;
    }
    const int64_t rows = p.tensor.size(0), columns = size / rows;
    const double scale =
        std::sqrt(std::max(1.0, static_cast<double>(rows) / columns));
    parameter.view({rows, columns})
        .sub_(Orthogonalize(u.view({rows, columns})), learning_rate * scale);
  }
}

}  // namespace flotilla
