#ifndef FLOTILLA_SERVICES_ENV_NUMBERS_H_
#define FLOTILLA_SERVICES_ENV_NUMBERS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/group_layout.h"

// Numbers that somebody can learn from: finite, and of a magnitude whose square
// is a float32. One that is not would end up in every weight and every running
// mean.

namespace flotilla {

inline constexpr float kMaxMagnitude = 1e18f;

bool IsUsable(double value);

// The same of every float32 in `values`, which may be unaligned. A few bytes a
// cycle.
bool AllUsable(std::span<const std::byte> values);

// Errors: kInternal, naming `what`, the first element that is not usable, and
// what is wanted.
absl::Status CheckNumbers(const std::string& what,
                          std::span<const std::byte> values);

// Where a group's observations lie: per leaf, [R, ...].
using ObservationArrays = std::span<const std::span<std::byte>>;

// Refuses the rows of a step (one that CheckStep accepts) whose observation,
// reward or end is not usable, whose discrete value is none of the leaf's, or
// whose action mask forbids everything: each gets a RowError that names row, seq,
// field and value, and what was wrong in it becomes 0. Returns how many there
// were; UINT8 and INT64 leaves of plain numbers cost nothing. Nobody decides by
// what a row that is not active observes: what is wrong there becomes 0, and is no
// error. `blind` [R]: 1 for rows whose observation was refused.
int RefuseRows(const v1::EnvSpec& spec, const GroupLayout& layout,
               ObservationArrays observation, v1::StepBatch* step,
               std::vector<uint8_t>* blind);

// Environments fail as a whole: names the other slots of each that has a
// RowError, without a message.
void FailOtherSlots(const GroupLayout& layout, v1::StepBatch* step);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_NUMBERS_H_
