#include "learner/algo/batch_parts.h"

#include <algorithm>

#include "learner/device/transfer.h"

namespace flotilla {
namespace {

BatchPart PartOf(const PpoBatch& batch, const torch::Tensor& index,
                 const torch::Tensor& columns, const torch::Tensor& place) {
  BatchPart part = {batch, place};
  part.batch.index = index;
  part.batch.columns = columns;
  return part;
}

}  // namespace

std::vector<BatchPart> CutBatch(const PpoBatch& batch, bool recurrent,
                                int64_t most) {
  if (most == 0 || batch.index.numel() <= most) return {{batch, {}}};
  std::vector<BatchPart> parts;
  if (!recurrent) {
    const torch::Tensor all = torch::arange(
        batch.index.numel(), batch.index.options().dtype(torch::kInt64));
    for (const torch::Tensor& place : all.split(most)) {
      parts.push_back(
          PartOf(batch, batch.index.index_select(0, place), {}, place));
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
    parts.push_back(PartOf(batch,
                           ToDevice(index.index_select(0, place), device),
                           ToDevice(columns, device), ToDevice(place, device)));
  }
  return parts;
}

}  // namespace flotilla
