#ifndef FLOTILLA_LAUNCHER_CURVE_H_
#define FLOTILLA_LAUNCHER_CURVE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace flotilla {

// One metric of one run.
struct Curve {
  std::vector<std::pair<double, double>> points;  // by x, all finite
  int not_finite = 0;  // values that were left out: NaN and infinity
  // What the metrics are called, where this one is not among them.
  std::set<std::string> other_names;
};

// Reads `metric` against `x` ("global_step", "wall_seconds") of a metrics.jsonl.
// What is no line of ours, such as one that was cut off, is left out; of a file
// that is not there, everything.
Curve ReadCurve(const std::string& path, const std::string& metric,
                const std::string& x);

// Between its points on straight lines, and its first or last value outside of
// them. `curve` has a point.
double ValueAt(const Curve& curve, double x);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_CURVE_H_
