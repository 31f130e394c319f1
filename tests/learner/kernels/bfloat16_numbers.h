#ifndef FLOTILLA_TESTS_LEARNER_KERNELS_BFLOAT16_NUMBERS_H_
#define FLOTILLA_TESTS_LEARNER_KERNELS_BFLOAT16_NUMBERS_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "learner/kernels/bfloat16.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {

// To the nearest that bfloat16 holds, of two as near to the even one.
inline float Rounded(float x) {
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(fraction * 256), exponent - 8);
}

// As Draw, of numbers that bfloat16 holds.
inline std::vector<float> DrawRounded(int64_t size, float scale,
                                      unsigned seed) {
  std::vector<float> drawn = Draw(size, scale, seed);
  for (float& x : drawn) x = Rounded(x);
  return drawn;
}

// Of what a Number holds.
template <typename Number>
std::vector<Number> NumbersOf(const std::vector<float>& floats) {
  if constexpr (std::is_same_v<Number, Bfloat16>) {
    std::vector<Bfloat16> numbers;
    for (const float x : floats) {
      const uint32_t bits = std::bit_cast<uint32_t>(x);
      EXPECT_EQ(bits & 0xffff, 0) << x;
      numbers.push_back(static_cast<Bfloat16>(bits >> 16));
    }
    return numbers;
  } else {
    return floats;
  }
}

// NaN, for what is to be written over.
template <typename Number>
std::vector<Number> Unwritten(size_t size) {
  constexpr uint32_t kNaN = 0x7fc00000;
  return NumbersOf<Number>(
      std::vector<float>(size, std::bit_cast<float>(kNaN)));
}

template <typename Number>
std::vector<float> FloatsOf(const std::vector<Number>& numbers) {
  if constexpr (std::is_same_v<Number, Bfloat16>) {
    std::vector<float> floats;
    for (const Bfloat16 x : numbers) {
      floats.push_back(std::bit_cast<float>(uint32_t{x} << 16));
    }
    return floats;
  } else {
    return numbers;
  }
}

// What a result may be off.
template <typename Number>
double Tolerance(double want) {
  const bool half = std::is_same_v<Number, Bfloat16>;
  return 1e-4 + (half ? std::abs(want) / 256 : 0);
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_KERNELS_BFLOAT16_NUMBERS_H_
