#include "learner/actor/failed_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace flotilla {
namespace {

constexpr absl::Duration kLogPeriod = absl::Seconds(10);
constexpr absl::Duration kTroublePeriod = absl::Minutes(1);

}  // namespace

void FailedRows::NoteBatch(int64_t rows, int64_t lost, absl::Time now) {
  MutexLock lock(&mu_);
  collected_ +=
      std::clamp(now - newest_at_, absl::ZeroDuration(), window() / 4);
  newest_at_ = now;
  newest_ = collected_ / bucket_;
  Bucket& bucket = buckets_[newest_ % kBuckets];
  if (bucket.index != newest_) bucket = {.index = newest_};
  bucket.rows += rows;
  bucket.lost += lost;
  if (lost > 0) lost_any_ = true;
}

void FailedRows::NoteFailure(const std::string& message,
                             const std::string& traceback, absl::Time now) {
  const int64_t failed = ++failed_;
  MutexLock lock(&mu_);
  message_ = message;
  traceback_ = traceback;
  failed_at_ = now;
  if (now - logged_at_ < kLogPeriod) return;
  const int64_t others = failed - logged_ - 1;
  LOG(WARNING) << "an environment failed: " << message
               << (others > 0 ? absl::StrCat(" (and ", others,
                                             " before it, since the last such "
                                             "line)")
                              : "")
               << (traceback.empty() ? "" : "\n") << traceback;
  logged_at_ = now;
  logged_ = failed;
  trouble_ =
      absl::StrCat(failed, " environment rows failed; the newest: ", message);
}

FailedRows::Window FailedRows::Recent() const {
  Window window;
  MutexLock lock(&mu_);
  for (const Bucket& bucket : buckets_) {
    if (bucket.index <= newest_ - kBuckets) continue;
    window.rows += bucket.rows;
    window.lost += bucket.lost;
  }
  window.full = newest_ >= kBuckets;
  return window;
}

bool FailedRows::TooMany() const {
  if (!lost_any_) return false;
  const Window recent = Recent();
  return recent.full && recent.share() > max_share_;
}

bool FailedRows::Alarming() const {
  if (!lost_any_) return false;
  const Window recent = Recent();
  return recent.full &&
         (recent.share() > max_share_ || recent.lost == recent.rows);
}

std::string FailedRows::newest() const {
  MutexLock lock(&mu_);
  if (message_.empty()) return "no reason was given";
  return absl::StrCat(message_, traceback_.empty() ? "" : "\n", traceback_);
}

std::string FailedRows::Trouble(absl::Time now) const {
  MutexLock lock(&mu_);
  if (now - failed_at_ > kTroublePeriod) return "";
  return trouble_;
}

}  // namespace flotilla
