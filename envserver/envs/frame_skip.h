#ifndef FLOTILLA_ENVSERVER_ENVS_FRAME_SKIP_H_
#define FLOTILLA_ENVSERVER_ENVS_FRAME_SKIP_H_

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "envserver/environment_arguments.h"

namespace flotilla {

// The option frame_skip: ticks that a step takes.
// Errors: kInvalidArgument if they are none, or more than a second's 60.
inline absl::StatusOr<int> FrameSkip(const EnvironmentArguments& arguments) {
  const int64_t ticks = arguments.Int("frame_skip");
  if (ticks >= 1 && ticks <= 60) return static_cast<int>(ticks);
  return absl::InvalidArgumentError(absl::StrCat(
      "env.options.kwargs.frame_skip is ", ticks, ", want 1 to 60"));
}

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_FRAME_SKIP_H_
