#ifndef FLOTILLA_LEARNER_TRAINING_FAILURE_BUDGET_H_
#define FLOTILLA_LEARNER_TRAINING_FAILURE_BUDGET_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "flotilla/v1/config.pb.h"
#include "learner/actor/failed_rows.h"
#include "learner/training/agreement.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// Ends a run whose environments fail too often: of the steps and resets in the
// last env.failed_seconds of collecting, more than env.max_failed_share were
// lost. Each rank adds its share, which weighs as its rows do (a rank whose rows
// fail makes the others wait, and so has more of them), to the agreement of an
// update; what comes of it is the same on all.
//
// Not thread-safe: the iteration owns it.
class FailureBudget {
 public:
  // Both are borrowed; null `rows` never fail.
  FailureBudget(const v1::EnvConfig& env, const FailedRows* rows,
                CoordinatorClient* coordinator);

  // Of the update that follows `committed`, the newest that has been committed.
  void Add(int64_t committed, Agreement* agreement);

  // Once it is reduced. Errors: kResourceExhausted, the share, and the newest
  // reason of a rank that has one; asks the coordinator for it, for seconds.
  absl::Status Check(const Agreement& agreement, uint64_t generation);

  // Rows that failed, of all ranks, up to the last Check and since the update
  // that was committed before.
  int64_t failed_rows() const { return failed_rows_; }

 private:
  const double max_share_;
  const double seconds_;
  const FailedRows* const rows_;
  CoordinatorClient* const coordinator_;
  int64_t counted_ = 0;  // of rows_->failed(), in what is committed
  int64_t added_ = 0;    // that with the last Add, to update `added_to_`
  int64_t added_to_ = 0;
  int64_t failed_rows_ = 0;

  // What the last Add added.
  Agreement::Sum failed_, owned_;
  Agreement::PerRank lost_;
  Agreement::Vote full_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_FAILURE_BUDGET_H_
