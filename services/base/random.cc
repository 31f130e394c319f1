#include "services/base/random.h"

#include <glog/logging.h>

#include <bit>
#include <cmath>

namespace flotilla {
namespace {

// Keeps episode seeds and sampling seeds apart: "episode\0" and "sampling".
constexpr uint64_t kEpisodeDomain = 0x0065646f73697065;
constexpr uint64_t kSamplingDomain = 0x676e696c706d6173;

__extension__ typedef unsigned __int128 Uint128;

// One step of splitmix64 (Steele et al. 2014) from state `x`. A bijection.
uint64_t SplitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t HashSeed(std::initializer_list<uint64_t> values) {
  uint64_t hash = values.size();
  for (uint64_t value : values) hash = SplitMix64(hash ^ value);
  return hash;
}

uint64_t EpisodeSeed(uint64_t seed, uint64_t worker_id, uint64_t row,
                     uint64_t incarnation, uint64_t episode) {
  return HashSeed({kEpisodeDomain, seed, worker_id, row, incarnation, episode});
}

uint64_t SamplingSeed(uint64_t seed, uint64_t rank, uint64_t update) {
  return HashSeed({kSamplingDomain, seed, rank, update});
}

Random::Random(uint64_t seed) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  for (uint64_t& word : state_) {
    word = SplitMix64(seed);
    seed += kGolden;
  }
}

uint64_t Random::Next() {
  State& s = state_;
  const uint64_t result = std::rotl(s[0] + s[3], 23) + s[0];
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

double Random::Uniform(double lo, double hi) {
  return lo + (hi - lo) * Uniform();
}

uint64_t Random::Below(uint64_t n) {
  CHECK_GE(n, 1u);
  Uint128 product = static_cast<Uint128>(Next()) * n;
  if (static_cast<uint64_t>(product) < n) {
    const uint64_t threshold = -n % n;
    while (static_cast<uint64_t>(product) < threshold) {
      product = static_cast<Uint128>(Next()) * n;
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

double Random::Normal() {
  double u, v, square;
  do {
    u = 2 * Uniform() - 1;
    v = 2 * Uniform() - 1;
    square = u * u + v * v;
  } while (square >= 1 || square == 0);
  return u * std::sqrt(-2 * std::log(square) / square);
}

void Random::set_state(const State& state) {
  CHECK((state != State{0, 0, 0, 0}));
  state_ = state;
}

}  // namespace flotilla
