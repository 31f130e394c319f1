#include "learner/actor/resident_actor.h"

#include <algorithm>
#include <cstring>

#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

ResidentActor::ResidentActor(const Spaces& spaces, int64_t rows,
                             torch::Device device)
    : device_(device),
      rows_(rows),
      action_(spaces.action),
      carried_(ObservationStore::OnDevice(spaces, /*steps=*/1, rows, device)),
      keep_(rows, 1) {}

void ResidentActor::Begin(const ResidentPolicy* policy, int64_t state_size,
                          bool forget, Rollout* rollout) {
  policy_ = policy;
  rollout_ = rollout;
  if (state_size_ != state_size) {
    state_size_ = state_size;
    state_ = torch::zeros({rows_, state_size}, device_);
  }
  if (forget) std::fill(keep_.begin(), keep_.end(), 0);
  final_step_.clear();
  final_rows_.clear();
  final_state_.clear();
  rollout->there->observation.CopyStep(0, carried_, 0);
  // Of steps that are not taken nothing is left from before.
  rollout->there->value.zero_();
}

void ResidentActor::Forget(int64_t row) { keep_[row] = 0; }

ResidentPolicy::Decision ResidentActor::Ask(int64_t t, int64_t first,
                                            int64_t rows, bool fresh,
                                            Random* rng) {
  torch::NoGradGuard no_grad;
  Rollout& there = *rollout_->there;
  const ObservationStore& seen = rollout_->observation;
  const int64_t step = fresh ? seen.StepBytes(rows) : 0;
  const int64_t kept = state_size_ > 0 ? Aligned(rows) : 0;
  const int64_t N = rng == nullptr ? 0 : policy_->noise_size();
  const torch::Tensor message =
      Staging({step + kept + rows * N * int64_t{sizeof(double)}}, torch::kUInt8,
              device_);
  uint8_t* to = HostBytes(message);
  if (fresh) seen.PackStep(t, first, rows, to);
  if (kept > 0) std::memcpy(to + step, keep_.data() + first, rows);
  if (N > 0) {
    policy_->DrawNoise(rows, rng, reinterpret_cast<double*>(to + step + kept));
  }
  std::fill_n(keep_.begin() + first, rows, 1);
  const torch::Tensor got = ToDevice(message, device_);

  if (fresh) {
    there.observation.UnpackStep(t, first, rows, got.narrow(0, 0, step));
  }
  torch::Tensor state, noise;
  if (kept > 0) {
    state = state_.narrow(0, first, rows);
    state.mul_(got.narrow(0, step, rows).unsqueeze(1));
    if (t == 0) there.initial_state.narrow(0, first, rows).copy_(state);
  }
  if (N > 0) {
    noise = got.narrow(0, step + kept, rows * N * int64_t{sizeof(double)})
                .view(torch::kFloat64)
                .view({rows, N});
  }
  const ResidentPolicy::Decision decision =
      policy_->Decide(there.observation.Show(t, first, rows), state, noise);
  there.value[t].narrow(0, first, rows).copy_(decision.value);
  return decision;
}

void ResidentActor::Decide(int64_t t, int64_t first, int64_t rows, bool fresh,
                           Random* rng) {
  torch::NoGradGuard no_grad;
  const ResidentPolicy::Decision decision = Ask(t, first, rows, fresh, rng);
  Rollout& there = *rollout_->there;
  const auto keep = [&](const torch::Tensor& rows_now,
                        const torch::Tensor& all) {
    all[t].narrow(0, first, rows).copy_(rows_now);
  };
  keep(decision.log_prob, there.log_prob);
  if (state_size_ > 0) {
    state_.narrow(0, first, rows).copy_(decision.state);
  }
  const auto& [discrete, continuous] = decision.action;
  const int64_t K = action_.choices(), A = action_.continuous;
  if (K > 0) keep(discrete, there.action.discrete);
  if (A > 0) keep(continuous, there.action.continuous);
  if (K == 0 || A == 0) {
    const torch::Tensor made = ToHost(K > 0 ? discrete : continuous);
    keep(made, K > 0 ? rollout_->action.discrete : rollout_->action.continuous);
    return;
  }
  // Both in one copy, in a type that holds either.
  const torch::Tensor both = ToHost(torch::cat(
      {discrete.to(torch::kFloat64), continuous.to(torch::kFloat64)}, 1));
  keep(both.narrow(1, 0, K), rollout_->action.discrete);
  keep(both.narrow(1, K, A), rollout_->action.continuous);
}

void ResidentActor::Value(int64_t t, int64_t first, int64_t rows, bool fresh) {
  Ask(t, first, rows, fresh, /*rng=*/nullptr);
}

void ResidentActor::Skip(int64_t t, int64_t first, int64_t rows) {
  rollout_->there->value[t].narrow(0, first, rows).zero_();
}

void ResidentActor::AddFinal(int64_t at,
                             const std::vector<uint8_t>& final_row) {
  final_step_.push_back(static_cast<int32_t>(at));
  final_rows_.insert(final_rows_.end(), final_row.begin(), final_row.end());
  if (state_size_ > 0) {
    final_state_.push_back(state_.narrow(0, at % rows_, 1).clone());
  }
}

// All of a rollout's at once: its weights do not change.
void ResidentActor::ValueFinals() {
  torch::NoGradGuard no_grad;
  const auto F = static_cast<int64_t>(final_step_.size());
  if (F == 0) return;
  Rollout& there = *rollout_->there;
  const int64_t indices = Aligned(F * int64_t{sizeof(int32_t)});
  const auto bytes = static_cast<int64_t>(final_rows_.size());
  const torch::Tensor message =
      Staging({indices + bytes}, torch::kUInt8, device_);
  std::memcpy(HostBytes(message), final_step_.data(), F * sizeof(int32_t));
  std::memcpy(HostBytes(message) + indices, final_rows_.data(), bytes);
  const torch::Tensor got = ToDevice(message, device_);
  const torch::Tensor index =
      got.narrow(0, 0, F * int64_t{sizeof(int32_t)}).view(torch::kInt32);
  const Batch seen = there.observation.ShowFinal(
      index, got.narrow(0, indices, bytes).view({F, bytes / F}));
  const torch::Tensor state =
      state_size_ > 0 ? torch::cat(final_state_) : torch::Tensor();
  there.bootstrap_value.view({-1}).index_copy_(
      0, index.to(torch::kInt64),
      policy_->Decide(seen, state, /*noise=*/{}).value);
}

void ResidentActor::End(int64_t end) {
  ValueFinals();
  carried_.CopyStep(0, rollout_->there->observation, end);
  rollout_->there->observation.Settle();
}

}  // namespace flotilla
