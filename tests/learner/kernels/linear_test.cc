#include "learner/kernels/linear.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/bfloat16_numbers.h"
#include "tests/learner/kernels/emulated_amx.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// More than a block of numbers in and out, and rests of both; more than a vector's
// rest of pairs; more rows than a block, and one; more than two tiles' and a rest of two;
// a block's rows.
const LinearShape kShapes[] = {
    {.n = 7, .in = 2160, .out = 80}, {.n = 13, .in = 64, .out = 144},
    {.n = 1, .in = 16, .out = 16},   {.n = 53, .in = 96, .out = 48},
    {.n = 6, .in = 528, .out = 128},
};

class LinearTest : public EveryKernelTest {
 protected:
  // What a loop in float64 makes of it.
  struct Layer {
    explicit Layer(const LinearShape& s)
        : shape(s),
          x(DrawRounded(s.n * s.in, 1, 1)),
          weight(DrawRounded(s.out * s.in, 0.1f, 2)),
          bias(Draw(s.out, 0.5f, 3)),
          from_y(DrawRounded(s.n * s.out, 1, 4)),
          y(from_y.size()),
          to_x(x.size()),
          to_weight(weight.size()) {
      for (int64_t i = 0; i < s.n; ++i) {
        for (int64_t o = 0; o < s.out; ++o) {
          double& sum = y[i * s.out + o];
          sum = bias[o];
          const double gradient = from_y[i * s.out + o];
          for (int64_t k = 0; k < s.in; ++k) {
            const double in = x[i * s.in + k], w = weight[o * s.in + k];
            sum += in * w;
            to_x[i * s.in + k] += gradient * w;
            to_weight[o * s.in + k] += gradient * in;
          }
        }
      }
    }

    LinearShape shape;
    std::vector<float> x, weight, bias, from_y;
    std::vector<double> y, to_x, to_weight;
  };

  // In two parts, of which the first ends at a block of numbers out.
  template <typename Run>
  static void InParts(int64_t width, Run run) {
    const int64_t half = std::min(width, kLinearBlock);
    run(LinearPart{0, half});
    run(LinearPart{half, width});
  }

  template <typename Number>
  std::vector<float> Forward(const Layer& layer, const std::vector<Number>& x,
                             LinearWeights<Number> weights, bool relu) const {
    std::vector<float> y(layer.y.size(), kNaN);
    InParts(layer.shape.out, [&](LinearPart part) {
      LinearForward(layer.shape, part, x.data(), weights, layer.bias.data(),
                    relu, y.data(), kernels());
    });
    return y;
  }

  template <typename Number>
  void ExpectSums(const Layer& layer, bool relu) const {
    const LinearShape& shape = layer.shape;
    const std::vector<Number> x = NumbersOf<Number>(layer.x);
    const std::vector<float> y =
        Forward<Number>(layer, x, {.weight = layer.weight.data()}, relu);
    for (size_t i = 0; i < y.size(); ++i) {
      const double want = relu ? std::max(layer.y[i], 0.0) : layer.y[i];
      ASSERT_NEAR(y[i], want, 1e-4) << shape.in << ", " << i;
    }
    // The same bits of what was packed before.
    auto packed = Unwritten<Number>(layer.weight.size());
    PackLinear(shape, layer.weight.data(), packed.data(), kernels());
    ASSERT_EQ(Forward<Number>(layer, x, {.packed = packed.data()}, relu), y)
        << shape.in;
  }

  // Of a batch of one as well.
  template <typename Number>
  void ExpectRowsAlike(const Layer& layer) const {
    const std::vector<Number> x = NumbersOf<Number>(layer.x);
    const LinearWeights<Number> weights = {.weight = layer.weight.data()};
    const std::vector<float> y = Forward<Number>(layer, x, weights, false);
    auto packed = Unwritten<Number>(layer.weight.size());
    PackLinear(layer.shape, layer.weight.data(), packed.data(), kernels());
    LinearShape one = layer.shape;
    one.n = 1;
    for (int64_t i = 0; i < layer.shape.n; ++i) {
      std::vector<float> row(one.out, kNaN), from_packed(one.out, kNaN);
      LinearForward(one, {0, one.out}, x.data() + i * one.in, weights,
                    layer.bias.data(), false, row.data(), kernels());
      for (int64_t o = 0; o < one.out; ++o) {
        ASSERT_EQ(row[o], y[i * one.out + o]) << i << ", " << o;
      }
      InParts(one.out, [&](LinearPart part) {
        LinearForward(one, part, x.data() + i * one.in,
                      {.packed = packed.data()}, layer.bias.data(), false,
                      from_packed.data(), kernels());
      });
      ASSERT_EQ(from_packed, row) << i;
    }
  }

  std::vector<Bfloat16> Pairs(int64_t width,
                              const std::vector<Bfloat16>& rows) const {
    const auto n = static_cast<int64_t>(rows.size()) / width;
    auto pairs = Unwritten<Bfloat16>((n + 1) / 2 * 2 * width);
    PairRowsOf(n, width, rows.data(), pairs.data(), kernels());
    return pairs;
  }

  template <typename Number>
  void ExpectGradients(const Layer& layer) const {
    const LinearShape& shape = layer.shape;
    const std::vector<Number> from_y = NumbersOf<Number>(layer.from_y);
    std::vector<Number> x = NumbersOf<Number>(layer.x), by_y = from_y;
    if constexpr (std::is_same_v<Number, Bfloat16>) {
      x = Pairs(shape.in, x);
      by_y = Pairs(shape.out, by_y);
    }
    std::vector<float> to_weight(layer.weight.size(), kNaN);
    std::vector<float> added_to(layer.weight.size(), 1);
    auto to_x = Unwritten<Number>(layer.x.size());
    InParts(shape.out, [&](LinearPart part) {
      LinearToWeight(shape, part, x.data(), by_y.data(), /*adds=*/false,
                     to_weight.data(), kernels());
      LinearToWeight(shape, part, x.data(), by_y.data(), /*adds=*/true,
                     added_to.data(), kernels());
    });
    InParts(shape.in, [&](LinearPart part) {
      LinearToX(shape, part, from_y.data(), layer.weight.data(), to_x.data(),
                kernels());
    });
    for (size_t i = 0; i < to_weight.size(); ++i) {
      ASSERT_NEAR(to_weight[i], layer.to_weight[i], 1e-4)
          << shape.in << ", " << i;
      ASSERT_NEAR(added_to[i] - 1, layer.to_weight[i], 1e-4)
          << shape.in << ", " << i;
    }
    const std::vector<float> images = FloatsOf(to_x);
    for (size_t i = 0; i < images.size(); ++i) {
      ASSERT_NEAR(images[i], layer.to_x[i], Tolerance<Number>(layer.to_x[i]))
          << shape.in << ", " << i;
    }
  }

  template <typename Number>
  void ExpectNaNInItsRow(const Layer& layer) const {
    std::vector<Number> x = NumbersOf<Number>(layer.x);
    x[5] = Unwritten<Number>(1)[0];
    const std::vector<float> y = Forward<Number>(
        layer, x, {.weight = layer.weight.data()}, /*relu=*/true);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(std::isnan(y[i]), i < static_cast<size_t>(layer.shape.out))
          << i;
    }
  }
};

TEST_P(LinearTest, IsTheSumOverWhatGoesIn) {
  for (const LinearShape& shape : kShapes) {
    const Layer layer(shape);
    for (const bool relu : {false, true}) {
      ExpectSums<float>(layer, relu);
      ExpectSums<Bfloat16>(layer, relu);
    }
  }
}

TEST_P(LinearTest, ARowIsTheSameBitsInAnyBatch) {
  for (const LinearShape& shape : {kShapes[0], kShapes[3]}) {
    const Layer layer(shape);
    ExpectRowsAlike<float>(layer);
    ExpectRowsAlike<Bfloat16>(layer);
  }
}

TEST_P(LinearTest, GradientsAreTheLoops) {
  for (const LinearShape& shape : kShapes) {
    const Layer layer(shape);
    ExpectGradients<float>(layer);
    ExpectGradients<Bfloat16>(layer);
  }
}

TEST_P(LinearTest, HandsOnNaN) {
  const Layer layer(kShapes[0]);
  ExpectNaNInItsRow<float>(layer);
  ExpectNaNInItsRow<Bfloat16>(layer);
}

FLOTILLA_FOR_EVERY_KERNEL(LinearTest);
INSTANTIATE_TEST_SUITE_P(Emulated, LinearTest, testing::Values(&EmulatedAmx()),
                         NameOfKernels);

}  // namespace
}  // namespace flotilla
