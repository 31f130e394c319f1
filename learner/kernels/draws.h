#ifndef FLOTILLA_LEARNER_KERNELS_DRAWS_H_
#define FLOTILLA_LEARNER_KERNELS_DRAWS_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "learner/kernels/lane.h"

namespace flotilla {

// Random numbers by their place in a stream, so that a host and a device that take
// the same places draw the same: splitmix64 (Steele et al. 2014), whose n-th number
// is a function of its seed and n. Each of the three below takes one place. Exact
// everywhere, but for what log and cos round in a normal number.

FLOTILLA_INLINE uint64_t BitsAt(uint64_t seed, uint64_t place) {
  uint64_t x = seed + (place + 1) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

// [0, 1), a multiple of 2^-53.
FLOTILLA_INLINE double UniformAt(uint64_t seed, uint64_t place) {
  return static_cast<double>(BitsAt(seed, place) >> 11) * 0x1p-53;
}

// Mean 0, variance 1 (Box and Muller 1958), of two uniform numbers of 32 bits: 6.7 at
// most.
FLOTILLA_INLINE double NormalAt(uint64_t seed, uint64_t place) {
  const uint64_t bits = BitsAt(seed, place);
  const double radius = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;
  const double angle = static_cast<double>(bits & 0xffffffff) * 0x1p-32;
#ifdef __CUDA_ARCH__
  const double cosine = cospi(2 * angle);  // cos wants memory for large angles
#else
  constexpr double kTwoPi = 6.283185307179586476925;
  const double cosine = std::cos(kTwoPi * angle);
#endif
  return std::sqrt(-2 * std::log(radius)) * cosine;
}

// The places of one stream in their order. What draws elsewhere what the next `n`
// would be, from `seed` and `place` on, Skips them.
//
// Not thread-safe.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}

  uint64_t Bits() { return BitsAt(seed_, place_++); }
  double Uniform() { return UniformAt(seed_, place_++); }
  double Normal() { return NormalAt(seed_, place_++); }

  uint64_t seed() const { return seed_; }
  uint64_t place() const { return place_; }
  void Skip(uint64_t n) { place_ += n; }
  // Skips them, and says what they are drawn by: seed and first place, as tensors
  // hold them.
  std::array<int64_t, 2> Take(uint64_t n) {
    const auto first = static_cast<int64_t>(place_);
    Skip(n);
    return {static_cast<int64_t>(seed_), first};
  }

 private:
  uint64_t seed_;
  uint64_t place_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_DRAWS_H_
