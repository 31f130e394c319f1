#ifndef FLOTILLA_LEARNER_ROLLOUT_NORMALIZER_H_
#define FLOTILLA_LEARNER_ROLLOUT_NORMALIZER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "learner/torch.h"

namespace flotilla {

// Running mean and variance of observations and of the discounted return, the
// same on every rank: gymnasium.wrappers.NormalizeObservation and
// NormalizeReward for many learners. What a rollout saw is set aside (Take),
// summed over ranks, and added for all at once (Add), so that scaling stays
// fixed while a rollout is collected and ranks never drift apart.
//
// Scaled values are clipped to [-10, 10]. Before anything was added, scaling
// changes nothing else. Not thread-safe.
class Normalizer {
 public:
  // Off, whatever is called, unless the configuration asks for it.
  Normalizer() = default;
  Normalizer(const v1::ModelConfig& config, double discount, int64_t features,
             int64_t rows);

  // A copy for evaluation: observations are scaled as now, rewards are left
  // alone, and any number of rows may be scored.
  Normalizer ForEvaluation() const;

  // Scales from now on as `other` does now; what was noted stays.
  void ScaleAs(const Normalizer& other);

  bool observations() const { return features_ > 0; }
  bool rewards() const { return rows_ > 0; }

  // Notes and scales `rows` observations in place: the first D numbers of each,
  // `stride` apart.
  void Observe(float* observation, int64_t rows, int64_t stride);
  // The same without noting: for final observations.
  void Scale(float* observation, int64_t rows, int64_t stride) const;

  // Notes and scales one step's rewards of rows [first, first + n) in place.
  // `ended[i]`: the row's episode ended with this reward, or was lost. Rewards of
  // steps that are not `valid` belong to no mean.
  void Reward(int64_t first, int64_t n, const uint8_t* ended,
              const uint8_t* valid, float* reward);
  // The episodes of rows [first, first + n) are over, or lost, without a reward
  // that says so.
  void Forget(int64_t first, int64_t n);

  // What was noted since the last Take: counts, sums and sums of squares.
  std::vector<double> Take();
  // Adds what all ranks took together, in Take's layout.
  void Add(std::span<const double> taken);

  // [1 + 2 D] and [3] float64: a count, sums, sums of squares. Live views.
  torch::Tensor observation_sums() const { return observation_sums_; }
  torch::Tensor reward_sums() const { return reward_sums_; }
  // Call after those were copied into.
  void SumsWereReplaced();

 private:
  int64_t features_ = 0;  // D; 0: observations are left alone
  int64_t rows_ = 0;      // B; 0: rewards are left alone
  double discount_ = 0;
  torch::Tensor observation_sums_ = torch::zeros({0}, torch::kFloat64);
  torch::Tensor reward_sums_ = torch::zeros({0}, torch::kFloat64);
  std::vector<float> mean_, scale_;  // [D]
  float reward_scale_ = 1;
  std::vector<double> noted_;              // Take's layout
  std::vector<double> discounted_return_;  // [B]
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_NORMALIZER_H_
