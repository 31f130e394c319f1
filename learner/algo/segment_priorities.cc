#include "learner/algo/segment_priorities.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {

std::vector<double> SegmentProbabilities(const torch::Tensor& advantage,
                                         double alpha) {
  const torch::Tensor size = ToHost(advantage.to(torch::kFloat64).abs().sum(0));
  const double* sizes = Host<double>(size);
  std::vector<double> p(size.numel());
  double total = 0;
  for (size_t b = 0; b < p.size(); ++b) {
    p[b] = std::pow(sizes[b], alpha);
    if (!std::isfinite(p[b])) p[b] = 0;
    total += p[b];
  }
  for (double& x : p) x = (x + 1e-6) / (total + 1e-6);
  return p;
}

std::vector<int64_t> DrawSegments(std::vector<double> probabilities,
                                  int64_t count, Random* rng) {
  std::vector<int64_t> drawn;
  while (static_cast<int64_t>(drawn.size()) < count) {
    const double total =
        std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
    double left = rng->Uniform() * total;
    int64_t chosen = -1;
    for (size_t b = 0; b < probabilities.size(); ++b) {
      if (probabilities[b] == 0) continue;
      chosen = static_cast<int64_t>(b);  // the last takes what rounding leaves
      left -= probabilities[b];
      if (left < 0) break;
    }
    drawn.push_back(chosen);
    probabilities[chosen] = 0;
  }
  return drawn;
}

double SegmentWeight(double probability, int64_t segments, double alpha,
                     double beta0, double done) {
  const double beta = beta0 + (1 - beta0) * alpha * done;
  return std::pow(static_cast<double>(segments) * probability, -beta);
}

}  // namespace flotilla
