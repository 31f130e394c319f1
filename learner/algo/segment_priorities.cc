#include "learner/algo/segment_priorities.h"

#include <tuple>

namespace flotilla {

torch::Tensor SegmentProbabilities(const torch::Tensor& advantage,
                                   double alpha) {
  torch::Tensor w = advantage.to(torch::kFloat64).abs().sum(0).pow(alpha);
  w = torch::where(w.isfinite(), w, 0.0);
  return (w + 1e-6) / (w.sum() + 1e-6);
}

torch::Tensor DrawSegments(const torch::Tensor& probabilities, int64_t count,
                           const torch::Tensor& exponential) {
  return std::get<1>((exponential / probabilities)
                         .topk(count, 0, /*largest=*/false, /*sorted=*/true));
}

torch::Tensor SegmentWeights(const torch::Tensor& probability, int64_t segments,
                             double alpha, double beta0, double done) {
  const double beta = beta0 + (1 - beta0) * alpha * done;
  return (probability * static_cast<double>(segments)).pow(-beta);
}

}  // namespace flotilla
