#ifndef FLOTILLA_LEARNER_TRAINING_CHANGES_H_
#define FLOTILLA_LEARNER_TRAINING_CHANGES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "learner/training/agreement.h"
#include "learner/training/loop_parts.h"
#include "learner/training/run_state.h"
#include "services/base/metrics.h"

namespace flotilla {

// The configuration of a run that changes in flight, on one rank. The coordinator
// numbers changes and tells every rank; which update one begins with, the ranks
// agree on with what they reduce for each update anyway:
//
//   update n      every rank adds which change it knows to come next
//   reduced       all the same one? then it holds from update n + 1 on, which
//                 nobody has begun, and is part of Progress as n commits
//
// What is in Progress goes wherever a rank's state goes: to peers, back to the
// last committed update, and (rank 0's) to RUN/changes.textproto, from which a
// resumed run makes the same changes at the same updates.
//
// Not thread-safe: the training loop owns it.
class Changes {
 public:
  // `parts` is borrowed.
  explicit Changes(const LoopParts& parts);

  // What holds, as of the last HoldFor or Take.
  const v1::RunConfig& config() const { return config_; }

  // Makes hold what the update behind `progress` is to be made with, here and in
  // the algorithm.
  void HoldFor(const Progress& progress);

  // This rank's part of an agreement.
  void Add(const Progress& progress, Agreement* agreement);

  // What the ranks have agreed on, now that they have: goes into `progress`,
  // which has committed the update, and holds.
  void Take(const Agreement& agreement, Progress* progress);

  // changes/FIELD of each number that was changed: what holds now.
  void AppendTo(std::vector<Metric>* line) const;

  // Says in `beat` what the coordinator is not known to know.
  void Describe(const Progress& progress, v1::Heartbeat* beat) const;

 private:
  absl::Status Try(const v1::RunConfig& after);

  const LoopParts parts_;
  v1::RunConfig config_;
  std::string held_;                       // the changes that are in it
  std::map<std::string, double> changed_;  // numbers, by field

  // What the last Add added.
  v1::Change next_;
  Agreement::PerRank agreed_{};
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_CHANGES_H_
