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
  // Appends to `path`, which is made if absent, on a line of its own: one that a
  // crash cut off stays as it is.
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

struct LinesSetAside {
  int64_t lines = 0;        // that moved
  int64_t last_update = 0;  // of these
  std::string path;         // where they are now; "" if none moved
};

// For a run that goes on from a checkpoint of `update`: moves the lines of
// `path` that came after it, and a last line that a crash cut off, to a new
// file beside it: PATH.after_update_N, or, where `update` is -1 and the run
// starts over, PATH.before_starting_over. Nothing moves if there is no such
// file. Call it while no sink has `path` open.
absl::StatusOr<LinesSetAside> SetAsideLinesAfter(const std::string& path,
                                                 int64_t update);

// What the first of the latter is called.
std::string BeforeStartingOver(const std::string& path);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_JSONL_SINK_H_
