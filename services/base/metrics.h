#ifndef FLOTILLA_SERVICES_BASE_METRICS_H_
#define FLOTILLA_SERVICES_BASE_METRICS_H_

#include <cstdint>
#include <span>
#include <string>

namespace flotilla {

// One measurement, named as launcher/README.md lists them: "losses/policy_loss",
// "charts/SPS", "sync/all_reduce_ms".
struct Metric {
  std::string name;
  double value;
  double weight = 1;  // of one rank's in the mean over ranks: its samples
};

// Where measurements go: a JSON-lines file, TensorBoard, a test's vector.
//
// Thread-safe. Never blocks for long and never fails a run: an implementation
// that cannot write logs it once and drops.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  // Records `metrics`, all taken at `global_step` environment steps, after
  // `update` updates and `wall_seconds` of training.
  virtual void Write(int64_t global_step, int64_t update, double wall_seconds,
                     std::span<const Metric> metrics) = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_METRICS_H_
