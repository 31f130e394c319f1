#include "learner/algo/minibatch_graphs.h"

#include <utility>

namespace flotilla {
namespace {

// Each has memory of its own. Rollouts in flight, a shorter last minibatch; an
// annealed clip is another number each update.
constexpr size_t kMostMinibatchGraphs = 8;

GraphKey KeyOf(const PpoBatch& batch, const std::vector<double>& numbers) {
  GraphKey key;
  const Rollout& r = *batch.rollout;
  for (const torch::Tensor& t : r.observation.gathered()) key.Add(t);
  for (const torch::Tensor& t :
       {r.action.discrete, r.action.continuous, r.log_prob, r.value,
        r.terminated, r.truncated, r.valid, r.initial_state, batch.advantage,
        batch.returns}) {
    key.Add(t);
  }
  key.number.insert(key.number.end(), numbers.begin(), numbers.end());
  const int64_t columns = batch.columns.defined() ? batch.columns.numel() : 0;
  for (const double number :
       {static_cast<double>(batch.index.numel()), static_cast<double>(columns),
        batch.clip_ratio, batch.value_clip}) {
    key.number.push_back(number);
  }
  return key;
}

}  // namespace

std::unique_ptr<MinibatchGraphs> MinibatchGraphs::On(torch::Device device) {
  auto graphs =
      GraphCache<Held>::On(device, "gradient steps", kMostMinibatchGraphs);
  if (graphs == nullptr) return nullptr;
  return std::unique_ptr<MinibatchGraphs>(
      new MinibatchGraphs(std::move(graphs)));
}

torch::Tensor MinibatchGraphs::Run(const PpoBatch& batch,
                                   const std::vector<double>& numbers,
                                   const Step& step) {
  const Held* const done = graphs_->Run(
      KeyOf(batch, numbers),
      [&](Held* held) {
        held->rollout = *batch.rollout;
        held->batch = batch;
        held->batch.rollout = &held->rollout;
        held->batch.index = batch.index.clone();
        if (batch.columns.defined()) {
          held->batch.columns = batch.columns.clone();
        }
        held->batch.before_last_backward = nullptr;
      },
      [&](Held* held) {
        held->batch.index.copy_(batch.index);
        if (batch.columns.defined()) held->batch.columns.copy_(batch.columns);
      },
      [&](Held* held) { held->result = step(held->batch); });
  return done == nullptr ? step(batch) : done->result;
}

}  // namespace flotilla
