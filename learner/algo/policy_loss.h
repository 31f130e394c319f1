#ifndef FLOTILLA_LEARNER_ALGO_POLICY_LOSS_H_
#define FLOTILLA_LEARNER_ALGO_POLICY_LOSS_H_

#include <cstdint>

namespace flotilla {

// What PPO, APPO and IMPALA say of their common loss (policy_gradient.h); see
// PpoConfig and ImpalaConfig for what each means.
struct PolicyLoss {
  double clip_ratio = 0.2;  // infinity clips nothing
  double value_clip = 0;    // 0: off
  double entropy_cost = 0;
  double value_cost = 0.5;
  int epochs = 1;
  int minibatches = 1;
  int64_t max_minibatch = 0;  // steps that go through a network at once; 0: any
  bool normalize_advantages = false;  // per minibatch and rank
  double target_kl = 0;               // 0: off
  bool anneal_clip = false;
  bool bootstrap_truncation = true;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_POLICY_LOSS_H_
