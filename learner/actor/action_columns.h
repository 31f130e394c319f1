#ifndef FLOTILLA_LEARNER_ACTOR_ACTION_COLUMNS_H_
#define FLOTILLA_LEARNER_ACTOR_ACTION_COLUMNS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/env/spaces.h"

namespace flotilla {

// Actions as they are sent: a column of bytes for each action leaf. Continuous
// ones are clipped to their bounds on the way out; the rollout keeps what was
// sampled, as CleanRL's ClipAction wrapper has it.
//
// Not thread-safe; allocates nothing after the first call.
class ActionColumns {
 public:
  explicit ActionColumns(const ActionSpace& space)
      : space_(space), column_(space.leaf.size()) {}

  // `discrete` [rows, K] and `continuous` [rows, A], null where there are none.
  // Valid until the next call.
  std::span<const std::string> Write(const int64_t* discrete,
                                     const float* continuous, int64_t rows);

 private:
  const ActionSpace space_;
  std::vector<float> clipped_;       // [rows, A]
  std::vector<std::string> column_;  // per action leaf
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_ACTION_COLUMNS_H_
