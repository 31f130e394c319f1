#include "learner/kernels/linear.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/bfloat16_numbers.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Bfloat16 kHalfNaN = 0x7fc0;

// More than a block of numbers in and out, and rests of both; more than a vector's
// rest of pairs; more rows than a block, and one.
const LinearShape kShapes[] = {
    {.n = 7, .in = 2160, .out = 80},
    {.n = 13, .in = 64, .out = 144},
    {.n = 1, .in = 16, .out = 16},
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

  std::vector<Bfloat16> Pairs(int64_t width,
                              const std::vector<Bfloat16>& rows) const {
    const auto n = static_cast<int64_t>(rows.size()) / width;
    std::vector<Bfloat16> pairs((n + 1) / 2 * 2 * width, kHalfNaN);
    PairRowsOf(n, width, rows.data(), pairs.data(), kernels());
    return pairs;
  }
};

TEST_P(LinearTest, IsTheSumOverWhatGoesIn) {
  for (const LinearShape& shape : kShapes) {
    const Layer layer(shape);
    for (const bool relu : {false, true}) {
      std::vector<float> y(layer.y.size(), kNaN);
      InParts(shape.out, [&](LinearPart part) {
        LinearForward(shape, part, NumbersOf<Bfloat16>(layer.x).data(),
                      {.weight = layer.weight.data()}, layer.bias.data(), relu,
                      y.data(), kernels());
      });
      for (size_t i = 0; i < y.size(); ++i) {
        const double want = relu ? std::max(layer.y[i], 0.0) : layer.y[i];
        ASSERT_NEAR(y[i], want, 1e-4) << shape.in << ", " << i;
      }
      // The same bits of what was packed before.
      std::vector<Bfloat16> packed(layer.weight.size(), kHalfNaN);
      PackLinear(shape, layer.weight.data(), packed.data(), kernels());
      std::vector<float> of_packed(y.size(), kNaN);
      InParts(shape.out, [&](LinearPart part) {
        LinearForward(shape, part, NumbersOf<Bfloat16>(layer.x).data(),
                      {.packed = packed.data()}, layer.bias.data(), relu,
                      of_packed.data(), kernels());
      });
      ASSERT_EQ(of_packed, y) << shape.in;
    }
  }
}

TEST_P(LinearTest, GradientsAreTheLoops) {
  for (const LinearShape& shape : kShapes) {
    const Layer layer(shape);
    const std::vector<Bfloat16> from_y = NumbersOf<Bfloat16>(layer.from_y);
    const std::vector<Bfloat16> x_pairs =
        Pairs(shape.in, NumbersOf<Bfloat16>(layer.x));
    const std::vector<Bfloat16> y_pairs = Pairs(shape.out, from_y);
    std::vector<float> to_weight(layer.weight.size(), kNaN);
    std::vector<Bfloat16> to_x(layer.x.size(), kHalfNaN);
    InParts(shape.out, [&](LinearPart part) {
      LinearToWeight(shape, part, x_pairs.data(), y_pairs.data(),
                     to_weight.data(), kernels());
    });
    InParts(shape.in, [&](LinearPart part) {
      LinearToX(shape, part, from_y.data(), layer.weight.data(), to_x.data(),
                kernels());
    });
    for (size_t i = 0; i < to_weight.size(); ++i) {
      ASSERT_NEAR(to_weight[i], layer.to_weight[i], 1e-4)
          << shape.in << ", " << i;
    }
    const std::vector<float> images = FloatsOf(to_x);
    for (size_t i = 0; i < images.size(); ++i) {
      ASSERT_NEAR(images[i], layer.to_x[i], Tolerance<Bfloat16>(layer.to_x[i]))
          << shape.in << ", " << i;
    }
  }
}

TEST_P(LinearTest, HandsOnNaN) {
  Layer layer(kShapes[0]);
  std::vector<Bfloat16> x = NumbersOf<Bfloat16>(layer.x);
  x[5] = kHalfNaN;
  const LinearShape& shape = layer.shape;
  std::vector<float> y(layer.y.size());
  LinearForward(shape, {0, shape.out}, x.data(),
                {.weight = layer.weight.data()}, layer.bias.data(),
                /*relu=*/true, y.data(), kernels());
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(std::isnan(y[i]), i < static_cast<size_t>(shape.out)) << i;
  }
}

FLOTILLA_FOR_EVERY_KERNEL(LinearTest);

}  // namespace
}  // namespace flotilla
