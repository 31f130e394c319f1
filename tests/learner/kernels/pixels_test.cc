#include "learner/kernels/pixels.h"

#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

std::vector<uint8_t> RandomFrames(int64_t size) {
  std::mt19937 rng(static_cast<unsigned>(size));
  std::uniform_int_distribution<int> byte(0, 255);
  std::vector<uint8_t> frames(size);
  for (uint8_t& pixel : frames) pixel = static_cast<uint8_t>(byte(rng));
  return frames;
}

using PixelsTest = EveryKernelTest;
FLOTILLA_FOR_EVERY_KERNEL(PixelsTest);

TEST_P(PixelsTest, ChannelsComeLastAndNothingElseChanges) {
  constexpr int64_t kFrames = 3;
  constexpr float kScale = 1.0f / 255;
  for (const int64_t channels : {1, 2, 3, 4, 12}) {
    for (const int64_t pixels : {1, 5, 16, 49, 84 * 84}) {
      const int64_t size = kFrames * channels * pixels;
      const std::vector<uint8_t> frames = RandomFrames(size);
      std::vector<float> scaled(size, -1);
      std::vector<uint16_t> half(size, 0xffff);
      PixelsToFloat(frames.data(), kFrames, channels, pixels, kScale,
                    scaled.data(), kernels());
      PixelsToBfloat16(frames.data(), kFrames, channels, pixels, half.data(),
                       kernels());
      for (int64_t i = 0; i < size; ++i) {
        const int64_t c = i % channels, p = i / channels % pixels;
        const int64_t n = i / channels / pixels;
        const float expected = frames[(n * channels + c) * pixels + p];
        ASSERT_EQ(scaled[i], expected * kScale) << channels << " " << i;
        const uint32_t bits = uint32_t{half[i]} << 16;
        float whole = 0;
        std::memcpy(&whole, &bits, sizeof(whole));
        ASSERT_EQ(whole, expected) << channels << " " << i;
      }
    }
  }
}

TEST_P(PixelsTest, ImagesAreTurnedWhateverTheirSides) {
  constexpr int64_t kImages = 3;
  for (const int64_t rows : {1, 7, 16, 33, 49}) {
    for (const int64_t columns : {1, 16, 31, 64, 81}) {
      const int64_t size = kImages * rows * columns;
      std::vector<float> images(size), turned(size, -1);
      std::vector<uint16_t> shorts(size), turned_shorts(size, 0xffff);
      for (int64_t i = 0; i < size; ++i) {
        images[i] = static_cast<float>(i);
        shorts[i] = static_cast<uint16_t>(i);
      }
      TurnImages(kImages, rows, columns, images.data(), turned.data(),
                 kernels());
      TurnImages(kImages, rows, columns, shorts.data(), turned_shorts.data());
      for (int64_t i = 0; i < size; ++i) {
        const int64_t r = i % rows, c = i / rows % columns;
        const int64_t from = i / rows / columns * rows * columns;
        ASSERT_EQ(turned[i], images[from + r * columns + c])
            << rows << " " << i;
        ASSERT_EQ(turned_shorts[i], shorts[from + r * columns + c]);
      }
    }
  }
}

}  // namespace
}  // namespace flotilla
