#ifndef FLOTILLA_SERVICES_COORDINATOR_STATUS_STREAM_H_
#define FLOTILLA_SERVICES_COORDINATOR_STATUS_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "services/base/mutex.h"

namespace flotilla {

// The server's end of one WatchStatus call.
//
// Thread-safe. Lives until gRPC is done with it, and as long as anyone holds
// it.
class StatusStream final : public grpc::ServerWriteReactor<v1::Status> {
 public:
  static std::shared_ptr<StatusStream> Start(absl::Duration interval);

  // Whether a status should be sent: it changed, or the interval is over, and
  // the one before is out.
  bool Wants(uint64_t version, absl::Time now) const;

  void Send(std::shared_ptr<const v1::Status> status, uint64_t version,
            absl::Time now);
  void Close(const absl::Status& status);
  bool over() const;

  // For gRPC.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit StatusStream(absl::Duration interval) : interval_(interval) {}

  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const absl::Duration interval_;
  std::shared_ptr<StatusStream> self_;  // until OnDone

  mutable Mutex mu_;
  std::shared_ptr<const v1::Status> status_
      ABSL_GUARDED_BY(mu_);  // gRPC's while writing_
  uint64_t sent_version_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time sent_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_STATUS_STREAM_H_
