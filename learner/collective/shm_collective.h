#ifndef FLOTILLA_LEARNER_COLLECTIVE_SHM_COLLECTIVE_H_
#define FLOTILLA_LEARNER_COLLECTIVE_SHM_COLLECTIVE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/collective/collective.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// The collective of ranks that share a host's memory: what Gloo needs a network
// stack for, in microseconds. The arithmetic and the waiting are ShmReducer's.
//
// Rank 0 makes the memory, all try to reach it, and it is used only if all can:
// same boot of the same kernel, same PID namespace, same user. Returns null, on
// every rank alike, if they cannot.
//
// Errors: kDeadlineExceeded naming the ranks that did not come; kAborted once
// the generation is fenced.
absl::StatusOr<std::unique_ptr<Collective>> MakeShmCollective(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    absl::Duration timeout);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_SHM_COLLECTIVE_H_
