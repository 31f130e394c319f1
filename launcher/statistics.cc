#include "launcher/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr double kOutside = 0.025;  // on each side of the interval

// Between the two nearest, as numpy.percentile does.
double Quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - std::floor(at));
}

}  // namespace

double AggregateOf(std::vector<double> values, Aggregate aggregate) {
  size_t cut = 0;  // on each side
  if (aggregate == Aggregate::kIqm) {
    std::sort(values.begin(), values.end());
    cut = values.size() / 4;
  }
  const auto begin = values.begin() + cut, end = values.end() - cut;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

std::vector<std::vector<size_t>> Resamples(size_t runs, size_t count) {
  Random random(HashSeed({runs, count}));
  std::vector<std::vector<size_t>> resamples(count, std::vector<size_t>(runs));
  for (std::vector<size_t>& resample : resamples) {
    for (size_t& run : resample) run = random.Below(runs);
  }
  return resamples;
}

Interval BootstrapInterval(const std::vector<double>& values,
                           Aggregate aggregate,
                           const std::vector<std::vector<size_t>>& resamples) {
  std::vector<double> aggregates, drawn(values.size());
  for (const std::vector<size_t>& resample : resamples) {
    for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = values[resample[i]];
    aggregates.push_back(AggregateOf(drawn, aggregate));
  }
  std::sort(aggregates.begin(), aggregates.end());
  return {Quantile(aggregates, kOutside), Quantile(aggregates, 1 - kOutside)};
}

}  // namespace flotilla
