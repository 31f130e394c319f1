#ifndef FLOTILLA_SERVICES_BASE_RANDOM_H_
#define FLOTILLA_SERVICES_BASE_RANDOM_H_

#include <array>
#include <cstdint>
#include <initializer_list>

// Seeds and a small generator. What is here never changes between releases:
// a run's seed has to mean the same episodes tomorrow.

namespace flotilla {

// Mixes `values` into one seed: h = length, then h = splitmix64(h ^ value) for
// each. Order and length count.
uint64_t HashSeed(std::initializer_list<uint64_t> values);

// The seed of one episode of one environment row. Disjoint by construction for
// all rows, workers, worker restarts (`incarnation`) and episodes, and
// independent of who restarted when.
uint64_t EpisodeSeed(uint64_t seed, uint64_t worker_id, uint64_t row,
                     uint64_t incarnation, uint64_t episode);

// The seed for sampling actions and minibatches of one update on one rank.
uint64_t SamplingSeed(uint64_t seed, uint64_t rank, uint64_t update);

// xoshiro256++ (Blackman and Vigna 2019), its state filled by splitmix64 from
// `seed`. Every method but Normal is exact on every machine; Normal goes
// through the C library's log and is exact where that is the same.
//
// Not thread-safe.
class Random {
 public:
  using State = std::array<uint64_t, 4>;

  explicit Random(uint64_t seed);

  uint64_t Next();

  // [0, 1), a multiple of 2^-53.
  double Uniform();

  // lo + (hi - lo) * Uniform().
  double Uniform(double lo, double hi);

  // {0, ..., n - 1} without bias (Lemire 2019). `n` is at least 1.
  uint64_t Below(uint64_t n);

  // Mean 0, variance 1 (Marsaglia's polar method). Takes an even number of
  // draws and keeps nothing back, so State is the whole state.
  double Normal();

  // Everything later draws depend on. A state of four zeros is not valid.
  State state() const { return state_; }
  void set_state(const State& state);

 private:
  State state_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_RANDOM_H_
