#ifndef FLOTILLA_LEARNER_COLLECTIVE_BACKEND_H_
#define FLOTILLA_LEARNER_COLLECTIVE_BACKEND_H_

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"

namespace flotilla {

// What carries the gradients of `assignment`: as configured, or, for AUTO, NCCL
// when every rank has a GPU of its own and GLOO otherwise. The same on every
// rank: it depends on nothing else. Never BACKEND_AUTO.
// Errors: kFailedPrecondition, naming the rank and the remedy, when NCCL is
// asked for and a rank has no GPU or shares one, which NCCL cannot do.
absl::StatusOr<v1::Backend> ChooseBackend(const v1::Assignment& assignment,
                                          const v1::DistributedConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_BACKEND_H_
