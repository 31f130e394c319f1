#ifndef FLOTILLA_SERVICES_ENV_GROUP_LAYOUT_H_
#define FLOTILLA_SERVICES_ENV_GROUP_LAYOUT_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// How the arrays of one group of R rows lie in memory, from a specification
// that may come from a stranger.
struct GroupLayout {
  int groups = 0;
  int rows = 0;                           // R
  int agents = 1;                         // A: rows that one environment has
  std::vector<size_t> observation_bytes;  // per leaf, of one row
  std::vector<size_t> action_bytes;       // per leaf, of one row
  std::vector<size_t> slot_offset;        // per observation leaf, in a slot
  size_t slot_bytes = 0;                  // of one shared slot

  int environments() const { return rows / agents; }  // of a group
};

// How many slots an environment of `spec` has, at least 1.
// Errors: kInvalidArgument, naming the field, if they are below 0 or too many.
absl::StatusOr<int> AgentsOf(const v1::EnvSpec& spec);

// Lays out `num_envs` rows in `num_groups` groups.
// Errors: kInvalidArgument, naming the field, if a leaf has no known dtype, a
// dimension below 1 or bounds that do not fit, paths are not sorted, there is
// no leaf, there are more than 64 metrics of an episode, the agents do not divide
// a group's rows or one group's step or actions would not fit into a message.
absl::StatusOr<GroupLayout> MakeGroupLayout(const v1::EnvSpec& spec,
                                            int num_envs, int num_groups);

// Checks everything in `hello` but env_id's existence and options, which only
// the environment can judge. At most `max_num_envs` rows.
// Errors: kInvalidArgument; kFailedPrecondition for the protocol version.
absl::Status CheckHello(const v1::Hello& hello, int max_num_envs);

// Whether `row` of a step decides now; see env.proto, "Agents".
inline bool IsActive(const v1::StepBatch& step, int row) {
  return step.active().empty() || step.active()[static_cast<size_t>(row)] != 0;
}

// Checks sizes and values of the actions that answer `step`; of rows that were
// not active there, the sizes alone.
// Errors: kInvalidArgument naming leaf, row, expectation and what came.
absl::Status CheckActions(const v1::EnvSpec& spec, const GroupLayout& layout,
                          const v1::StepBatch& step,
                          const v1::ActionBatch& actions);

// Checks every field of a step but group and seq: afterwards `active` is empty
// or [R], and `error` names all slots of an environment or none. `shared`:
// observations lie in shared slots.
// Errors: kInternal naming field, expectation and what came.
absl::Status CheckStep(const v1::EnvSpec& spec, const GroupLayout& layout,
                       bool shared, const v1::StepBatch& step);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_GROUP_LAYOUT_H_
