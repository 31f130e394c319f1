#include "learner/algo/partwise_ppo_backend.h"

#include <algorithm>

#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/nn/fresh_gradients.h"

namespace flotilla {

PpoSums PartwisePpoBackend::Compute(const PpoBatch& batch) {
  // One transfer for all statistics.
  const torch::Tensor sums = ToHost(ComputeLater(batch));
  const double* s = Host<double>(sums);
  return {batch.index.numel(), s[0], s[1], s[2], s[3], s[4], s[5]};
}

torch::Tensor PartwisePpoBackend::ComputeLater(const PpoBatch& batch) {
  const FreshGradients fresh(net_->Flat());
  if (batch.index.numel() == 0) {
    return torch::zeros({kSums},
                        net_->gradients().options().dtype(torch::kFloat64));
  }
  const torch::Tensor advantages = Advantages(batch);
  torch::Tensor sums;
  const std::vector<Part> parts = Cut(batch);
  for (const Part& part : parts) {
    if (&part != &parts.front()) fresh.Settle();
    if (&part == &parts.back() && batch.before_last_backward) {
      batch.before_last_backward();
    }
    const torch::Tensor one = Add(part, advantages);
    sums = sums.defined() ? sums + one : one;
  }
  return sums;
}

std::vector<PartwisePpoBackend::Part> PartwisePpoBackend::Cut(
    const PpoBatch& batch) const {
  const int64_t most = loss_.max_minibatch;
  if (most == 0 || batch.index.numel() <= most) return {{batch, {}}};
  std::vector<Part> parts;
  const auto add = [&](const torch::Tensor& index, const torch::Tensor& columns,
                       const torch::Tensor& place) {
    Part& part = parts.emplace_back(batch, place);
    part.batch.index = index;
    part.batch.columns = columns;
  };
  if (!net_->recurrent()) {
    const torch::Tensor all = torch::arange(
        batch.index.numel(), batch.index.options().dtype(torch::kInt64));
    for (const torch::Tensor& place : all.split(most)) {
      add(batch.index.index_select(0, place), {}, place);
    }
    return parts;
  }
  const Rollout& r = *batch.rollout;
  // How long a part is, the host has to know.
  const torch::Device device = batch.index.device();
  const torch::Tensor index = device.is_cpu() ? batch.index : batch.host_index;
  const torch::Tensor row = index.remainder(r.rows);
  for (const torch::Tensor& columns :
       (device.is_cpu() ? batch.columns : batch.host_columns)
           .split(std::max<int64_t>(1, most / r.length))) {
    const torch::Tensor place = torch::isin(row, columns).nonzero().squeeze(1);
    if (place.numel() == 0) continue;
    add(ToDevice(index.index_select(0, place), device),
        ToDevice(columns, device), ToDevice(place, device));
  }
  return parts;
}

}  // namespace flotilla
