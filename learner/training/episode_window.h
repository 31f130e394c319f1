#ifndef FLOTILLA_LEARNER_TRAINING_EPISODE_WINDOW_H_
#define FLOTILLA_LEARNER_TRAINING_EPISODE_WINDOW_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "learner/actor/collector.h"
#include "learner/device/host.h"
#include "learner/torch.h"
#include "learner/training/agreement.h"

namespace flotilla {

// The newest finished episodes of all ranks, the same on every rank: what mean
// returns are means of. Committed, lost and saved with the rest of a run's
// state, so that the means go on where a checkpoint or a lost rank left them.
//
// Of one update each rank brings its share of the window at most: its newest.
//
// Not thread-safe.
class EpisodeWindow {
 public:
  // Of `size` episodes, each with `num_metrics` numbers beside its return and
  // its length.
  EpisodeWindow(int64_t size, int num_metrics);

  // Adds to the agreement what finished on this rank.
  void Add(const std::vector<CollectStats::Episode>& finished,
           Agreement* agreement);

  // Takes in what all ranks have Added, in the order of their ranks.
  void Take(const Agreement& agreement);

  int64_t episodes() const;

  // Over the window: the return, the length, then the metrics. Empty while
  // there are no episodes.
  std::vector<double> Means() const;

  // [1 + size, 2 + num_metrics] float64: row 0 begins with the number of
  // episodes, which follow, the oldest first: return, length, metrics; then
  // zeros. A live view.
  torch::Tensor tensor() const { return rows_; }

  // Takes in a `tensor()` of before, of any size. Where episodes had other metrics
  // it begins anew, and a warning says so. Errors: kDataLoss if it cannot be one.
  absl::Status Load(const torch::Tensor& saved);

 private:
  int64_t size() const { return rows_.size(0) - 1; }
  int64_t columns() const { return rows_.size(1); }
  double* Row(int64_t i) const { return Host<double>(rows_) + i * columns(); }
  // `fresh`: [count, columns].
  void Append(const double* fresh, int64_t count);

  torch::Tensor rows_;

  // What the last Add added.
  int64_t share_ = 0;  // a rank's
  Agreement::PerRank counts_;
  Agreement::Sums episodes_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_EPISODE_WINDOW_H_
