#ifndef FLOTILLA_SERVICES_ALGORITHMS_MINIBATCHES_H_
#define FLOTILLA_SERVICES_ALGORITHMS_MINIBATCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "services/algorithms/algorithm_traits.h"

// For algorithms that go through one rollout in minibatches: PPO, IMPALA.

namespace flotilla {

UpdatePlan PlanOfMinibatches(const v1::RunConfig& config, int64_t epochs,
                             int64_t minibatches);

// Steps of one minibatch; not rounded.
double MinibatchSteps(const v1::RunConfig& config, int64_t minibatches);

// Of a policy and a value: two, unless they have to be or are to be one.
int PolicyAndValueTrunks(const v1::RunConfig& config, bool may_split);

// Requires that the field `path`, whose value is `minibatches`, divides the
// batch, and with a recurrent model the environments.
void RequireWholeMinibatches(const v1::RunConfig& config,
                             const std::string& path, int64_t minibatches,
                             std::vector<ConfigProblem>* problems);

// Divisors of `total` on both sides of `value`, both at least 1, as a remedy,
// "use 4 or 8": the nearest, or, where those are far, 1 and `total` itself.
std::string NearbyDivisors(int64_t total, int64_t value);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ALGORITHMS_MINIBATCHES_H_
