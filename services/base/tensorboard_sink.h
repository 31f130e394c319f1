#ifndef FLOTILLA_SERVICES_BASE_TENSORBOARD_SINK_H_
#define FLOTILLA_SERVICES_BASE_TENSORBOARD_SINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
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

  ~TensorboardSink() override;

  void Write(int64_t global_step, int64_t update, double wall_seconds,
             std::span<const Metric> metrics) override;

 private:
  TensorboardSink(const std::string& path, int fd) : path_(path), fd_(fd) {}

  // Appends one TFRecord. False if the file could not take it whole.
  bool Append(const std::string& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  const int fd_;
  Mutex mu_;
  // A record cut short ends the file for every reader: nothing more is written.
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_TENSORBOARD_SINK_H_
