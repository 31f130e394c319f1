#ifndef FLOTILLA_TESTS_TESTING_SPACES_H_
#define FLOTILLA_TESTS_TESTING_SPACES_H_

#include <cstdint>

#include "learner/rollout/spaces.h"

namespace flotilla {

// A vector of `features` float32 and `actions` discrete actions: CartPole is
// VectorSpaces(4, 2).
inline Spaces VectorSpaces(int64_t features, int64_t actions) {
  Spaces s;
  s.features = features;
  s.actions = actions;
  return s;
}

// Four stacked 84 x 84 frames.
inline Spaces AtariSpaces(int64_t actions) {
  Spaces s;
  s.frames = true;
  s.stack = 4;
  s.height = s.width = 84;
  s.features = 84 * 84;
  s.actions = actions;
  return s;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_SPACES_H_
