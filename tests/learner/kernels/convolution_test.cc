#include "learner/kernels/convolution.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The layers of Mnih et al. 2015 on small images, and: what no block fits, rows of
// pixels and of weights that are more than one block, weights and images larger
// than what is kept in the first cache.
const ConvolutionShape kShapes[] = {
    {.height = 20, .width = 24, .in = 4, .kernel = 8, .stride = 4, .out = 32},
    {.height = 9, .width = 8, .in = 32, .kernel = 4, .stride = 2, .out = 64},
    {.height = 7, .width = 7, .in = 64, .kernel = 3, .stride = 1, .out = 64},
    {.height = 5, .width = 4, .in = 3, .kernel = 2, .stride = 3, .out = 16},
    {.height = 3, .width = 29, .in = 16, .kernel = 3, .stride = 1, .out = 48},
    {.height = 12, .width = 70, .in = 16, .kernel = 2, .stride = 2, .out = 16},
    {.height = 1, .width = 1, .in = 16, .kernel = 1, .stride = 1, .out = 16},
};

// What a layer is given, and what a loop in float64 makes of it.
struct Layer {
  Layer(const ConvolutionShape& s, int64_t images)
      : shape(s),
        n(images),
        x(Draw(n * s.image(), 1, 1)),
        weight(Draw(s.weights(), 0.3f, 2)),
        bias(Draw(s.out, 0.5f, 3)),
        from_y(Draw(n * s.out_image(), 1, 4)),
        sum(from_y.size()),
        to_x(x.size()),
        to_weight(weight.size()),
        to_bias(bias.size()) {
    ForAll([&](size_t y, size_t x_at, size_t w) {
      sum[y] += double{x[x_at]} * weight[w];
    });
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += bias[i % s.out];
    for (size_t i = 0; i < sum.size(); ++i) {
      if (sum[i] > 0) to_bias[i % s.out] += from_y[i];
    }
    ForAll([&](size_t y, size_t x_at, size_t w) {
      if (sum[y] <= 0) return;
      to_x[x_at] += double{from_y[y]} * weight[w];
      to_weight[w] += double{from_y[y]} * x[x_at];
    });
  }

  // Calls run(index into y, into x, into weight) for all that are multiplied.
  template <typename Run>
  void ForAll(Run run) const {
    const int64_t H = shape.out_height(), W = shape.out_width();
    for (int64_t p = 0; p < n * H * W; ++p) {
      const int64_t image = p / (H * W), i = p / W % H, j = p % W;
      for (int64_t o = 0; o < shape.out; ++o) {
        int64_t w = o * shape.in * shape.kernel * shape.kernel;
        for (int64_t c = 0; c < shape.in; ++c) {
          for (int64_t k = 0; k < shape.kernel * shape.kernel; ++k) {
            const int64_t row = i * shape.stride + k / shape.kernel;
            const int64_t column = j * shape.stride + k % shape.kernel;
            run(p * shape.out + o,
                image * shape.image() +
                    (row * shape.width + column) * shape.in + c,
                w++);
          }
        }
      }
    }
  }

  const ConvolutionShape shape;
  const int64_t n;
  std::vector<float> x, weight, bias, from_y;
  std::vector<double> sum, to_x, to_weight, to_bias;
};

class ConvolutionTest : public EveryKernelTest {
 protected:
  std::vector<float> Packed(const Layer& layer) const {
    std::vector<float> packed(layer.weight.size(), kNaN);
    PackConvolution(layer.shape, layer.weight.data(), packed.data(), kernels());
    return packed;
  }

  std::vector<float> Forward(const Layer& layer) const {
    const std::vector<float> packed = Packed(layer);
    std::vector<float> y(layer.sum.size(), kNaN);
    ConvolutionForward(layer.shape,
                       {.n = layer.n,
                        .x = layer.x.data(),
                        .packed = packed.data(),
                        .bias = layer.bias.data(),
                        .y = y.data()},
                       kernels());
    return y;
  }
};

TEST_P(ConvolutionTest, IsTheSumOverItsTapsAndNotBelowZero) {
  for (const ConvolutionShape& shape : kShapes) {
    const Layer layer(shape, 3);
    const std::vector<float> y = Forward(layer);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], std::max(layer.sum[i], 0.0), 1e-4)
          << shape.width << ", " << i;
    }
  }
}

TEST_P(ConvolutionTest, GradientsAreTheLoops) {
  for (const ConvolutionShape& shape : kShapes) {
    // More than the blocks of images, and a rest.
    const Layer layer(shape, 15);
    const std::vector<float> y = Forward(layer);
    std::vector<float> from_y = layer.from_y;
    const bool images = shape.in % kConvolutionWidth == 0;
    std::vector<float> to_x(layer.x.size(), kNaN);
    // Both are added to.
    std::vector<float> to_packed(layer.weight.size(), 1), to_bias(shape.out, 2);
    ConvolutionBackward(shape,
                        {.n = layer.n,
                         .x = layer.x.data(),
                         .weight = layer.weight.data(),
                         .y = y.data(),
                         .from_y = from_y.data(),
                         .to_x = images ? to_x.data() : nullptr,
                         .to_packed = to_packed.data(),
                         .to_bias = to_bias.data()},
                        kernels());
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(from_y[i], y[i] > 0 ? layer.from_y[i] : 0);
    }
    for (size_t i = 0; i < to_x.size() && images; ++i) {
      ASSERT_NEAR(to_x[i], layer.to_x[i], 1e-4) << shape.width << ", " << i;
    }
    const int64_t taps = shape.kernel * shape.kernel;
    for (int64_t w = 0; w < shape.weights(); ++w) {
      const int64_t o = w / (shape.in * taps), c = w / taps % shape.in;
      const float got = to_packed[(w % taps * shape.in + c) * shape.out + o];
      ASSERT_NEAR(got - 1, layer.to_weight[w], 1e-3)
          << shape.width << ", " << w;
    }
    for (int64_t o = 0; o < shape.out; ++o) {
      ASSERT_NEAR(to_bias[o] - 2, layer.to_bias[o], 1e-3) << shape.width;
    }
  }
}

TEST_P(ConvolutionTest, AnImageIsTheSameInAnyBatch) {
  for (const ConvolutionShape& shape : kShapes) {
    const Layer layer(shape, 3), alone(shape, 1);
    const std::vector<float> all = Forward(layer), one = Forward(alone);
    for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i], all[i]);
  }
}

TEST_P(ConvolutionTest, HandsOnNaN) {
  Layer layer(kShapes[1], 2);
  layer.x[3] = kNaN;
  const std::vector<float> y = Forward(layer);
  EXPECT_TRUE(std::isnan(y[0]));
  for (size_t i = layer.shape.out_image(); i < y.size(); ++i) {
    ASSERT_FALSE(std::isnan(y[i])) << "of the other image";
  }
}

FLOTILLA_FOR_EVERY_KERNEL(ConvolutionTest);

}  // namespace
}  // namespace flotilla
