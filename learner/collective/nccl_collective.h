#ifndef FLOTILLA_LEARNER_COLLECTIVE_NCCL_COLLECTIVE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_NCCL_COLLECTIVE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/collective/collective.h"
#include "learner/collective/nccl_api.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// The collective of ranks with a GPU each: NCCL, over a communicator that never
// blocks. A call on a tensor of the GPU queues work on the current stream and
// returns; a call on a host tensor goes by way of the GPU and waits for it. A
// thread watches what is queued: past its deadline, after a fence or an Abort,
// or when NCCL reports an error, it aborts the communicator, which ends its
// kernels, so that nobody who waits for the stream waits for long. What those
// kernels leave in a tensor is not a sum: the next call returns the error, and
// nothing computed since the last one that did not may be kept.
//
// NCCL notices the death of a peer on the same host only by the deadline: it is
// the coordinator's fence that is quick. An abort that does not return within
// 30 s ends this process; its launcher replaces it.
//
// NCCL_TIMEOUT, in seconds, replaces `timeout`.
//
// Errors: kFailedPrecondition, with the remedy, where this build has no NCCL;
// kDeadlineExceeded naming the ranks that did not come; kAborted once the
// generation is fenced; kUnavailable for what NCCL reports.
absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    absl::Duration timeout, torch::Device device);

// As MakeNcclCollective, with functions of the caller's.
absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(
    const NcclApi* api, const v1::Assignment& assignment,
    CoordinatorClient* coordinator, absl::Duration timeout,
    torch::Device device);

// Opens libflotilla_nccl.so beside the program or where the loader finds it.
// Errors: kFailedPrecondition, naming the file and the remedy.
absl::StatusOr<const NcclApi*> LoadNcclApi();

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_NCCL_COLLECTIVE_H_
