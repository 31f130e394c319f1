#include "learner/kernels/mlp_q.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"
#include "tests/learner/kernels/test_shapes.h"

namespace flotilla {
namespace {

constexpr int64_t kRows = 109;  // a tile and some

std::vector<MlpShape> Shapes() {
  std::vector<MlpShape> shapes;
  for (const MlpOutput output : {MlpOutput::kQ, MlpOutput::kDuelingQ}) {
    for (MlpShape shape : {MlpShape{.observations = 4, .hidden = {20, 16}},
                           MlpShape{.observations = 1, .hidden = {5}},
                           MlpShape{.observations = 19, .hidden = {7, 33}}}) {
      shape.activation = Activation::kRelu;
      shape.actions = 1 + shape.observations % 5;
      shape.output = output;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

// Q in float64 and plain loops, from QNetwork's definition.
class ReferenceQ {
 public:
  ReferenceQ(const MlpShape& shape, const std::vector<float>& parameters)
      : shape_(shape), parameters_(parameters.begin(), parameters.end()) {
    for (size_t i = 0; i < shape.hidden.size(); ++i) {
      encoder_.push_back(Find("encoder." + std::to_string(2 * i)));
    }
    if (shape.output == MlpOutput::kQ) {
      q_ = {Find("q.0"), Find("q.2")};
    } else {
      advantage_ = {Find("advantage.0"), Find("advantage.2")};
      value_ = {Find("value.0"), Find("value.2")};
    }
  }

  std::vector<double> Values(const float* observation) const {
    std::vector<double> x(observation, observation + shape_.observations);
    for (const Layer& layer : encoder_) x = Relu(Linear(layer, x));
    const auto head = [&](const std::array<Layer, 2>& layers) {
      return Linear(layers[1], Relu(Linear(layers[0], x)));
    };
    if (shape_.output == MlpOutput::kQ) return head(q_);
    std::vector<double> q = head(advantage_);
    double mean = 0;
    for (const double a : q) mean += a / static_cast<double>(q.size());
    const double value = head(value_)[0];
    for (double& a : q) a += value - mean;
    return q;
  }

  double Loss(const QSamples& samples, bool huber) const {
    double sum = 0;
    for (int64_t n = 0; n < samples.rows; ++n) {
      const double off = Values(samples.observations +
                                n * shape_.observations)[samples.actions[n]] -
                         samples.targets[n];
      const double each = !huber              ? off * off
                          : std::abs(off) < 1 ? off * off / 2
                                              : std::abs(off) - 0.5;
      sum += samples.weights[n] * each;
    }
    return sum;
  }

  std::vector<double>& parameters() { return parameters_; }

 private:
  static std::vector<double> Relu(std::vector<double> x) {
    for (double& v : x) v = std::max(v, 0.0);
    return x;
  }

  struct Layer {
    int64_t outputs, weight, bias;  // the last two: where they begin
  };

  Layer Find(const std::string& name) const {
    Layer layer{.outputs = 0, .weight = 0, .bias = -1};
    for (const ParameterBlock& block : ParameterLayout(shape_)) {
      if (block.name == name + ".weight") {
        layer.outputs = block.shape[0];
        layer.weight = block.offset;
      }
      if (block.name == name + ".bias") layer.bias = block.offset;
    }
    if (layer.outputs == 0 || layer.bias < 0) std::abort();
    return layer;
  }

  std::vector<double> Linear(const Layer& layer,
                             const std::vector<double>& in) const {
    std::vector<double> out(layer.outputs);
    for (size_t o = 0; o < out.size(); ++o) {
      out[o] = parameters_[layer.bias + o];
      for (size_t i = 0; i < in.size(); ++i) {
        out[o] += parameters_[layer.weight + o * in.size() + i] * in[i];
      }
    }
    return out;
  }

  const MlpShape shape_;
  std::vector<double> parameters_;
  std::vector<Layer> encoder_;
  std::array<Layer, 2> q_{}, advantage_{}, value_{};
};

struct Transitions {
  Transitions(const MlpShape& shape, std::mt19937* rng)
      : observations(RandomNormals(kRows * shape.observations, 1, rng)),
        targets(RandomNormals(kRows, 1, rng)),
        weights(RandomNormals(kRows, 1, rng)) {
    for (float& w : weights) w = std::abs(w);
    for (int64_t n = 0; n < kRows; ++n) {
      actions.push_back(static_cast<int64_t>((*rng)() % shape.actions));
    }
  }

  QSamples Samples() const {
    return {.rows = kRows,
            .observations = observations.data(),
            .actions = actions.data(),
            .targets = targets.data(),
            .weights = weights.data()};
  }

  std::vector<float> observations, targets, weights;
  std::vector<int64_t> actions;
};

class MlpQTest : public EveryKernelTest {
 protected:
  std::mt19937 rng_{7};
};

TEST_P(MlpQTest, ValuesAreTheDefinitions) {
  for (const MlpShape& shape : Shapes()) {
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> parameters = RandomParameters(shape, &rng_);
    const Transitions t(shape, &rng_);
    MlpQ network(shape, /*training=*/false, kernels());
    network.SetParameters(parameters.data());
    std::vector<float> q(kRows * shape.actions), alone(shape.actions);
    network.Values(t.observations.data(), kRows, q.data());
    const ReferenceQ reference(shape, parameters);
    for (int64_t n = 0; n < kRows; ++n) {
      const float* seen = t.observations.data() + n * shape.observations;
      const std::vector<double> want = reference.Values(seen);
      network.Values(seen, 1, alone.data());
      for (int a = 0; a < shape.actions; ++a) {
        ASSERT_NEAR(q[n * shape.actions + a], want[a], 2e-6) << n << ", " << a;
        ASSERT_EQ(alone[a], q[n * shape.actions + a]) << "rows around matter";
      }
    }
  }
}

TEST_P(MlpQTest, GradientsAreTheFiniteDifferences) {
  for (const MlpShape& shape : Shapes()) {
    for (const bool huber : {false, true}) {
      SCOPED_TRACE(Describe(shape) + (huber ? " huber" : ""));
      const std::vector<float> parameters = RandomParameters(shape, &rng_);
      const Transitions t(shape, &rng_);
      MlpQ network(shape, /*training=*/true, kernels());
      network.SetParameters(parameters.data());
      std::vector<float> error(kRows), gradient(parameters.size());
      const QSums sums =
          network.Gradient(t.Samples(), huber, error.data(), gradient.data());

      ReferenceQ reference(shape, parameters);
      EXPECT_NEAR(sums.loss, reference.Loss(t.Samples(), huber), 1e-4);
      double q = 0;
      for (int64_t n = 0; n < kRows; ++n) {
        const double value = reference.Values(
            t.observations.data() + n * shape.observations)[t.actions[n]];
        ASSERT_NEAR(error[n], value - t.targets[n], 2e-6) << n;
        q += value;
      }
      EXPECT_NEAR(sums.q, q, 1e-4);

      // Each kernel's numbers are drawn alike: they are computed for the first.
      static std::map<std::pair<std::vector<float>, bool>, std::vector<double>>
          known;
      std::vector<double>& slopes = known[{parameters, huber}];
      if (slopes.empty()) {
        for (double& p : reference.parameters()) {
          constexpr double kStep = 1e-6;
          const double was = p;
          p = was + kStep;
          const double above = reference.Loss(t.Samples(), huber);
          p = was - kStep;
          slopes.push_back((above - reference.Loss(t.Samples(), huber)) /
                           (2 * kStep));
          p = was;
        }
      }
      double largest = 0;
      for (const double slope : slopes) {
        largest = std::max(largest, std::abs(slope));
      }
      for (size_t i = 0; i < slopes.size(); ++i) {
        ASSERT_NEAR(gradient[i], slopes[i], 3e-6 * largest)
            << "parameter " << i;
      }
    }
  }
}

FLOTILLA_FOR_EVERY_KERNEL(MlpQTest);

}  // namespace
}  // namespace flotilla
