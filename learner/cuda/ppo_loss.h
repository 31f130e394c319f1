#ifndef FLOTILLA_LEARNER_CUDA_PPO_LOSS_H_
#define FLOTILLA_LEARNER_CUDA_PPO_LOSS_H_

#include <cmath>
#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/kernels/ppo_terms.h"

namespace flotilla {

// PPO's loss (kernels/ppo_loss.h) of what a network makes of M steps of a rollout
// with S, and its gradients with respect to that: what ActionHead and autograd
// compute (nn/action_head.h). Of K choices with L logits and of A values, O = L + A.
// Pointers are the device's.
struct PpoLossArgs {
  static constexpr int kSums = 6;

  int64_t rows = 0;                       // M
  int64_t choices = 0;                    // K
  int64_t logits = 0;                     // L
  int64_t continuous = 0;                 // A
  const int32_t* first_logit = nullptr;   // [K + 1]  of each choice; then L
  const float* policy = nullptr;          // [M, O]  logits, then means
  const float* log_std = nullptr;         // [A], or [M, A] if per_row
  bool log_std_per_row = false;           //
  const float* value = nullptr;           // [M]
  const uint8_t* mask = nullptr;          // [M, L]; null: all is allowed
  const int32_t* index = nullptr;         // [M] among S; null: 0, 1, ...
  const int64_t* discrete = nullptr;      // [S, K]
  const float* action = nullptr;          // [S, A]
  const float* log_prob = nullptr;        // [S]
  const float* old_value = nullptr;       // [S]
  const float* returns = nullptr;         // [S]
  const float* advantage = nullptr;       // [S]
  const float* mean_and_scale = nullptr;  // [2] of advantages; null: 0 and 1
  float clip_ratio = 0;
  float value_clip = 0;  // 0: off
  float entropy_cost = 0;
  float value_cost = 0;

  // The sum's, not the mean's.
  float* policy_slope = nullptr;   // [M, O]
  float* log_std_slope = nullptr;  // [M, A]
  float* value_slope = nullptr;    // [M]
  // As PpoSums has them behind `samples`.
  double* sums = nullptr;   // [kSums]
  double* parts = nullptr;  // [BlocksFor(M), kSums]
};

namespace {

// The categorical distribution of one choice of one row.
class Choice {
 public:
  // Leaves log p(a) in `log_p` [n]. `mask` [n] may be null; where it forbids
  // everything it is as if it allowed that.
  FLOTILLA_INLINE Choice(int64_t n, const float* logits, const uint8_t* mask,
                         float* log_p)
      : n_(n), mask_(mask), log_p_(log_p) {
    bool any = false;
    for (int64_t a = 0; a < n; ++a) any = any || Allows(a);
    if (!any) mask_ = nullptr;
    float largest = -INFINITY;
    for (int64_t a = 0; a < n; ++a) {
      if (Allows(a) && logits[a] > largest) largest = logits[a];
    }
    float sum = 0;
    for (int64_t a = 0; a < n; ++a) {
      if (Allows(a)) sum += std::exp(logits[a] - largest);
    }
    const float log_sum = std::log(sum);
    for (int64_t a = 0; a < n; ++a) log_p[a] = logits[a] - largest - log_sum;
  }

  FLOTILLA_INLINE bool Allows(int64_t a) const {
    return mask_ == nullptr || mask_[a] != 0;
  }

  // 0 of what is forbidden: it was not drawn from this, and belongs to a row that
  // is lost.
  FLOTILLA_INLINE float LogProb(int64_t a) const {
    return Allows(a) ? log_p_[a] : 0;
  }

  FLOTILLA_INLINE float Entropy() const {
    float entropy = 0;
    for (int64_t a = 0; a < n_; ++a) {
      if (Allows(a)) entropy -= std::exp(log_p_[a]) * log_p_[a];
    }
    return entropy;
  }

  // In place of log_p: the slopes of `slope` log p(taken) - entropy_cost entropy.
  FLOTILLA_INLINE void ToSlopes(int64_t taken, float slope,
                                float entropy_cost) const {
    const float entropy = Entropy();
    if (!Allows(taken)) slope = 0;
    for (int64_t a = 0; a < n_; ++a) {
      if (!Allows(a)) {
        log_p_[a] = 0;
        continue;
      }
      const float p = std::exp(log_p_[a]);
      log_p_[a] = (a == taken ? slope : 0.0f) - slope * p +
                  entropy_cost * p * (log_p_[a] + entropy);
    }
  }

 private:
  const int64_t n_;
  const uint8_t* mask_;
  float* const log_p_;
};

struct PpoLossKernel {
  PpoLossArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    double sums[PpoLossArgs::kSums];
    block.Sum(a.rows, sums, [&](int64_t m, double* mine) { Row(m, mine); });
    block.Once([&] {
      for (int j = 0; j < PpoLossArgs::kSums; ++j) {
        a.parts[block.index() * PpoLossArgs::kSums + j] = sums[j];
      }
    });
  }

 private:
  // Slopes hold log p of all choices before they are what they are called.
  FLOTILLA_INLINE Choice ChoiceOf(int64_t m, int64_t k) const {
    const int64_t first = a.first_logit[k], n = a.first_logit[k + 1] - first;
    const int64_t at = m * (a.logits + a.continuous) + first;
    const uint8_t* mask =
        a.mask == nullptr ? nullptr : a.mask + m * a.logits + first;
    return Choice(n, a.policy + at, mask, a.policy_slope + at);
  }

  FLOTILLA_INLINE void Row(int64_t m, double* sums) const {
    constexpr float kHalfLogTwoPi = 0.918938533f;
    const int64_t s = a.index == nullptr ? m : a.index[m];
    const int64_t outputs = a.logits + a.continuous;
    float log_prob = 0, entropy = 0;
    for (int64_t k = 0; k < a.choices; ++k) {
      const Choice choice = ChoiceOf(m, k);
      log_prob += choice.LogProb(a.discrete[s * a.choices + k]);
      entropy += choice.Entropy();
    }
    const float* mean = a.policy + m * outputs + a.logits;
    const float* log_std =
        a.log_std + (a.log_std_per_row ? m * a.continuous : 0);
    const float* action = a.action + s * a.continuous;
    for (int64_t j = 0; j < a.continuous; ++j) {
      const float z = (action[j] - mean[j]) * std::exp(-log_std[j]);
      log_prob -= 0.5f * (z * z) + (log_std[j] + kHalfLogTwoPi);
      entropy += log_std[j] + (0.5f + kHalfLogTwoPi);
    }

    float advantage = a.advantage[s];
    if (a.mean_and_scale != nullptr) {
      advantage = (advantage - a.mean_and_scale[0]) * a.mean_and_scale[1];
    }
    const float log_ratio = log_prob - a.log_prob[s];
    const float ratio = std::exp(log_ratio);
    const PolicyTerm<float> policy =
        PolicyTermOf(ratio, advantage, a.clip_ratio);
    const ValueTerm<float> value =
        ValueTermOf(a.value[m], a.old_value[s], a.returns[s], a.value_clip);
    sums[0] += policy.loss;
    sums[1] += value.loss;
    sums[2] += entropy;
    sums[3] -= log_ratio;
    sums[4] += (ratio - 1) - log_ratio;
    sums[5] += policy.clipped;

    a.value_slope[m] = value.slope * a.value_cost;
    for (int64_t k = 0; k < a.choices; ++k) {
      ChoiceOf(m, k).ToSlopes(a.discrete[s * a.choices + k], policy.slope,
                              a.entropy_cost);
    }
    for (int64_t j = 0; j < a.continuous; ++j) {
      const float inverse = std::exp(-log_std[j]);
      const float z = (action[j] - mean[j]) * inverse;
      a.policy_slope[m * outputs + a.logits + j] = policy.slope * z * inverse;
      a.log_std_slope[m * a.continuous + j] =
          policy.slope * (z * z - 1) - a.entropy_cost;
    }
  }
};

// Adds up what the blocks before left.
struct SumPartsKernel {
  const double* parts;
  int64_t count;
  double* sums;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    constexpr int N = PpoLossArgs::kSums;
    double total[N];
    block.Sum(count, total, [&](int64_t i, double* mine) {
      for (int j = 0; j < N; ++j) mine[j] += parts[i * N + j];
    });
    block.Once([&] {
      for (int j = 0; j < N; ++j) sums[j] = total[j];
    });
  }
};

// `run(kernel, blocks)` runs it, one after another.
template <typename Run>
void RunKernels(const PpoLossArgs& args, Run run) {
  const int64_t blocks = BlocksFor(args.rows);
  run(PpoLossKernel{args}, blocks);
  run(SumPartsKernel{args.parts, blocks, args.sums}, 1);
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_PPO_LOSS_H_
