#ifndef FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_NUMBERS_H_
#define FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_NUMBERS_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "learner/rollout/rollout.h"

namespace flotilla {

// Where a loss that is not finite may come from: the first number of the rollout
// that nobody can learn from, with its step and row; or, where all are well, the
// largest of each kind, for then it is the weights.
std::string DescribeNumbers(const Rollout& rollout);

// What ranks noted together for a Normalizer to Add. Errors: kInternal if a
// number of it is not finite: it would stay in the running means for ever.
absl::Status CheckNoted(std::span<const double> noted);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_ROLLOUT_NUMBERS_H_
