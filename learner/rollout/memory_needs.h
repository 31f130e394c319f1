#ifndef FLOTILLA_LEARNER_ROLLOUT_MEMORY_NEEDS_H_
#define FLOTILLA_LEARNER_ROLLOUT_MEMORY_NEEDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/memory_limit.h"
#include "services/env/encoder_plan.h"
#include "services/env/spaces.h"

namespace flotilla {

// One thing that a learner will hold, and how its size comes about.
struct MemoryNeed {
  std::string what;  // "dqn's replay: 100000 steps of 7056 bytes"
  double bytes = 0;
};

// What one learner will take for `config`, with its defaults, in spaces that may
// be a stranger's: the large things, no less than they are. In floating point,
// which no claim overflows.
std::vector<MemoryNeed> MemoryNeeds(const v1::RunConfig& config,
                                    const Spaces& spaces,
                                    const EncoderPlan& plan);

// Whether that fits `budget`, before anything is allocated.
// Errors: kFailedPrecondition, naming the largest need, all of them together,
// the budget and where it comes from; kInvalidArgument if no encoder fits.
absl::Status CheckMemory(const v1::RunConfig& config, const Spaces& spaces,
                         const MemoryBudget& budget);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_MEMORY_NEEDS_H_
