#ifndef FLOTILLA_TESTS_LEARNER_KERNELS_TEST_SHAPES_H_
#define FLOTILLA_TESTS_LEARNER_KERNELS_TEST_SHAPES_H_

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "learner/kernels/mlp_shape.h"

namespace flotilla {

// The usual networks and awkward ones: one observation, one action, widths that
// fit no vector, layers that shrink and grow.
inline std::vector<MlpShape> TestShapes() {
  constexpr Activation kTanh = Activation::kTanh, kRelu = Activation::kRelu;
  return {
      {4, {64, 64}, kTanh, false, 2, false},
      {4, {64, 64}, kTanh, true, 2, false},
      {17, {64, 64}, kTanh, false, 6, true},
      {3, {17}, kTanh, false, 1, true},
      {3, {17}, kTanh, false, 1, false},
      {1, {5, 33, 2}, kRelu, false, 3, false},
      {11, {40, 17}, kRelu, true, 5, true},
      {50, {16, 80}, kTanh, true, 18, false},
      {128, {100, 100}, kRelu, false, 4, true},
  };
}

inline std::vector<MlpShape> InBfloat16(std::vector<MlpShape> shapes) {
  for (MlpShape& shape : shapes) shape.bfloat16 = true;
  return shapes;
}

inline std::vector<MlpShape> TestShapesInBoth() {
  std::vector<MlpShape> shapes = TestShapes();
  for (const MlpShape& shape : InBfloat16(TestShapes())) {
    shapes.push_back(shape);
  }
  return shapes;
}

inline std::string Describe(const MlpShape& shape) {
  std::string text = std::to_string(shape.observations);
  for (const int width : shape.hidden) {
    text.append("-").append(std::to_string(width));
  }
  text.append("-").append(std::to_string(shape.actions));
  text += shape.activation == Activation::kTanh ? " tanh" : " relu";
  if (shape.share_trunk) text += " shared";
  if (shape.continuous) text += " continuous";
  if (shape.bfloat16) text += " bfloat16";
  if (shape.output == MlpOutput::kQ) text += " Q";
  if (shape.output == MlpOutput::kDuelingQ) text += " dueling Q";
  if (shape.output == MlpOutput::kSquashedGaussian) text += " squashed";
  if (shape.output == MlpOutput::kTwinCritics) text += " critics";
  return text;
}

inline std::vector<float> RandomNormals(int64_t count, float deviation,
                                        std::mt19937* rng) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(*rng);
  return values;
}

// Weights that keep activations neither dead nor saturated.
inline std::vector<float> RandomParameters(const MlpShape& shape,
                                           std::mt19937* rng) {
  std::vector<float> parameters;
  for (const ParameterBlock& block : ParameterLayout(shape)) {
    const bool weight = block.shape.size() == 2;
    const float deviation =
        weight ? 1.2f / std::sqrt(static_cast<float>(block.shape[1])) : 0.2f;
    const std::vector<float> values =
        RandomNormals(block.size(), deviation, rng);
    parameters.insert(parameters.end(), values.begin(), values.end());
  }
  return parameters;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_KERNELS_TEST_SHAPES_H_
