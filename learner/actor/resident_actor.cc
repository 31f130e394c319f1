#include "learner/actor/resident_actor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + 7) / 8 * 8; }

constexpr int64_t kRollouts = 4;  // in flight, more than there are

}  // namespace

ResidentActor::ResidentActor(const Spaces& spaces, int64_t rows,
                             torch::Device device)
    : device_(device),
      rows_(rows),
      action_(spaces.action),
      graphs_(GraphCache<Recorded>::On(device, "decisions",
                                       kRollouts * rows)),  // one each at least
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

ResidentActor::Parts ResidentActor::PartsOf(const Asked& asked) const {
  return {.step = asked.fresh ? rollout_->observation.StepBytes(asked.rows) : 0,
          .keep = state_size_ > 0 ? Aligned(asked.rows) : 0};
}

torch::Tensor ResidentActor::Pack(int64_t t, const Asked& asked, Draws* draws) {
  const Parts parts = PartsOf(asked);
  const torch::Tensor message = Staging({parts.all()}, torch::kUInt8, device_);
  uint8_t* to = HostBytes(message);
  Header header = {};
  header.begin = t * rows_ + asked.first;
  if (asked.act) {
    header.stream = draws->Take(asked.rows * policy_->noise_size());
    header.exploration = policy_->exploration();
  }
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  if (asked.fresh) {
    rollout_->observation.PackStep(t, asked.first, asked.rows, to);
  }
  to += parts.step;
  if (parts.keep > 0) {
    std::memcpy(to, keep_.data() + asked.first, asked.rows);
  }
  std::fill_n(keep_.begin() + asked.first, asked.rows, 1);
  return message;
}

ResidentPolicy::Decision ResidentActor::Ask(const Asked& asked,
                                            const torch::Tensor& message,
                                            torch::Tensor* index) {
  Rollout& there = *rollout_->there;
  const Parts parts = PartsOf(asked);
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    at += bytes;
    return message.narrow(0, at - bytes, bytes);
  };
  const torch::Tensor begin = take(sizeof(Header::begin)).view(torch::kInt64);
  *index = torch::arange(asked.rows, begin.options()).add_(begin);
  const torch::Tensor stream = take(sizeof(Header::stream)).view(torch::kInt64);
  const torch::Tensor exploration =
      take(sizeof(Header::exploration)).view(torch::kFloat64);
  const torch::Tensor step = take(parts.step);
  if (asked.fresh) there.observation.UnpackStep(*index, step);
  torch::Tensor state;
  if (parts.keep > 0) {
    state = state_.narrow(0, asked.first, asked.rows);
    state.mul_(take(parts.keep).narrow(0, 0, asked.rows).unsqueeze(1));
    if (asked.begins) {
      there.initial_state.narrow(0, asked.first, asked.rows).copy_(state);
    }
  }
  ResidentPolicy::Chance chance;
  if (asked.act) chance = {stream, exploration};
  const ResidentPolicy::Decision decision =
      policy_->Decide(there.observation.Show(*index), state, chance);
  there.value.view({-1}).index_copy_(0, *index, decision.value);
  return decision;
}

torch::Tensor ResidentActor::Act(const Asked& asked,
                                 const torch::Tensor& message) {
  torch::Tensor index;
  const ResidentPolicy::Decision decision = Ask(asked, message, &index);
  const Rollout& there = *rollout_->there;
  const auto keep = [&](const torch::Tensor& all, const torch::Tensor& now) {
    all.flatten(0, 1).index_copy_(0, index, now);
  };
  keep(there.log_prob, decision.log_prob);
  if (state_size_ > 0) {
    state_.narrow(0, asked.first, asked.rows).copy_(decision.state);
  }
  const auto& [discrete, continuous] = decision.action;
  const int64_t K = action_.choices(), A = action_.continuous;
  if (K > 0) keep(there.action.discrete, discrete);
  if (A > 0) keep(there.action.continuous, continuous);
  if (K == 0 || A == 0) return K > 0 ? discrete : continuous;
  // Both in one copy, in a type that holds either.
  return torch::cat(
      {discrete.to(torch::kFloat64), continuous.to(torch::kFloat64)}, 1);
}

// Undefined where there is no graph for it.
torch::Tensor ResidentActor::ActByGraph(const Asked& asked,
                                        const torch::Tensor& message) {
  if (graphs_ == nullptr || asked.begins || !asked.fresh) return {};
  const std::vector<torch::Tensor> memory = policy_->memory();
  if (memory.empty()) return {};
  const Rollout& there = *rollout_->there;
  GraphKey key;
  for (const torch::Tensor& t : memory) key.Add(t);
  for (const torch::Tensor& t : there.observation.gathered()) key.Add(t);
  for (const torch::Tensor& t :
       {there.value, there.log_prob, state_, there.action.discrete,
        there.action.continuous}) {
    key.Add(t);
  }
  for (const int64_t number : {asked.first, asked.rows}) {
    key.number.push_back(static_cast<double>(number));
  }
  const Recorded* const done = graphs_->Run(
      std::move(key),
      [&](Recorded* recorded) {
        recorded->there = rollout_->there;
        recorded->memory = memory;
        recorded->memory.push_back(state_);
        recorded->message = ToDevice(message, device_);
      },
      [&](Recorded* recorded) { CopyToDevice(message, recorded->message); },
      [&](Recorded* recorded) {
        recorded->actions = Act(asked, recorded->message);
      });
  return done == nullptr ? torch::Tensor() : done->actions;
}

void ResidentActor::Decide(int64_t t, int64_t first, int64_t rows, bool fresh,
                           Draws* draws) {
  torch::NoGradGuard no_grad;
  const Asked asked = {first, rows, /*begins=*/t == 0, fresh, /*act=*/true};
  const torch::Tensor message = Pack(t, asked, draws);
  torch::Tensor actions = ActByGraph(asked, message);
  if (!actions.defined()) actions = Act(asked, ToDevice(message, device_));
  actions = ToHost(actions);
  const auto keep = [&](const torch::Tensor& now, const torch::Tensor& all) {
    all[t].narrow(0, first, rows).copy_(now);
  };
  const int64_t K = action_.choices(), A = action_.continuous;
  if (K > 0) keep(actions.narrow(1, 0, K), rollout_->action.discrete);
  if (A > 0) keep(actions.narrow(1, K, A), rollout_->action.continuous);
}

void ResidentActor::Value(int64_t t, int64_t first, int64_t rows, bool fresh) {
  torch::NoGradGuard no_grad;
  const Asked asked = {first, rows, /*begins=*/t == 0, fresh, /*act=*/false};
  torch::Tensor index;
  Ask(asked, ToDevice(Pack(t, asked, /*draws=*/nullptr), device_), &index);
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
      policy_->Decide(seen, state, /*chance=*/{}).value);
}

void ResidentActor::End(int64_t end) {
  ValueFinals();
  carried_.CopyStep(0, rollout_->there->observation, end);
  rollout_->there->observation.Settle();
}

}  // namespace flotilla
