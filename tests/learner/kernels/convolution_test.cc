#include "learner/kernels/convolution.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/bfloat16_numbers.h"
#include "tests/learner/kernels/emulated_amx.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Bfloat16 kHalfNaN = 0x7fc0;

// The layers of Mnih et al. 2015 on small images, and: what no block fits, rows of
// pixels and of weights that are more than one block, weights and images larger
// than what is kept in the first cache, images of more rows than are done at once,
// weights so far apart that they are laid side by side, and more than fit so, rows of
// fewer weights than any block. Of floats, those marked W are made of fewer products, by tiles of that side: tiles that hang over
// an edge of the image, more than one block of tiles, a place that no tile reaches.
const ConvolutionShape kShapes[] = {
    {.height = 20,
     .width = 24,
     .in = 4,
     .kernel = 8,
     .stride = 4,
     .out = 32},  // W6
    {.height = 9,
     .width = 8,
     .in = 32,
     .kernel = 4,
     .stride = 2,
     .out = 64},  // W4
    {.height = 7,
     .width = 7,
     .in = 64,
     .kernel = 3,
     .stride = 1,
     .out = 64},  // W4
    {.height = 5, .width = 4, .in = 3, .kernel = 2, .stride = 3, .out = 16},
    {.height = 3, .width = 29, .in = 16, .kernel = 3, .stride = 1, .out = 48},
    {.height = 12, .width = 70, .in = 16, .kernel = 2, .stride = 2, .out = 16},
    {.height = 1, .width = 1, .in = 16, .kernel = 1, .stride = 1, .out = 16},
    {.height = 40, .width = 200, .in = 16, .kernel = 2, .stride = 2, .out = 16},
    {.height = 4,
     .width = 5,
     .in = 64,
     .kernel = 3,
     .stride = 1,
     .out = 272},  // W4
    {.height = 22,
     .width = 13,
     .in = 16,
     .kernel = 4,
     .stride = 2,
     .out = 16},  // W6
    {.height = 9,
     .width = 10,
     .in = 64,
     .kernel = 3,
     .stride = 1,
     .out = 96},  // W6
    {.height = 8, .width = 8, .in = 80, .kernel = 8, .stride = 1, .out = 256},
    {.height = 6, .width = 7, .in = 2, .kernel = 3, .stride = 1, .out = 16},
};

// What a layer is given.
struct Given {
  Given(const ConvolutionShape& s, int64_t images)
      : shape(s),
        n(images),
        x(DrawRounded(n * s.image(), 1, 1)),
        weight(DrawRounded(s.weights(), 0.3f, 2)),
        bias(Draw(s.out, 0.5f, 3)),
        from_y(DrawRounded(n * s.out_image(), 1, 4)) {}

  const ConvolutionShape shape;
  const int64_t n;
  std::vector<float> x, weight, bias, from_y;
};

// And what a loop in float64 makes of it.
struct Layer : Given {
  Layer(const ConvolutionShape& s, int64_t images)
      : Given(s, images),
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

  std::vector<double> sum, to_x, to_weight, to_bias;
};

// Of the small ones more than a block and a rest; one that has no pair; of the smallest
// more than any kernel takes at a time. Of the large one few: its sums are of thousands
// of places an image.
int64_t ImagesOf(const ConvolutionShape& shape) {
  return shape.image() < 1'500 ? 51 : shape.image() < 100'000 ? 15 : 3;
}

// One for each of kShapes: the loops take longest, and all kernels are held to them.
const std::vector<Layer>& Layers() {
  static const auto& layers = *new std::vector<Layer>([] {
    std::vector<Layer> made;
    for (const ConvolutionShape& shape : kShapes) {
      made.emplace_back(shape, ImagesOf(shape));
    }
    return made;
  }());
  return layers;
}

class ConvolutionTest : public EveryKernelTest {
 protected:
  template <typename Number>
  std::vector<Number> Forward(const Given& layer) const {
    std::vector<Number> packed(std::is_same_v<Number, float>
                                   ? PackedFloats(layer.shape)
                                   : layer.shape.weights());
    PackConvolution(layer.shape, layer.weight.data(), packed.data(), kernels());
    const std::vector<Number> x = NumbersOf<Number>(layer.x);
    std::vector<Number> y(layer.from_y.size());
    ConvolutionForward(layer.shape,
                       ConvolutionImages<Number>{.n = layer.n,
                                                 .x = x.data(),
                                                 .packed = packed.data(),
                                                 .bias = layer.bias.data(),
                                                 .y = y.data()},
                       kernels());
    return y;
  }

  template <typename Number>
  void ExpectSums(const Layer& layer) const {
    const std::vector<float> y = FloatsOf(Forward<Number>(layer));
    // By taps images are all alike; of fewer products there are several blocks.
    const int64_t images =
        PackedFloats(layer.shape) > layer.shape.weights() ? layer.n : 3;
    for (int64_t i = 0; i < images * layer.shape.out_image(); ++i) {
      const double want = std::max(layer.sum[i], 0.0);
      ASSERT_NEAR(y[i], want, Tolerance<Number>(want))
          << layer.shape.width << ", " << i;
    }
  }

  template <typename Number>
  void ExpectGradients(const Layer& layer) const {
    const ConvolutionShape& shape = layer.shape;
    const std::vector<Number> x = NumbersOf<Number>(layer.x);
    const std::vector<Number> y = Forward<Number>(layer);
    const std::vector<Number> from_y = NumbersOf<Number>(layer.from_y);
    const bool images = shape.in % kConvolutionWidth == 0;
    // Whatever is there is written over.
    auto from_sum = Unwritten<Number>(y.size());
    auto to_x = Unwritten<Number>(x.size());
    // Both are added to.
    std::vector<float> to_packed(layer.weight.size(), 1), to_bias(shape.out, 2);
    ConvolutionBack<Number> given = {.n = layer.n,
                                     .x = x.data(),
                                     .weight = layer.weight.data(),
                                     .y = y.data(),
                                     .from_y = from_y.data(),
                                     .from_sum = from_sum.data(),
                                     .to_x = images ? to_x.data() : nullptr,
                                     .to_packed = to_packed.data(),
                                     .to_bias = to_bias.data()};
    ConvolutionBackward(shape, given, kernels());
    // Of fewer products nothing is kept there.
    if (sizeof(Number) == 2 || PackedFloats(shape) == shape.weights()) {
      const std::vector<float> passed = FloatsOf(from_sum), out = FloatsOf(y);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(passed[i], out[i] > 0 ? layer.from_y[i] : 0);
      }
    }
    // In the memory of the gradients that are given they are the same.
    std::vector<Number> both = from_y,
                        to_x_of_both = Unwritten<Number>(x.size());
    std::vector<float> packed_of_both(layer.weight.size(), 1),
        bias_of_both(shape.out, 2);
    given.from_y = given.from_sum = both.data();
    given.to_packed = packed_of_both.data();
    given.to_bias = bias_of_both.data();
    if (images) given.to_x = to_x_of_both.data();
    ConvolutionBackward(shape, given, kernels());
    ASSERT_EQ(packed_of_both, to_packed);
    ASSERT_EQ(bias_of_both, to_bias);
    if (images) {
      ASSERT_EQ(to_x_of_both, to_x);
    }
    const std::vector<float> back = FloatsOf(to_x);
    for (size_t i = 0; i < back.size() && images; ++i) {
      ASSERT_NEAR(back[i], layer.to_x[i], Tolerance<Number>(layer.to_x[i]))
          << shape.width << ", " << i;
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
};

bool IsForPairs(const ConvolutionShape& shape) { return shape.in % 2 == 0; }

TEST_P(ConvolutionTest, IsTheSumOverItsTapsAndNotBelowZero) {
  for (const Layer& layer : Layers()) {
    ExpectSums<float>(layer);
    if (IsForPairs(layer.shape)) ExpectSums<Bfloat16>(layer);
  }
}

TEST_P(ConvolutionTest, GradientsAreTheLoops) {
  for (const Layer& layer : Layers()) {
    ExpectGradients<float>(layer);
    if (IsForPairs(layer.shape)) ExpectGradients<Bfloat16>(layer);
  }
}

TEST(WinogradTest, FewerProductsAreMadeWhereThatGains) {
  // So many sums of the weights of each cell, of which there are 4 or 9.
  const auto expect = [](const ConvolutionShape& shape, int64_t sums,
                         int64_t cells) {
    EXPECT_EQ(PackedFloats(shape) * cells, shape.weights() * sums);
  };
  expect(
      {.height = 84, .width = 84, .in = 4, .kernel = 8, .stride = 4, .out = 32},
      36, 4);
  // 9 tiles of 16 products, or 4 of 36.
  expect({.height = 20,
          .width = 20,
          .in = 32,
          .kernel = 4,
          .stride = 2,
          .out = 64},
         16, 4);
  expect(
      {.height = 9, .width = 9, .in = 64, .kernel = 3, .stride = 1, .out = 64},
      36, 9);
  for (const int marked : {1, 2, 8}) {
    expect(kShapes[marked], 16, kShapes[marked].kernel == 3 ? 9 : 4);
  }
  for (const int marked : {0, 9, 10}) {
    expect(kShapes[marked], 36, kShapes[marked].kernel == 3 ? 9 : 4);
  }
  // As many sums as a shared cache does not hold: in smaller tiles.
  expect({.height = 84,
          .width = 84,
          .in = 64,
          .kernel = 8,
          .stride = 4,
          .out = 256},
         16, 4);
  // One row of places, in tiles of two rows; a cell that no vectors fill.
  expect(
      {.height = 3, .width = 29, .in = 16, .kernel = 3, .stride = 1, .out = 48},
      1, 1);
  expect(
      {.height = 9, .width = 9, .in = 12, .kernel = 3, .stride = 1, .out = 16},
      1, 1);
}

TEST_P(ConvolutionTest, NoImagesAddNothingToGradients) {
  for (const ConvolutionShape& shape : kShapes) {
    std::vector<float> weight(shape.weights(), 1), to_packed(weight),
        to_bias(shape.out, 1);
    ConvolutionBackward(shape,
                        ConvolutionBack<float>{.weight = weight.data(),
                                               .to_packed = to_packed.data(),
                                               .to_bias = to_bias.data()},
                        kernels());
    ASSERT_EQ(to_packed, weight);
    ASSERT_EQ(to_bias, std::vector<float>(shape.out, 1));
  }
}

TEST_P(ConvolutionTest, UnpacksWhatItPacked) {
  for (const ConvolutionShape& shape : kShapes) {
    const std::vector<float> weight = Draw(shape.weights(), 1, 6);
    std::vector<float> packed(weight.size(), kNaN), back(weight.size(), kNaN);
    kernels().convolution_pack(shape, weight.data(), packed.data());
    UnpackConvolution(shape, packed.data(), back.data(), kernels());
    EXPECT_EQ(back, weight) << shape.width;
  }
}

TEST_P(ConvolutionTest, AnImageIsTheSameInAnyBatch) {
  for (const ConvolutionShape& shape : kShapes) {
    const Given layer(shape, ImagesOf(shape));
    Given alone(shape, 1);
    // The last, which is in another block than the first.
    std::copy_n(layer.x.end() - shape.image(), shape.image(), alone.x.begin());
    const auto expect = [&](const auto& one, const auto& all) {
      const size_t first = all.size() - one.size();
      for (size_t i = 0; i < one.size(); ++i) {
        ASSERT_EQ(one[i], all[first + i]) << shape.width << ", " << i;
      }
    };
    expect(Forward<float>(alone), Forward<float>(layer));
    if (IsForPairs(shape)) {
      expect(Forward<Bfloat16>(alone), Forward<Bfloat16>(layer));
    }
  }
}

// As a black screen at the beginning, of which rounding would say which places learn.
TEST_P(ConvolutionTest, APlaceThatSeesZerosIsItsBias) {
  for (const ConvolutionShape& shape : kShapes) {
    Given layer(shape, 2);
    std::fill(layer.bias.begin(), layer.bias.end(), 0.0f);
    // All but the first row of pixels of each image.
    const int64_t row = shape.width * shape.in;
    for (int64_t i = 0; i < layer.n; ++i) {
      std::fill(layer.x.begin() + i * shape.image() + row,
                layer.x.begin() + (i + 1) * shape.image(), 0.0f);
    }
    const std::vector<float> y = Forward<float>(layer);
    const int64_t out_row = shape.out_width() * shape.out;
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      if (i % shape.out_image() >= out_row) {
        ASSERT_EQ(y[i], 0) << shape.width << ", " << i;
      }
    }
  }
}

TEST_P(ConvolutionTest, HandsOnNaN) {
  for (const int tiled : {1, 10}) {  // by tiles of both sides
    Given layer(kShapes[tiled], 2);
    layer.x[3] = kNaN;
    for (const std::vector<float>& y :
         {Forward<float>(layer), FloatsOf(Forward<Bfloat16>(layer))}) {
      EXPECT_TRUE(std::isnan(y[0]));
      for (size_t i = layer.shape.out_image(); i < y.size(); ++i) {
        ASSERT_FALSE(std::isnan(y[i])) << "of the other image";
      }
    }
  }
}

TEST_P(ConvolutionTest, RoundsToTheNearestOfBfloat16) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> rows = Draw(2 * 16, 3, 5);
  // Halfway, down to an even number and up to one; what is rounded to infinity.
  rows[0] = 1 + 1.0f / 256;
  rows[1] = 1 + 3.0f / 256;
  rows[2] = -rows[1];
  rows[3] = std::numeric_limits<float>::max();
  rows[4] = -infinity;
  rows[5] = 0;
  rows[6] = kNaN;
  // What is quiet about it may be in the half that is cut off.
  rows[7] = std::bit_cast<float>(0x7f800001);
  std::vector<Bfloat16> pairs(rows.size(), kHalfNaN);
  kernels().pair_rows(1, 16, rows.data(), 16, pairs.data());
  const std::vector<float> got = FloatsOf(pairs);
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[2], 1 + 4.0f / 256);
  EXPECT_EQ(got[4], -(1 + 4.0f / 256));
  EXPECT_EQ(got[6], infinity);
  EXPECT_EQ(got[8], -infinity);
  EXPECT_TRUE(std::isnan(got[12]) && std::isnan(got[14]));
  for (size_t column = 8; column < 16; ++column) {
    EXPECT_EQ(got[2 * column], Rounded(rows[column]));
    EXPECT_EQ(got[2 * column + 1], Rounded(rows[16 + column]));
  }
}

FLOTILLA_FOR_EVERY_KERNEL(ConvolutionTest);
INSTANTIATE_TEST_SUITE_P(Emulated, ConvolutionTest,
                         testing::Values(&EmulatedAmx()), NameOfKernels);

}  // namespace
}  // namespace flotilla
