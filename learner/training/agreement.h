#ifndef FLOTILLA_LEARNER_TRAINING_AGREEMENT_H_
#define FLOTILLA_LEARNER_TRAINING_AGREEMENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "learner/collective/collective.h"

namespace flotilla {

// A number that tells texts apart and that a sum with zeros keeps whole, for
// Agreement::AddPerRank. Never 0.
double HashOf(absl::string_view text);

// What the ranks agree on, once an iteration: a few numbers, reduced over ranks
// in one collective, read once and acted on by everyone alike. Adding a number
// gives a handle, which reads what became of it:
//
//   Agreement a(rank, world_size);
//   const Agreement::Sum steps = a.AddSum("env_steps", 512);
//   const Agreement::PerRank lag = a.AddPerRank("lag", 1);
//   RETURN_IF_ERROR(a.Reduce(collective));
//   a[steps];      // of all ranks
//   a[lag].max();
//
// All ranks add the same, by the same names, in the same order. A hash of that
// is reduced along: ranks that differ get an error, and no numbers of others.
//
// Not thread-safe.
class Agreement {
 public:
  Agreement(int rank, int world_size);

  // What a handle is of; one of another agreement reads nonsense.
  struct Sum {
    size_t at;
  };
  struct Mean {
    size_t at;
  };  // over ranks
  struct Vote {
    size_t at;
  };  // whether any rank wants it
  struct Sums {
    size_t at, size;
  };
  struct PerRank {
    size_t at;
  };

  Sum AddSum(absl::string_view name, double mine);
  // What rank `source` alone knows; the others' `mine` is left out.
  Sum AddFrom(int source, absl::string_view name, double mine);
  Mean AddMean(absl::string_view name, double mine);
  Vote AddVote(absl::string_view name, bool mine);
  Sums AddSums(absl::string_view name, std::span<const double> mine);
  PerRank AddPerRank(absl::string_view name, double mine);

  // Blocks for the slowest. Once; nothing is added afterwards.
  // Errors: those of AllReduceSum; kInternal, naming the ranks, if some have
  // added something else than this one.
  absl::Status Reduce(Collective* collective);

  // Each rank's number.
  class Ranks : public std::span<const double> {
   public:
    using std::span<const double>::span;
    double mean() const;
    double max() const;
  };

  double operator[](Sum sum) const { return values_[sum.at]; }
  double operator[](Mean mean) const { return values_[mean.at] / world_size_; }
  bool operator[](Vote vote) const { return values_[vote.at] > 0; }
  std::span<const double> operator[](Sums sums) const {
    return std::span(values_).subspan(sums.at, sums.size);
  }
  Ranks operator[](PerRank each) const {
    return Ranks(values_.data() + each.at, static_cast<size_t>(world_size_));
  }

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

 private:
  size_t Extend(absl::string_view kind, absl::string_view name, size_t size);
  absl::Status CheckLayout() const;

  const int rank_;
  const int world_size_;
  // First each rank's hash of its layout; then what was added, in order.
  std::vector<double> values_;
  std::string layout_;  // kinds, names and sizes, in order
  double hash_ = 0;     // of it
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_AGREEMENT_H_
