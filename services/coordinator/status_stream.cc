#include "services/coordinator/status_stream.h"

#include <algorithm>
#include <utility>

#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

// However much changes, no more often than this.
constexpr absl::Duration kLeastInterval = absl::Milliseconds(100);
constexpr absl::Duration kDefaultInterval = absl::Seconds(1);

}  // namespace

std::shared_ptr<StatusStream> StatusStream::Start(absl::Duration interval) {
  if (interval <= absl::ZeroDuration()) interval = kDefaultInterval;
  std::shared_ptr<StatusStream> stream(
      new StatusStream(std::max(interval, kLeastInterval)));
  stream->self_ = stream;
  return stream;
}

bool StatusStream::Wants(uint64_t version, absl::Time now) const {
  MutexLock lock(&mu_);
  if (writing_ || finished_ || closing_.has_value()) return false;
  const absl::Duration since = now - sent_at_;
  return since >= interval_ ||
         (version != sent_version_ && since >= kLeastInterval);
}

void StatusStream::Send(std::shared_ptr<const v1::Status> status,
                        uint64_t version, absl::Time now) {
  MutexLock lock(&mu_);
  if (writing_ || finished_ || closing_.has_value()) return;
  status_ = std::move(status);
  sent_version_ = version;
  sent_at_ = now;
  writing_ = true;
  StartWrite(status_.get());
}

void StatusStream::Close(const absl::Status& status) {
  MutexLock lock(&mu_);
  if (!closing_.has_value()) closing_ = status;
  Proceed();
}

bool StatusStream::over() const {
  MutexLock lock(&mu_);
  return finished_;
}

void StatusStream::Proceed() {
  if (writing_ || finished_ || !closing_.has_value()) return;
  finished_ = true;
  Finish(ToGrpc(*closing_));
}

void StatusStream::OnWriteDone(bool ok) {
  MutexLock lock(&mu_);
  writing_ = false;
  if (!ok && !closing_.has_value()) {
    closing_ = absl::CancelledError("the client went away");
  }
  Proceed();
}

void StatusStream::OnCancel() {
  Close(absl::CancelledError("the client went away"));
}

void StatusStream::OnDone() {
  const std::shared_ptr<StatusStream> self = std::move(self_);
}

}  // namespace flotilla
