#ifndef FLOTILLA_LEARNER_COLLECTIVE_SOLO_COLLECTIVE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_SOLO_COLLECTIVE_H_

#include "learner/collective/collective.h"
#include "learner/collective/first_error.h"

namespace flotilla {

// A world of one: the sum is what is there. Fails only once aborted.
class SoloCollective : public Collective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  bool has_group() const override { return false; }

  absl::Status AllReduceSum(torch::Tensor) override { return error_.Get(); }
  absl::Status Broadcast(torch::Tensor, int) override { return error_.Get(); }

  void Abort() override {
    error_.Set(absl::AbortedError("the collective was aborted"));
  }

 private:
  FirstError error_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_SOLO_COLLECTIVE_H_
