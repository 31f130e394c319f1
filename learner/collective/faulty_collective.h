#ifndef FLOTILLA_LEARNER_COLLECTIVE_FAULTY_COLLECTIVE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_FAULTY_COLLECTIVE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "learner/collective/collective.h"
#include "learner/collective/first_error.h"
#include "services/base/mutex.h"

namespace flotilla {

// What goes wrong, and when.
struct Fault {
  enum Kind {
    kFail,   // return `error` instead of calling
    kDelay,  // wait for `delay`, then call
    kHang,   // wait for Abort, as for a peer that never comes
    kLate,   // call, and return `error`: the others have the sum
  };
  Kind kind = kFail;
  int64_t call = 1;  // the one it happens to; all calls count, from 1
  absl::Status error = absl::UnavailableError("injected: a peer is lost");
  absl::Duration delay = absl::ZeroDuration();
};

// Another collective with a fault in it, for tests of what uses collectives.
//
// As any collective: not thread-safe, except Abort.
class FaultyCollective : public Collective {
 public:
  FaultyCollective(std::unique_ptr<Collective> inner, Fault fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  bool has_group() const override { return inner_->has_group(); }
  bool on_one_host() const override { return inner_->on_one_host(); }
  absl::Status AllReduceSum(torch::Tensor tensor) override;
  absl::Status AllReduceSumByParts(torch::Tensor tensor,
                                   const Summed& summed) override;
  absl::Status Broadcast(torch::Tensor tensor, int root) override;
  void Abort() override;

  int64_t calls() const { return calls_; }

 private:
  // Counts a call and does what is due. Errors: what the call should return.
  absl::Status Suffer();
  // What a call returns that came to `called`.
  absl::Status After(const absl::Status& called);

  const std::unique_ptr<Collective> inner_;
  const Fault fault_;
  int64_t calls_ = 0;
  FirstError error_;
  Mutex mu_;
  std::condition_variable aborted_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_FAULTY_COLLECTIVE_H_
