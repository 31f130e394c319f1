#ifndef FLOTILLA_LEARNER_ROLLOUT_SPACES_H_
#define FLOTILLA_LEARNER_ROLLOUT_SPACES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/env.pb.h"

namespace flotilla {

// An environment's spaces as the learner uses them: either one stack of frames
// or one flat vector comes in; either one of A discrete actions or A continuous
// values goes out.
struct Spaces {
  // Frames: one UINT8 leaf [H, W], of which the newest `stack` are seen.
  // Otherwise every leaf is flattened and laid end to end, as float32.
  bool frames = false;
  int64_t stack = 1;     // k
  int64_t height = 0;    // H
  int64_t width = 0;     // W
  int64_t features = 0;  // D of a vector; H * W of one frame

  bool continuous = false;
  int64_t actions = 0;             // A
  std::vector<float> action_low;   // [A], continuous
  std::vector<float> action_high;  // [A], continuous
};

// Errors: kUnimplemented, naming the leaf, for spaces no algorithm here can
// use.
absl::StatusOr<Spaces> DescribeSpaces(const v1::EnvSpec& spec);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_SPACES_H_
