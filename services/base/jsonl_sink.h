#ifndef FLOTILLA_SERVICES_BASE_JSONL_SINK_H_
#define FLOTILLA_SERVICES_BASE_JSONL_SINK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/append_file.h"
#include "services/base/metrics.h"
#include "services/base/mutex.h"

namespace flotilla {

// Metrics as JSON, one object a line:
//
//   {"global_step":512,"update":1,"wall_seconds":0.25,"charts/SPS":2048}
//
// A value that is not finite is null: JSON has no word for it. Every line
// reaches the kernel before Write returns, or waits for room on a full disk.
//
// Thread-safe.
class JsonlSink : public MetricsSink {
 public:
  // Appends to `path`, which is made if absent.
  // Errors: those of open(2), naming the path.
  static absl::StatusOr<std::unique_ptr<JsonlSink>> Open(
      const std::string& path);

  void Write(int64_t global_step, int64_t update, double wall_seconds,
             std::span<const Metric> metrics) override;

 private:
  explicit JsonlSink(std::unique_ptr<AppendFile> file)
      : file_(std::move(file)) {}

  Mutex mu_;
  const std::unique_ptr<AppendFile> file_ ABSL_PT_GUARDED_BY(mu_);
};

// For a run that goes on from a checkpoint of `update`: moves the lines of
// `path` that came after it, and a last line that a crash cut off, to a new
// file beside it, PATH.after_update_N. Returns how many lines moved; 0 if there
// is no such file. Call it while no sink has `path` open.
absl::StatusOr<int64_t> SetAsideLinesAfter(const std::string& path,
                                           int64_t update);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_JSONL_SINK_H_
