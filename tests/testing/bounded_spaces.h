#ifndef FLOTILLA_TESTS_TESTING_BOUNDED_SPACES_H_
#define FLOTILLA_TESTS_TESTING_BOUNDED_SPACES_H_

#include <cstdint>
#include <vector>

#include "tests/testing/spaces.h"

namespace flotilla {

// A vector of `features` and one continuous action value within each of these
// bounds: Pendulum is BoundedSpaces(3, {-2}, {2}). Of `stack` steps the newest are seen.
inline Spaces BoundedSpaces(int64_t features, const std::vector<float>& low,
                            const std::vector<float>& high, int stack = 1) {
  v1::EnvSpec spec = OneLeafSpec(v1::FLOAT32, {features});
  if (stack > 1) spec.mutable_observation(0)->set_frame_stack(stack);
  v1::Leaf* leaf = spec.add_action();
  leaf->set_dtype(v1::FLOAT32);
  leaf->add_shape(static_cast<int64_t>(low.size()));
  leaf->mutable_low()->Add(low.begin(), low.end());
  leaf->mutable_high()->Add(high.begin(), high.end());
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_BOUNDED_SPACES_H_
