#ifndef FLOTILLA_LAUNCHER_STATISTICS_H_
#define FLOTILLA_LAUNCHER_STATISTICS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace flotilla {

// What runs have in common, and how sure that is (Agarwal et al. 2021, rliable).

enum class Aggregate {
  kMean,
  // Interquartile mean: of what is left without the lowest and the highest
  // quarter. Outliers count less than in a mean, and fewer runs are thrown away
  // than by a median.
  kIqm,
};

// Of at least one value, none of them NaN.
double AggregateOf(std::vector<double> values, Aggregate aggregate);

// Which runs each of `count` resamples is made of: as many as there are, drawn
// with replacement. rliable draws so within each task; here all runs are of one.
// The same for the same arguments.
std::vector<std::vector<size_t>> Resamples(size_t runs, size_t count);

// The interval that holds the aggregate of 95 % of `resamples` of `values`
// (percentiles of the bootstrap).
struct Interval {
  double low = 0, high = 0;
};
Interval BootstrapInterval(const std::vector<double>& values,
                           Aggregate aggregate,
                           const std::vector<std::vector<size_t>>& resamples);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_STATISTICS_H_
