#ifndef FLOTILLA_SERVICES_BASE_JSONL_SINK_H_
#define FLOTILLA_SERVICES_BASE_JSONL_SINK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/metrics.h"
#include "services/base/mutex.h"

namespace flotilla {

// Metrics as JSON, one object a line:
//
//   {"global_step":512,"update":1,"wall_seconds":0.25,"charts/SPS":2048}
//
// A value that is not finite is null: JSON has no word for it. Every line
// reaches the kernel before Write returns.
//
// Thread-safe.
class JsonlSink : public MetricsSink {
 public:
  // Appends to `path`, which is made if absent.
  // Errors: those of open(2), naming the path.
  static absl::StatusOr<std::unique_ptr<JsonlSink>> Open(
      const std::string& path);

  ~JsonlSink() override;

  void Write(int64_t global_step, int64_t update, double wall_seconds,
             std::span<const Metric> metrics) override;

 private:
  JsonlSink(const std::string& path, int fd) : path_(path), fd_(fd) {}

  const std::string path_;
  const int fd_;
  Mutex mu_;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;   // logged once
  bool cut_off_ ABSL_GUARDED_BY(mu_) = false;  // the last line has no end
};

// For a run that goes on from a checkpoint of `update`: moves the lines of
// `path` that came after it, and a last line that a crash cut off, to a new
// file beside it, PATH.after_update_N. Returns how many lines moved; 0 if there
// is no such file. Call it while no sink has `path` open.
absl::StatusOr<int64_t> SetAsideLinesAfter(const std::string& path,
                                           int64_t update);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_JSONL_SINK_H_
