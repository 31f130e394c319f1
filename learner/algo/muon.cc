#include "learner/algo/muon.h"

#include <algorithm>
#include <cmath>

#include "learner/device/host.h"
#include "learner/kernels/flush_denormals.h"
#include "learner/kernels/newton_schulz.h"

namespace flotilla {

torch::Tensor Orthogonalize(const torch::Tensor& matrix, bool bfloat16) {
  if (bfloat16 && matrix.is_cpu() && BestKernels().has_tiles) {
    const torch::Tensor given = matrix.contiguous();
    const torch::Tensor orthogonal = torch::empty_like(given);
    OrthogonalizeByTiles(given.size(0), given.size(1), Host<float>(given),
                         Host<float>(orthogonal));
    return orthogonal;
  }
  // The smaller Gram matrix of the two; the result is the same.
  const bool tall = matrix.size(0) > matrix.size(1);
  torch::Tensor x = tall ? matrix.t() : matrix;
  x = x / x.norm().clamp_min(kSmallestNorm);
  for (const auto& [a, b, c] : kNewtonSchulz) {
    const torch::Tensor gram = x.mm(x.t());
    const torch::Tensor weights = torch::addmm(gram, gram, gram, b, c);
    x = torch::addmm(x, weights, x, a, 1);
  }
  return tall ? x.t() : x;
}

void MuonStep(const FlatParameters& net, double momentum, double learning_rate,
              bool bfloat16, torch::Tensor* buffer) {
  // Threads that Torch starts keep for ever what their maker has now.
  if (at::get_num_threads() > 1) {
    at::parallel_for(0, at::get_num_threads(), 1, [](int64_t, int64_t) {});
  }
  // Of a policy that is sure of itself gradients get small, their Gram matrices smaller.
  // Of this thread: what others multiply for it is not flushed.
  const FlushDenormals flush;
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
        .sub_(Orthogonalize(u.view({rows, columns}), bfloat16),
              learning_rate * scale);
  }
}

}  // namespace flotilla
