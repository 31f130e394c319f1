#ifndef FLOTILLA_SERVICES_ALGORITHMS_REPLAY_TRAITS_H_
#define FLOTILLA_SERVICES_ALGORITHMS_REPLAY_TRAITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "services/algorithms/algorithm_traits.h"

namespace flotilla {

// What algorithms that learn from a replay have in common: DQN, SAC. Their option
// messages have `batch_size`, `replay_capacity` and `learning_starts`; their models are
// their own, and remember nothing.
class ReplayTraits : public AlgorithmTraits {
 public:
  double StepsAtOnce(const v1::RunConfig& config) const override;
  ReplayPlan ReplayOf(const v1::RunConfig& config) const override;
  std::vector<std::string> GlobalSizes() const override;
  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override;

 protected:
  struct Sizes {
    int64_t batch = 0, capacity = 0;  // transitions
    int64_t learning_starts = 0;
  };
  virtual Sizes SizesOf(const v1::RunConfig& config) const = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ALGORITHMS_REPLAY_TRAITS_H_
