#ifndef FLOTILLA_SERVICES_ENV_RING_LAYOUT_H_
#define FLOTILLA_SERVICES_ENV_RING_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/group_layout.h"

// What the rings of a stream hold, and how it lies there: env.proto, "Rings".
// Readers take one copy of what the other process may still write to, and believe
// nothing of it.

namespace flotilla {

// Offsets into a place are from its first byte, and those of the places from the
// rings' first.
struct RingLayout {
  int groups = 0;  // places of each ring
  int rows = 0;    // R
  int metrics = 0;
  // Of a step's place.
  size_t terminated = 0;
  size_t truncated = 0;
  size_t active = 0;
  size_t final_row = 0;
  size_t episode_end = 0;
  size_t episode_end_bytes = 0;           // of one
  std::vector<size_t> final_observation;  // per leaf
  size_t step_bytes = 0;
  // Of an action batch's place.
  std::vector<size_t> action;  // per leaf
  size_t action_bytes = 0;

  size_t first_step = 0;
  size_t first_action = 0;
  size_t bytes = 0;  // of both rings; a multiple of 64
};

// Of a layout that MakeGroupLayout made of `spec`.
RingLayout MakeRingLayout(const v1::EnvSpec& spec, const GroupLayout& layout);

// Writes a step into its place. False: it has what rings do not carry (errors,
// metrics beside those of the specification) or is not of the layout's sizes; the
// place then says that the stream has it.
bool PutStep(const v1::EnvSpec& spec, const GroupLayout& layout,
             const RingLayout& ring, const v1::StepBatch& step,
             std::span<std::byte> place);

// Reads a step, reusing the memory of `step`; its observations are in the group's
// slot. False: the stream has it, and of `step` only group and seq are there.
// What CheckStep refuses is still to be refused.
// Errors: kInternal naming field, expectation and what came.
absl::StatusOr<bool> TakeStep(const v1::EnvSpec& spec,
                              const GroupLayout& layout, const RingLayout& ring,
                              std::span<const std::byte> place,
                              v1::StepBatch* step);

// Writes actions into their place.
// Errors: kInvalidArgument if they are not of the layout's sizes.
absl::Status PutActions(const GroupLayout& layout, const RingLayout& ring,
                        const v1::ActionBatch& actions,
                        std::span<std::byte> place);

// Reads actions, reusing the memory of `actions`. What CheckActions refuses, and
// group and seq, are still to be checked.
void TakeActions(const GroupLayout& layout, const RingLayout& ring,
                 std::span<const std::byte> place, v1::ActionBatch* actions);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_RING_LAYOUT_H_
