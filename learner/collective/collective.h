#ifndef FLOTILLA_LEARNER_COLLECTIVE_COLLECTIVE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_COLLECTIVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/torch.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// How the learners of one generation combine tensors.
//
// Every rank makes the same calls in the same order, with equal shapes and
// dtypes. Whether to call is decided only from what all ranks share: the
// config, a step count, an earlier all-reduce. Never a clock, a queue or a
// local loss.
//
// The sum is the same bits on every rank. After an error the object is dead:
// join the next generation and make another. Not thread-safe, except Abort.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // False where nobody is reached: a sum is what is there, and need not be asked
  // for. A group of one has a group (distributed.force_group).
  virtual bool has_group() const { return true; }

  // Whether all ranks are processes of one host, and so have one CPU's instructions:
  // what each of them computes from the same numbers is the same bits. May be false
  // where nobody knows.
  virtual bool on_one_host() const { return !has_group(); }

  // Replaces `tensor` (contiguous; float32, float64, int64, or bfloat16, which is
  // summed in float32 and rounded once) on every rank by the sum over ranks, in
  // place. On CUDA the work is queued on the current stream and may not have run
  // on return.
  // Errors: kUnavailable if a peer is lost; kDeadlineExceeded after
  // distributed.timeout_seconds; kAborted after Abort or a fence.
  virtual absl::Status AllReduceSum(torch::Tensor tensor) = 0;

  // The same for float32 on the host; `summed` is called with a first number and how
  // many, kSummedPart but for the last ones, once they are summed: for who would read
  // all of them again.
  using Summed = std::function<void(int64_t first, int64_t count)>;
  static constexpr int64_t kSummedPart = 1 << 15;
  virtual absl::Status AllReduceSumByParts(torch::Tensor tensor,
                                           const Summed& summed);

  // Copies `tensor` from rank `root` to all others, in place. Errors as above.
  virtual absl::Status Broadcast(torch::Tensor tensor, int root) = 0;

  // Makes pending and later calls on this rank fail. From any thread.
  virtual void Abort() = 0;

  // What every rank gave as `mine`, of any length, by rank, on rank `root`; {} on
  // the others. For what is small: all of it passes through every rank.
  // Errors: as above, and kResourceExhausted on every rank for more than
  // kMostGatheredBytes together.
  static constexpr int64_t kMostGatheredBytes = 64 << 20;
  absl::StatusOr<std::vector<std::string>> GatherBytes(std::string mine,
                                                       int root);
};

// AllReduceSum of `gradients` (float32), which travel as `type`.
absl::Status AllReduceGradients(torch::Tensor gradients, v1::GradientType type,
                                Collective* collective);

// What `count` gradients take on the way, in bytes.
int64_t GradientBytes(int64_t count, v1::GradientType type);

// Meets the other learners of `assignment`: NCCL or Gloo as `config` and
// `device` say, and neither in a world of one, unless distributed.force_group
// is set. `coordinator` carries the rendezvous and its fence aborts the
// collective; it must outlive the result (it may be null without a group). Errors: kDeadlineExceeded, naming the
// missing ranks, when peers do not come.
absl::StatusOr<std::unique_ptr<Collective>> MakeCollective(
    const v1::Assignment& assignment, const v1::DistributedConfig& config,
    CoordinatorClient* coordinator, torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_COLLECTIVE_H_
