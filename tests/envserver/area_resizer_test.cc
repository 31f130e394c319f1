#include "envserver/envs/area_resizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "services/base/random.h"

namespace flotilla {
namespace {

std::vector<uint8_t> Resize(const std::vector<uint8_t>& source, int h, int w,
                            int height, int width) {
  std::vector<uint8_t> out(height * width);
  AreaResizer(h, w, height, width).Resize(source.data(), out.data());
  return out;
}

// The mean of the covered area, in double, without any of the tables.
double Mean(const std::vector<uint8_t>& source, int h, int w, int height,
            int width, int y, int x) {
  const double sy = double(h) / height, sx = double(w) / width;
  double sum = 0;
  for (int r = 0; r < h; ++r) {
    const double rows =
        std::min<double>(r + 1, (y + 1) * sy) - std::max<double>(r, y * sy);
    if (rows <= 0) continue;
    for (int c = 0; c < w; ++c) {
      const double columns =
          std::min<double>(c + 1, (x + 1) * sx) - std::max<double>(c, x * sx);
      if (columns > 0) sum += source[r * w + c] * rows * columns;
    }
  }
  return sum / (sy * sx);
}

// OpenCV's loops as they are written: tables, floats and order.
std::vector<uint8_t> OpenCvArea(const std::vector<uint8_t>& source, int h,
                                int w, int height, int width) {
  struct Alpha {
    int si, di;
    float alpha;
  };
  const auto table = [](int ssize, int dsize) {
    const double scale = double(ssize) / dsize;
    std::vector<Alpha> tab;
    for (int dx = 0; dx < dsize; dx++) {
      const double fsx1 = dx * scale;
      const double fsx2 = fsx1 + scale;
      const double cell = std::min(scale, ssize - fsx1);
      int sx1 = static_cast<int>(std::ceil(fsx1));
      int sx2 = static_cast<int>(std::floor(fsx2));
      sx2 = std::min(sx2, ssize - 1);
      sx1 = std::min(sx1, sx2);
      if (sx1 - fsx1 > 1e-3) {
        tab.push_back({sx1 - 1, dx, float((sx1 - fsx1) / cell)});
      }
      for (int sx = sx1; sx < sx2; sx++) {
        tab.push_back({sx, dx, float(1.0 / cell)});
      }
      if (fsx2 - sx2 > 1e-3) {
        tab.push_back(
            {sx2, dx, float(std::min(std::min(fsx2 - sx2, 1.), cell) / cell)});
      }
    }
    return tab;
  };
  const std::vector<Alpha> xtab = table(w, width);
  std::vector<float> sum(height * width);
  for (const Alpha& y : table(h, height)) {
    std::vector<float> buf(width);
    for (const Alpha& x : xtab) {
      // Volatile: not fused with the addition.
      const volatile float product = source[y.si * w + x.si] * x.alpha;
      buf[x.di] = buf[x.di] + product;
    }
    for (int x = 0; x < width; ++x) {
      const volatile float product = y.alpha * buf[x];
      sum[y.di * width + x] = sum[y.di * width + x] + product;
    }
  }
  std::vector<uint8_t> out;
  for (const float value : sum) {
    out.push_back(
        static_cast<uint8_t>(std::clamp<long>(std::lrint(value), 0, 255)));
  }
  return out;
}

class AreaResizerTest
    : public testing::TestWithParam<std::tuple<int, int, int, int>> {};

TEST_P(AreaResizerTest, PixelsAreMeansOfTheAreaTheyCover) {
  const auto [h, w, height, width] = GetParam();
  Random random(1);
  std::vector<uint8_t> source(h * w);
  for (uint8_t& pixel : source) pixel = static_cast<uint8_t>(random.Below(256));
  const auto out = Resize(source, h, w, height, width);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      ASSERT_NEAR(out[y * width + x], Mean(source, h, w, height, width, y, x),
                  0.5 + 1e-3)
          << y << ", " << x;
    }
  }
}

TEST_P(AreaResizerTest, EveryBitIsOpenCvs) {
  const auto [h, w, height, width] = GetParam();
  Random random(2);
  for (int frame = 0; frame < 5; ++frame) {
    std::vector<uint8_t> source(h * w);
    for (uint8_t& pixel : source) {
      pixel = static_cast<uint8_t>(random.Below(256));
    }
    ASSERT_EQ(Resize(source, h, w, height, width),
              OpenCvArea(source, h, w, height, width));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, AreaResizerTest,
    testing::Values(std::tuple(210, 160, 84, 84), std::tuple(250, 160, 84, 84),
                    std::tuple(210, 160, 96, 96), std::tuple(210, 160, 16, 17),
                    std::tuple(210, 160, 160, 160), std::tuple(7, 5, 3, 2),
                    std::tuple(4, 4, 4, 3)));

TEST(AreaResizerTest, SameSizeIsACopy) {
  const std::vector<uint8_t> source = {0, 1, 127, 128, 254, 255};
  EXPECT_EQ(Resize(source, 2, 3, 2, 3), source);
}

TEST(AreaResizerTest, WhiteStaysWhite) {
  EXPECT_EQ(Resize(std::vector<uint8_t>(210 * 160, 255), 210, 160, 84, 84),
            std::vector<uint8_t>(84 * 84, 255));
}

TEST(AreaResizerTest, HalvesRoundToEven) {
  // Two columns into one, one row: means of 0.5, 1.5 and 2.5.
  for (const auto& [a, b, want] :
       {std::tuple(0, 1, 0), std::tuple(1, 2, 2), std::tuple(2, 3, 2)}) {
    const std::vector<uint8_t> source = {static_cast<uint8_t>(a),
                                         static_cast<uint8_t>(b)};
    EXPECT_EQ(Resize(source, 1, 2, 1, 1)[0], want);
  }
}

}  // namespace
}  // namespace flotilla
