#include "learner/collective/faulty_collective.h"

#include "services/base/status_macros.h"
#include "services/base/steady_now.h"

namespace flotilla {

absl::Status FaultyCollective::Suffer() {
  if (++calls_ == fault_.call) {
    switch (fault_.kind) {
      case Fault::kFail:
        error_.Set(fault_.error);
        inner_->Abort();  // the object is dead, and peers notice
        break;
      case Fault::kDelay:
      case Fault::kHang: {
        const absl::Time until = fault_.kind == Fault::kHang
                                     ? absl::InfiniteFuture()
                                     : SteadyNow() + fault_.delay;
        MutexLock lock(&mu_);
        while (!error_.is_set() && SteadyNow() < until) {
          lock.WaitFor(&aborted_, until - SteadyNow());
        }
        break;
      }
      case Fault::kLate:
        break;
    }
  }
  return error_.Get();
}

absl::Status FaultyCollective::After(const absl::Status& called) {
  if (calls_ == fault_.call && fault_.kind == Fault::kLate) {
    error_.Set(fault_.error);
    return error_.Get();
  }
  return called;
}

absl::Status FaultyCollective::AllReduceSum(torch::Tensor tensor) {
  RETURN_IF_ERROR(Suffer());
  return After(inner_->AllReduceSum(std::move(tensor)));
}

absl::Status FaultyCollective::AllReduceSumByParts(torch::Tensor tensor,
                                                   const Summed& summed) {
  RETURN_IF_ERROR(Suffer());
  return After(inner_->AllReduceSumByParts(std::move(tensor), summed));
}

absl::Status FaultyCollective::Broadcast(torch::Tensor tensor, int root) {
  RETURN_IF_ERROR(Suffer());
  return After(inner_->Broadcast(std::move(tensor), root));
}

void FaultyCollective::Abort() {
  error_.Set(absl::AbortedError("the collective was aborted"));
  inner_->Abort();
  // Under the lock: a thread that is about to wait has not missed it.
  MutexLock lock(&mu_);
  aborted_.notify_all();
}

}  // namespace flotilla
