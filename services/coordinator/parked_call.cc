#include "services/coordinator/parked_call.h"

#include <utility>

#include "services/rpc/grpc_status.h"

namespace flotilla {

std::shared_ptr<ParkedCall> ParkedCall::Make() {
  std::shared_ptr<ParkedCall> call(new ParkedCall);
  call->self_ = call;
  return call;
}

bool ParkedCall::Answer(const absl::Status& status,
                        const std::function<void()>& fill) {
  {
    MutexLock lock(&mu_);
    if (answered_) return false;
    answered_ = true;
  }
  // The response is ours from here to Finish, and gRPC's after it.
  if (fill && status.ok()) fill();
  Finish(ToGrpc(status));
  return true;
}

bool ParkedCall::answered() const {
  MutexLock lock(&mu_);
  return answered_;
}

void ParkedCall::OnAbandoned(std::function<void()> forget) {
  {
    MutexLock lock(&mu_);
    if (!abandoned_) {
      if (!answered_) forget_ = std::move(forget);
      return;
    }
  }
  forget();
}

void ParkedCall::OnCancel() {
  if (!Answer(absl::CancelledError("the client went away"))) return;
  std::function<void()> forget;
  {
    MutexLock lock(&mu_);
    abandoned_ = true;
    forget = std::exchange(forget_, nullptr);
  }
  if (forget) forget();
}

void ParkedCall::OnDone() { self_.reset(); }

}  // namespace flotilla
