#ifndef FLOTILLA_LEARNER_ALGO_REPLAY_SHARE_H_
#define FLOTILLA_LEARNER_ALGO_REPLAY_SHARE_H_

#include <algorithm>
#include <cstdint>

#include "learner/replay/replay_buffer.h"

namespace flotilla {

// Whether a rank of `world_size` learns from its replay: it holds its share of
// the `learning_starts` global steps and one batch, or all it can. For algorithms
// whose options are named so (DQN, SAC). A local matter: it decides samples, never
// the number of gradient steps.
template <typename Options>
bool MayContribute(const ReplayBuffer& replay, const Options& options,
                   int world_size) {
  const int64_t share =
      (options.learning_starts() + world_size - 1) / world_size;
  return replay.size() >=
         std::min(options.replay_capacity(),
                  std::max<int64_t>(options.batch_size(), share));
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_REPLAY_SHARE_H_
