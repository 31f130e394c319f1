#ifndef FLOTILLA_LEARNER_KERNELS_PPO_LOSS_H_
#define FLOTILLA_LEARNER_KERNELS_PPO_LOSS_H_

#include <cstdint>

namespace flotilla {

// Experience to learn from, one row a sample: a rollout [T, B] seen as S = T *
// B rows. Borrowed. One of the actions is set, as the policy's are.
struct PpoSamples {
  const float* observations = nullptr;        // [S, D]
  const int64_t* discrete_actions = nullptr;  // [S, K]
  const uint8_t* mask = nullptr;  // [S, A]  as MlpActorCritic's; null: none
  const float* continuous_actions = nullptr;  // [S, A]
  const float* log_prob = nullptr;            // [S]  when the action was taken
  const float* advantage = nullptr;           // [S]
  const float* returns = nullptr;             // [S]  what the value aims at
  const float* value = nullptr;               // [S]  when the action was taken
  const uint8_t* valid = nullptr;  // [S]  0: skip, never read; null: all valid
};

// advantage' = (advantage - mean) * scale.
struct AdvantageScale {
  float mean = 0;
  float scale = 1;
};

// The loss of CleanRL's ppo.py and ppo_continuous_action.py. For one sample,
// with ratio r = exp(log_prob' - log_prob) and advantage a after scaling:
//
//   policy   max(-a r, -a clamp(r, 1 - clip_ratio, 1 + clip_ratio))
//   value    1/2 max((v' - R)^2, (v + clamp(v' - v, +-value_clip) - R)^2)
//   loss     policy - entropy_cost * entropy + value_cost * value
struct PpoLoss {
  float clip_ratio = 0.2f;
  float value_clip = 0.2f;  // 0: 1/2 (v' - R)^2
  float entropy_cost = 0.01f;
  float value_cost = 0.5f;
  AdvantageScale advantage = {};
  // What the sum of losses is divided by: the number of valid samples for a
  // mean, over all shards and ranks for theirs; 1 for the sum itself.
  double divisor = 1;
};

// Sums over the valid samples, undivided.
struct PpoSums {
  int64_t samples = 0;
  double policy_loss = 0;
  double value_loss = 0;  // with its 1/2, without value_cost
  double entropy = 0;
  double old_approx_kl = 0;  // -log r
  double approx_kl = 0;      // (r - 1) - log r
  double clipped = 0;        // samples with |r - 1| > clip_ratio

  PpoSums& operator+=(const PpoSums& other) {
    samples += other.samples;
    policy_loss += other.policy_loss;
    value_loss += other.value_loss;
    entropy += other.entropy;
    old_approx_kl += other.old_approx_kl;
    approx_kl += other.approx_kl;
    clipped += other.clipped;
    return *this;
  }
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_PPO_LOSS_H_
