#ifndef FLOTILLA_LEARNER_ACTOR_FAILED_ROWS_H_
#define FLOTILLA_LEARNER_ACTOR_FAILED_ROWS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/mutex.h"

namespace flotilla {

// How many steps and resets of a learner's rows were lost to environments that
// failed, lately and in all, and why the newest did. What they say is logged
// every ten seconds at most.
//
// Thread-safe. Times are the caller's.
class FailedRows {
 public:
  explicit FailedRows(const v1::EnvConfig& env)
      : bucket_(absl::Seconds(env.failed_seconds()) / kBuckets),
        max_share_(env.max_failed_share()),
        owned_(env.num_envs()) {}

  // A batch came for `rows` rows, `lost` of which failed or are pending.
  void NoteBatch(int64_t rows, int64_t lost, absl::Time now);

  // One of them failed. Both are printable (services/base/printable.h).
  void NoteFailure(const std::string& message, const std::string& traceback,
                   absl::Time now);

  // The env.failed_seconds of collecting up to the newest batch. Of what a learner
  // does between two batches, and waits for, a quarter of that counts at most.
  struct Window {
    int64_t rows = 0;   // stepped or reset
    int64_t lost = 0;   // of those
    bool full = false;  // there were rows for that long

    double share() const {
      return rows == 0 ? 0 : static_cast<double>(lost) / rows;
    }
  };
  Window Recent() const;

  // Whether this learner's share alone is above env.max_failed_share, over a
  // full window.
  bool TooMany() const;

  // That, or nothing but failures for a full window: time to agree on it.
  bool Alarming() const;

  int64_t failed() const { return failed_; }  // in all
  int64_t owned() const { return owned_; }    // rows of this learner
  absl::Duration window() const { return bucket_ * kBuckets; }

  // The newest failure, with its traceback on further lines.
  std::string newest() const;

  // "12 environment rows failed; the newest: ..." as last logged, while the
  // newest is not a minute old.
  std::string Trouble(absl::Time now) const;

 private:
  static constexpr int kBuckets = 20;
  struct Bucket {
    int64_t index = -1;  // of the time that it counts
    int64_t rows = 0;
    int64_t lost = 0;
  };

  const absl::Duration bucket_;
  const double max_share_;
  const int64_t owned_;
  std::atomic<int64_t> failed_ = 0;
  std::atomic<bool> lost_any_ = false;

  mutable Mutex mu_;
  absl::Time newest_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Duration collected_ ABSL_GUARDED_BY(mu_);  // in all
  int64_t newest_ ABSL_GUARDED_BY(mu_) = 0;        // its bucket's index
  std::array<Bucket, kBuckets> buckets_ ABSL_GUARDED_BY(mu_);
  std::string message_ ABSL_GUARDED_BY(mu_);
  std::string traceback_ ABSL_GUARDED_BY(mu_);
  absl::Time failed_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time logged_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int64_t logged_ ABSL_GUARDED_BY(mu_) = 0;  // failures by then
  std::string trouble_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_FAILED_ROWS_H_
