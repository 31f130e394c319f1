#include "learner/algo/replay_graphs.h"

#include <vector>

namespace flotilla {
namespace {

// An algorithm draws as many each time, and asks for three things at most.
constexpr size_t kMostReplayGraphs = 4;

// All that a draw consists of on the device, by address.
std::vector<torch::Tensor*> TensorsOf(ReplayBatch* batch) {
  std::vector<torch::Tensor*> all;
  for (Batch* seen : {&batch->observation, &batch->next_observation}) {
    for (torch::Tensor& leaf : seen->leaf) all.push_back(&leaf);
  }
  for (torch::Tensor* one :
       {&batch->action.discrete, &batch->action.continuous,
        &batch->n_step_return, &batch->discount, &batch->weight}) {
    if (one->defined()) all.push_back(one);
  }
  return all;
}

}  // namespace

std::unique_ptr<ReplayGraphs> ReplayGraphs::On(torch::Device device) {
  auto graphs =
      GraphCache<Held>::On(device, "gradient steps", kMostReplayGraphs);
  if (graphs == nullptr) return nullptr;
  return std::unique_ptr<ReplayGraphs>(new ReplayGraphs(std::move(graphs)));
}

torch::Tensor ReplayGraphs::Run(const ReplayBatch& batch,
                                const torch::Tensor& noise, int asked,
                                const Step& step) {
  GraphKey key;
  key.number = {static_cast<double>(batch.n_step_return.numel()),
                static_cast<double>(asked)};
  const Held* const done = graphs_->Run(
      std::move(key),
      [&](Held* held) {
        held->batch = batch;
        held->batch.id = torch::Tensor();
        for (torch::Tensor* one : TensorsOf(&held->batch)) *one = one->clone();
        if (noise.defined()) held->noise = noise.clone();
      },
      [&](Held* held) {
        ReplayBatch drawn = batch;
        const std::vector<torch::Tensor*> from = TensorsOf(&drawn);
        const std::vector<torch::Tensor*> to = TensorsOf(&held->batch);
        for (size_t i = 0; i < to.size(); ++i) to[i]->copy_(*from[i]);
        if (noise.defined()) held->noise.copy_(noise);
      },
      [&](Held* held) { held->result = step(held->batch, held->noise); });
  return done == nullptr ? step(batch, noise) : done->result;
}

}  // namespace flotilla
