#ifndef FLOTILLA_LEARNER_CUDA_SAMPLING_H_
#define FLOTILLA_LEARNER_CUDA_SAMPLING_H_

#include <cmath>
#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/kernels/draws.h"

namespace flotilla {

// What decisions draw. A stream [2] is a seed and a place (kernels/draws.h): of R
// rows that take N numbers each, row r has those from place + r * N on. Pointers are
// the device's; the host runs the same, row by row.

// From what a network says: see nn/action_head.h. N is K + A: first a row's choices
// and then its values.
struct SampleArgs {
  int64_t rows = 0;                      // R
  int64_t choices = 0;                   // K
  int64_t logits = 0;                    // L
  int64_t continuous = 0;                // A
  const int32_t* first_logit = nullptr;  // [K + 1]  of each choice; then L
  const float* policy = nullptr;         // [R, L + A]  logits, then means
  const float* log_std = nullptr;        // [A], or [R, A] if per_row
  bool log_std_per_row = false;          //
  const uint8_t* mask = nullptr;         // [R, L]; null: all is allowed
  const int64_t* stream = nullptr;       // [2]; null: the most likely actions

  int64_t* discrete = nullptr;  // [R, K]
  float* action = nullptr;      // [R, A]
  float* log_prob = nullptr;    // [R]
};

// Epsilon-greedy: see nn/q_policy.h. N is 1 + K: whether a row explores, and where
// each choice would end if it did.
struct ExploreArgs {
  int64_t rows = 0;                      // R
  int64_t choices = 0;                   // K
  int64_t logits = 0;                    // L
  const int32_t* first_logit = nullptr;  // [K + 1]
  const float* value = nullptr;          // [R, L]
  const uint8_t* mask = nullptr;         // [R, L]; null: all is allowed
  const int64_t* stream = nullptr;       // [2]; null: nobody explores
  const double* epsilon = nullptr;       // [1]

  int64_t* discrete = nullptr;  // [R, K]
};

// Within bounds: see nn/squashed_gaussian.h. N is A.
struct SquashArgs {
  int64_t rows = 0;                 // R
  int64_t values = 0;               // A
  const float* mean = nullptr;      // [R, A]; null: anything within them alike
  const float* log_std = nullptr;   // [R, A]
  const float* low = nullptr;       // [A]
  const float* high = nullptr;      // [A]
  const int64_t* stream = nullptr;  // [2]; null: the means'

  float* action = nullptr;  // [R, A]
};

// The normal numbers at `count` places of a stream, in their order.
struct NormalsArgs {
  int64_t count = 0;
  uint64_t seed = 0;
  uint64_t place = 0;  // the first
  float* to = nullptr;
};

namespace {

// Where a row's numbers are. Without a stream there are none.
class RowDraws {
 public:
  FLOTILLA_INLINE RowDraws(const int64_t* stream, int64_t skipped) {
    if (stream == nullptr) return;
    seed_ = static_cast<uint64_t>(stream[0]);
    place_ = static_cast<uint64_t>(stream[1] + skipped);
  }
  FLOTILLA_INLINE double Uniform() { return UniformAt(seed_, place_++); }
  FLOTILLA_INLINE double Normal() { return NormalAt(seed_, place_++); }

 private:
  uint64_t seed_ = 0, place_ = 0;
};

// Which of the n values of a choice may be taken: those that `mask` [n] (or null)
// allows, or all, if that is none.
class AllowedValues {
 public:
  FLOTILLA_INLINE AllowedValues(const uint8_t* mask, int64_t n)
      : mask_(mask), n_(n), count_(n) {
    if (mask == nullptr) return;
    count_ = 0;
    for (int64_t a = 0; a < n; ++a) count_ += mask[a] != 0;
    if (count_ > 0) return;
    mask_ = nullptr;
    count_ = n;
  }

  FLOTILLA_INLINE bool operator()(int64_t a) const {
    return mask_ == nullptr || mask_[a] != 0;
  }
  FLOTILLA_INLINE int64_t count() const { return count_; }

  // The allowed one that `nth` others come before.
  FLOTILLA_INLINE int64_t At(int64_t nth) const {
    int64_t a = 0;
    for (; a + 1 < n_; ++a) {
      if ((*this)(a) && nth-- == 0) break;
    }
    return a;
  }
  // The first of those whose number is the largest.
  FLOTILLA_INLINE int64_t Best(const float* number) const {
    int64_t best = At(0);
    for (int64_t a = best + 1; a < n_; ++a) {
      if ((*this)(a) && number[a] > number[best]) best = a;
    }
    return best;
  }

 private:
  const uint8_t* mask_;
  const int64_t n_;
  int64_t count_;
};

// One of n values, of softmax(logits [n]) over those that `mask` (or null) allows:
// where the cumulative distribution passes `share` of it, in [0, 1), or, if that is
// negative, the likeliest. The last takes what rounding leaves over.
FLOTILLA_INLINE int64_t PickValue(const float* logits, int64_t n,
                                  const uint8_t* mask, double share,
                                  float* log_prob) {
  const AllowedValues may(mask, n);
  int64_t chosen = may.Best(logits);
  const float largest = logits[chosen];
  double sum = 0;
  for (int64_t a = 0; a < n; ++a) {
    if (may(a)) sum += std::exp(logits[a] - largest);
  }
  if (share >= 0) {
    double left = share * sum;
    for (int64_t a = 0; a < n && left >= 0; ++a) {
      if (!may(a)) continue;
      chosen = a;
      left -= std::exp(logits[a] - largest);
    }
  }
  *log_prob = logits[chosen] - largest - static_cast<float>(std::log(sum));
  return chosen;
}

struct SampleKernel {
  SampleArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.rows, [&](int64_t r) { Row(r); });
  }

  FLOTILLA_INLINE void Row(int64_t r) const {
    constexpr double kHalfLogTwoPi = 0.91893853320467274178;
    RowDraws draws(a.stream, r * (a.choices + a.continuous));
    const float* const policy = a.policy + r * (a.logits + a.continuous);
    float log_prob = 0;
    for (int64_t k = 0; k < a.choices; ++k) {
      const int64_t first = a.first_logit[k];
      const uint8_t* const mask =
          a.mask == nullptr ? nullptr : a.mask + r * a.logits + first;
      const double share = a.stream == nullptr ? -1 : draws.Uniform();
      float one;
      a.discrete[r * a.choices + k] = PickValue(
          policy + first, a.first_logit[k + 1] - first, mask, share, &one);
      log_prob += one;
    }
    const float* const log_std =
        a.log_std + (a.log_std_per_row ? r * a.continuous : 0);
    double total = 0;
    for (int64_t j = 0; j < a.continuous; ++j) {
      const double z = a.stream == nullptr ? 0 : draws.Normal();
      a.action[r * a.continuous + j] =
          policy[a.logits + j] + static_cast<float>(z * std::exp(log_std[j]));
      total -= 0.5 * z * z + log_std[j] + kHalfLogTwoPi;
    }
    a.log_prob[r] = log_prob + static_cast<float>(total);
  }
};

struct ExploreKernel {
  ExploreArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.rows, [&](int64_t r) { Row(r); });
  }

  FLOTILLA_INLINE void Row(int64_t r) const {
    RowDraws draws(a.stream, r * (1 + a.choices));
    const bool explores = a.stream != nullptr && draws.Uniform() < *a.epsilon;
    for (int64_t k = 0; k < a.choices; ++k) {
      const int64_t first = a.first_logit[k], at = r * a.logits + first;
      const AllowedValues may(a.mask == nullptr ? nullptr : a.mask + at,
                              a.first_logit[k + 1] - first);
      a.discrete[r * a.choices + k] =
          explores ? may.At(static_cast<int64_t>(
                         draws.Uniform() * static_cast<double>(may.count())))
                   : may.Best(a.value + at);
    }
  }
};

struct SquashKernel {
  SquashArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.rows * a.values, [&](int64_t i) {
      RowDraws draws(a.stream, i);
      double share;  // of the way from low to high
      if (a.mean == nullptr) {
        share = draws.Uniform();
      } else {
        double u = a.mean[i];
        if (a.stream != nullptr) {
          u += std::exp(static_cast<double>(a.log_std[i])) * draws.Normal();
        }
        share = (std::tanh(u) + 1) / 2;
      }
      const float low = a.low[i % a.values], high = a.high[i % a.values];
      const double width = static_cast<double>(high) - low;
      // Rounding may lead out of the bounds.
      a.action[i] =
          AtLeast(AtMost(static_cast<float>(low + width * share), high), low);
    });
  }
};

struct NormalsKernel {
  NormalsArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.count, [&](int64_t i) {
      a.to[i] = static_cast<float>(
          NormalAt(a.seed, a.place + static_cast<uint64_t>(i)));
    });
  }
};

// `run(kernel, blocks)` runs it.
template <typename Run>
void RunKernels(const SampleArgs& args, Run run) {
  run(SampleKernel{args}, BlocksFor(args.rows));
}
template <typename Run>
void RunKernels(const ExploreArgs& args, Run run) {
  run(ExploreKernel{args}, BlocksFor(args.rows));
}
template <typename Run>
void RunKernels(const SquashArgs& args, Run run) {
  run(SquashKernel{args}, BlocksFor(args.rows * args.values));
}
template <typename Run>
void RunKernels(const NormalsArgs& args, Run run) {
  run(NormalsKernel{args}, BlocksFor(args.count));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_SAMPLING_H_
