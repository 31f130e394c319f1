#ifndef FLOTILLA_SERVICES_ENV_AGENT_ENDS_H_
#define FLOTILLA_SERVICES_ENV_AGENT_ENDS_H_

#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/group_layout.h"

namespace flotilla {

// Follows who of a group's environments is still in play, as the server of a
// stream tells it: what env.proto says of agents whose episodes end before their
// environment's. Of one agent there is nothing to follow.
//
// Not thread-safe.
class AgentEnds {
 public:
  AgentEnds() = default;
  explicit AgentEnds(const GroupLayout& layout)
      : agents_(layout.agents), gone_(static_cast<size_t>(layout.rows)) {}

  // Takes the group's next step, one that CheckStep accepts.
  // Errors: kInternal naming field, row and what was wanted, if an agent ends or
  // is active that has ended, or others_play_on is not what the flags say.
  absl::Status Take(const v1::StepBatch& step);

 private:
  absl::Status TakeEnvironment(const v1::StepBatch& step, int first);

  int agents_ = 1;
  std::vector<bool> gone_;           // [R]
  std::vector<bool> failed_;         // [R], of this step
  std::vector<int> others_play_on_;  // [R], of this step; -1: no EpisodeEnd
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_AGENT_ENDS_H_
