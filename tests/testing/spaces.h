#ifndef FLOTILLA_TESTS_TESTING_SPACES_H_
#define FLOTILLA_TESTS_TESTING_SPACES_H_

#include <cstdint>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/spaces.h"

namespace flotilla {

// The spaces that a learner makes of these are those of an environment with one
// observation and one action.

inline v1::EnvSpec OneLeafSpec(v1::DType dtype,
                               const std::vector<int64_t>& shape) {
  v1::EnvSpec spec;
  v1::Leaf* leaf = spec.add_observation();
  leaf->set_dtype(dtype);
  leaf->mutable_shape()->Add(shape.begin(), shape.end());
  return spec;
}

inline Spaces WithActions(v1::EnvSpec spec, int64_t actions) {
  v1::Leaf* leaf = spec.add_action();
  leaf->set_dtype(v1::INT64);
  leaf->set_num_values(actions);
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

// A vector of `features` float32 and `actions` discrete actions: CartPole is
// VectorSpaces(4, 2).
inline Spaces VectorSpaces(int64_t features, int64_t actions) {
  return WithActions(OneLeafSpec(v1::FLOAT32, {features}), actions);
}

// The same, and continuous actions of `values` numbers.
inline Spaces ContinuousSpaces(int64_t features, int64_t values) {
  v1::EnvSpec spec = OneLeafSpec(v1::FLOAT32, {features});
  v1::Leaf* leaf = spec.add_action();
  leaf->set_dtype(v1::FLOAT32);
  leaf->add_shape(values);
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

// The same, of choices of so many values each, of which a mask allows some.
inline Spaces MaskedSpaces(int64_t features,
                           const std::vector<int64_t>& choices) {
  v1::EnvSpec spec = OneLeafSpec(v1::FLOAT32, {features});
  v1::Leaf* mask = spec.add_observation();
  mask->set_path("m");
  mask->set_dtype(v1::UINT8);
  v1::Leaf* action = spec.add_action();
  action->set_dtype(v1::INT64);
  action->add_shape(static_cast<int64_t>(choices.size()));
  action->set_mask_path("m");
  int64_t values = 0;
  for (const int64_t n : choices) {
    action->add_num_values_each(n);
    values += n;
  }
  mask->add_shape(values);
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

// Four stacked frames.
inline Spaces FrameSpaces(int64_t height, int64_t width, int64_t actions) {
  v1::EnvSpec spec = OneLeafSpec(v1::UINT8, {height, width});
  spec.mutable_observation(0)->set_frame_stack(4);
  return WithActions(spec, actions);
}

// Four stacked 84 x 84 frames.
inline Spaces AtariSpaces(int64_t actions) {
  return FrameSpaces(84, 84, actions);
}

inline bool HasFrames(const Spaces& spaces) {
  return spaces.observation[0].kind == LeafKind::kImage;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_SPACES_H_
