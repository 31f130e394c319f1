#ifndef FLOTILLA_SERVICES_BASE_TENSORBOARD_SINK_H_
#define FLOTILLA_SERVICES_BASE_TENSORBOARD_SINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "services/base/append_file.h"
#include "services/base/metrics.h"
#include "services/base/mutex.h"

namespace flotilla {

// Metrics as scalars in an event file that TensorBoard reads, against
// global_step. Each Write is one record: no Protobuf of TensorFlow's is needed
// for three messages of five fields.
//
// Thread-safe.
class TensorboardSink : public MetricsSink {
 public:
  // Starts a new event file in `directory`, which is made if absent. With
  // `resume_step`, TensorBoard drops what older files of the directory hold
  // past that step: the run went back to it.
  // Errors: those of mkdir(2) and open(2), naming the path.
  static absl::StatusOr<std::unique_ptr<TensorboardSink>> Open(
      const std::string& directory,
      std::optional<int64_t> resume_step = std::nullopt);

  void Write(int64_t global_step, int64_t update, double wall_seconds,
             std::span<const Metric> metrics) override;

 private:
  explicit TensorboardSink(std::unique_ptr<AppendFile> file)
      : file_(std::move(file)) {}

  Mutex mu_;
  const std::unique_ptr<AppendFile> file_ ABSL_PT_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_TENSORBOARD_SINK_H_
