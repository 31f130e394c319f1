#ifndef FLOTILLA_TESTS_LEARNER_ALGO_RANDOM_ROLLOUT_H_
#define FLOTILLA_TESTS_LEARNER_ALGO_RANDOM_ROLLOUT_H_

#include "learner/nn/policy.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// A rollout of numbers that look like experience: ends, time limits, actions in
// range that masks allow. Depends on torch's seed.
inline Rollout RandomRollout(const Spaces& spaces, int64_t T, int64_t B) {
  Rollout r = MakeRollout(spaces, T, B, /*pinned=*/false);
  for (size_t i = 0; i < spaces.observation.size(); ++i) {
    const LeafSpec& spec = spaces.observation[i];
    const torch::Tensor leaf = r.observation.leaf(static_cast<int>(i));
    if (spec.kind == LeafKind::kMask) {
      leaf.random_(0, 2);
    } else if (spec.kind == LeafKind::kDiscrete) {
      for (size_t k = 0; k < spec.num_values.size(); ++k) {
        leaf.select(-1, static_cast<int64_t>(k)).random_(0, spec.num_values[k]);
      }
    } else if (spec.dtype == v1::UINT8) {
      leaf.random_(0, 256);
    } else {
      leaf.normal_();
    }
  }
  if (spaces.max_stack() > 1)
    r.observation.age().random_(0, spaces.max_stack());
  int64_t first = 0;
  for (int64_t i = 0; i < spaces.action.choices(); ++i) {
    const torch::Tensor action = r.action.discrete.select(2, i);
    action.random_(0, spaces.action.num_values[i]);
    if (spaces.mask >= 0) {
      const torch::Tensor mask = r.observation.leaf(spaces.mask);
      mask.narrow(0, 0, T).scatter_(2, (action + first).unsqueeze(2), 1);
      mask[T].fill_(1);
    }
    first += spaces.action.num_values[i];
  }
  if (spaces.action.continuous > 0) r.action.continuous.normal_();
  r.log_prob.normal_(-1.0, 0.3);
  r.value.normal_();
  r.reward.normal_();
  r.terminated.copy_(torch::rand({T, B}) < 0.1);
  r.truncated.copy_(torch::rand({T, B}) < 0.1);
  r.bootstrap_value.normal_();
  r.valid.fill_(1);
  r.valid_steps = T * B;
  return r;
}

// Replaces what was done, its log-probabilities and values by what `policy`
// decides, one step at a time and from `initial_state` on.
inline void Decide(Policy* policy, Draws* draws, Rollout* r) {
  const int64_t T = r->length, B = r->rows, S = policy->state_size();
  const torch::Tensor keep = 1 - Starts(*r).to(torch::kFloat32);  // [T + 1, B]
  torch::Tensor state;
  if (S > 0) state = r->initial_state.clone();
  ObservationStore::Scratch scratch;
  for (int64_t t = 0; t <= T; ++t) {
    if (S > 0) state.mul_(keep[t].unsqueeze(1));
    Observations seen;
    r->observation.View(t, 0, B, &scratch, &seen);
    seen.state = S > 0 ? state.data_ptr<float>() : nullptr;
    const torch::Tensor value = r->value[t];
    if (t == T) {
      policy->Value(seen, value.data_ptr<float>());
      break;
    }
    const Actions action =
        r->action.Map([t](const torch::Tensor& all) { return all[t]; });
    const torch::Tensor log_prob = r->log_prob[t];
    DecisionOutput out;
    if (action.discrete.defined()) {
      out.discrete = action.discrete.data_ptr<int64_t>();
    }
    if (action.continuous.defined()) {
      out.continuous = action.continuous.data_ptr<float>();
    }
    out.log_prob = log_prob.data_ptr<float>();
    out.value = value.data_ptr<float>();
    if (S > 0) out.state = state.data_ptr<float>();
    policy->Decide(seen, /*greedy=*/false, draws, out);
  }
}

// Columns [first, first + rows) of `all`: what one of several ranks would have.
inline Rollout Columns(const Rollout& all, const Spaces& spaces, int64_t first,
                       int64_t rows) {
  Rollout r = MakeRollout(spaces, all.length, rows, /*pinned=*/false);
  const auto cut = [&](const torch::Tensor& t) {
    return t.narrow(1, first, rows).contiguous();
  };
  for (int i = 0; i < r.observation.num_leaves(); ++i) {
    r.observation.leaf(i).copy_(cut(all.observation.leaf(i)));
  }
  r.observation.age().copy_(cut(all.observation.age()));
  r.action = all.action.Map(cut);
  r.log_prob = cut(all.log_prob);
  r.value = cut(all.value);
  r.reward = cut(all.reward);
  r.terminated = cut(all.terminated);
  r.truncated = cut(all.truncated);
  r.bootstrap_value = cut(all.bootstrap_value);
  r.valid = cut(all.valid);
  if (all.initial_state.defined()) {
    r.initial_state = all.initial_state.narrow(0, first, rows).contiguous();
  }
  r.policy_version = all.policy_version;
  r.valid_steps = r.valid.sum().item<int64_t>();
  return r;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_ALGO_RANDOM_ROLLOUT_H_
