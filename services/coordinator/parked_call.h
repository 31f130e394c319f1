#ifndef FLOTILLA_SERVICES_COORDINATOR_PARKED_CALL_H_
#define FLOTILLA_SERVICES_COORDINATOR_PARKED_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/base/mutex.h"

namespace flotilla {

// A unary call that is answered later, by whoever comes first: its waiter, its
// deadline, the client going away. It costs no thread while it waits.
//
// Thread-safe. Lives until gRPC is done with it, and as long as anyone holds
// it.
class ParkedCall final : public grpc::ServerUnaryReactor {
 public:
  static std::shared_ptr<ParkedCall> Make();

  // Ends the call with `status`, after `fill` (may be null) has written the
  // response. Returns false, doing nothing, if it has ended already.
  bool Answer(const absl::Status& status,
              const std::function<void()>& fill = nullptr);

  bool answered() const;

  // `forget` runs once if the client goes away; at once if it has already.
  void OnAbandoned(std::function<void()> forget);

  // For gRPC.
  void OnCancel() override;
  void OnDone() override;

 private:
  ParkedCall() = default;

  std::shared_ptr<ParkedCall> self_;  // until OnDone

  mutable Mutex mu_;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> forget_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_PARKED_CALL_H_
