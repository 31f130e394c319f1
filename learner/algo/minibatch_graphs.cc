#include "learner/algo/minibatch_graphs.h"

#include <algorithm>
#include <utility>

namespace flotilla {

std::unique_ptr<MinibatchGraphs> MinibatchGraphs::On(torch::Device device) {
  if (MakeGraph(device) == nullptr) return nullptr;
  return std::unique_ptr<MinibatchGraphs>(new MinibatchGraphs(device));
}

MinibatchGraphs::Key MinibatchGraphs::KeyOf(
    const PpoBatch& batch, const std::vector<double>& numbers) {
  Key key;
  const auto add = [&](const torch::Tensor& t) {
    key.address.push_back(t.defined() ? t.storage().data() : nullptr);
    key.number.push_back(t.defined() ? static_cast<double>(t.storage_offset())
                                     : 0);
  };
  const Rollout& r = *batch.rollout;
  for (const torch::Tensor& t : r.observation.gathered()) add(t);
  for (const torch::Tensor& t :
       {r.action.discrete, r.action.continuous, r.log_prob, r.value,
        r.terminated, r.truncated, r.valid, r.initial_state, batch.advantage,
        batch.returns}) {
    add(t);
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

torch::Tensor MinibatchGraphs::Run(const PpoBatch& batch,
                                   const std::vector<double>& numbers,
                                   const Step& step) {
  if (refused_) return step(batch);
  Key key = KeyOf(batch, numbers);
  const auto found =
      std::find_if(recorded_.begin(), recorded_.end(),
                   [&](const Recorded& one) { return one.key == key; });
  if (found != recorded_.end()) {
    recorded_.splice(recorded_.begin(), recorded_, found);
    found->batch.index.copy_(batch.index);
    if (batch.columns.defined()) found->batch.columns.copy_(batch.columns);
    found->graph->Replay();
    return found->result;
  }
  // Numbers that never come again would fill it.
  if (seen_.size() >= kMost) seen_.clear();
  if (seen_.insert(key).second) return step(batch);
  seen_.erase(key);
  if (recorded_.size() == kMost) recorded_.pop_back();
  Recorded& one = recorded_.emplace_front();
  one.key = std::move(key);
  one.rollout = *batch.rollout;
  one.batch = batch;
  one.batch.rollout = &one.rollout;
  one.batch.index = batch.index.clone();
  if (batch.columns.defined()) one.batch.columns = batch.columns.clone();
  one.batch.before_last_backward = nullptr;
  one.graph = MakeGraph(device_);
  try {
    one.graph->Capture([&] { one.result = step(one.batch); });
  } catch (const c10::Error& error) {
    LOG(WARNING) << "gradient steps are not recorded as graphs: "
                 << error.what_without_backtrace();
    refused_ = true;
    Clear();
    return step(batch);
  }
  return one.result;
}

void MinibatchGraphs::Clear() {
  recorded_.clear();
  seen_.clear();
}

}  // namespace flotilla
