// ObservationStore in memory of a device.

#include <algorithm>
#include <cstring>

#include "learner/cuda/operators.h"
#include "learner/device/host.h"
#include "learner/device/transfer.h"
#include "learner/rollout/observation_store.h"

namespace flotilla {
namespace {

// Writes `arrays` [steps, B, ...], of steps from t on, over those of `ring` [N, B, ...].
void Append(int64_t t, const torch::Tensor& arrays, const torch::Tensor& ring) {
  const int64_t steps = arrays.size(0), N = ring.size(0);
  for (int64_t done = 0; done < steps;) {
    const int64_t at = (t + done) % N;
    const int64_t some = std::min(steps - done, N - at);
    ring.narrow(0, at, some).copy_(arrays.narrow(0, done, some));
    done += some;
  }
}

}  // namespace

ObservationStore ObservationStore::OnDevice(const Spaces& spaces, int64_t steps,
                                            int64_t rows, torch::Device device,
                                            Form form) {
  ObservationStore store;
  store.Allocate(spaces, steps, rows, form, [&](const auto& shape, auto dtype) {
    return torch::zeros(shape, torch::dtype(dtype).device(device));
  });
  if (form == Form::kRing) {
    store.newest_.resize(store.leaf_.size());
    store.age_ = torch::zeros({steps, rows}, torch::kUInt8);
    store.ages_ = Host<uint8_t>(store.age_);
    store.age_there_ =
        torch::zeros({steps, rows}, torch::dtype(torch::kUInt8).device(device));
  } else {
    store.arrays_.resize(store.leaf_.size());
    store.age_ =
        torch::zeros({steps, rows}, torch::dtype(torch::kInt32).device(device));
  }
  return store;
}

// In as few copies as the ring's end allows.
void ObservationStore::CopyArrays(int64_t t, const ObservationStore& other,
                                  int64_t from, int64_t steps) {
  for (int i = 0; i < num_leaves(); ++i) {
    torch::Tensor arrays =
        other.leaf_[i].narrow(0, other.ArrayOf(i, from), steps);
    if (arrays.is_cpu()) {
      // The rollout may be filled again before this is there.
      const torch::Tensor staged = Staging(
          arrays.sizes().vec(), arrays.scalar_type(), leaf_[i].device());
      staged.copy_(arrays);
      arrays = ToDevice(staged, leaf_[i].device());
    }
    Append(t, arrays, leaf_[i]);
  }
}

// Of what the host's ring has still.
void ObservationStore::CopyAges(int64_t t, int64_t steps) {
  const int64_t some = std::min(steps, steps_);
  t += steps - some;
  const torch::Tensor staged =
      Staging({some, rows_}, torch::kUInt8, age_there_.device());
  for (int64_t s = 0; s < some; ++s) {
    std::memcpy(HostBytes(staged) + s * rows_, ages_ + AgeIndex(t + s, 0),
                rows_);
  }
  Append(t, ToDevice(staged, age_there_.device()), age_there_);
}

Batch ObservationStore::GatherThere(const torch::Tensor& place,
                                    const torch::Tensor& slot,
                                    const torch::Tensor& finals) const {
  Batch batch;
  for (int i = 0; i < num_leaves(); ++i) {
    const LeafSpec& spec = layout_[i].spec;
    const torch::Tensor shown =
        GatherRing({leaf_[i], age_there_, place, slot, finals}, spec.stack,
                   layout_[i].offset);
    batch.leaf.push_back(shown.view(BatchShape(spec, place.numel())));
  }
  return batch;
}

void ObservationStore::CopyAll(const ObservationStore& host) {
  CHECK_EQ(host.steps_, steps_);
  CHECK_EQ(host.rows_, rows_);
  for (int i = 0; i < num_leaves(); ++i) {
    CopyToDevice(host.leaf_[i], leaf_[i]);
  }
  CopyToDevice(host.age_, age_);
  Settle();
}

std::vector<torch::Tensor> ObservationStore::gathered() const {
  std::vector<torch::Tensor> all = leaf_;
  all.insert(all.end(), arrays_.begin(), arrays_.end());
  return all;
}

void ObservationStore::Settle() {
  if (form_ == Form::kRing) return CopyToDevice(age_, age_there_);
  const torch::Tensor all = torch::arange(steps_ * rows_, age_.options());
  for (int i = 0; i < num_leaves(); ++i) {
    if (layout_[i].spec.stack == 1) continue;
    const torch::Tensor arrays = ArraysOf(i, all);
    // Where it is it stays: graphs gather by its address.
    if (arrays_[i].defined()) {
      arrays_[i].copy_(arrays);
    } else {
      arrays_[i] = arrays;
    }
  }
}

// Step t shows arrays t .. t + k - 1, of which those before its episode began are
// the reset's: array t + k - 1 - age.
torch::Tensor ObservationStore::ArraysOf(int i,
                                         const torch::Tensor& index) const {
  const int64_t k = layout_[i].spec.stack;
  const torch::Tensor reset =
      (k - 1) - age_.flatten().index_select(0, index).unsqueeze(1);  // [M, 1]
  const torch::Tensor shown =
      torch::max(torch::arange(k, age_.options()), reset);  // [M, k]
  return shown.mul_(rows_).add_(index.unsqueeze(1));
}

Batch ObservationStore::GatherOnDevice(const torch::Tensor& index) const {
  Batch batch;
  for (int i = 0; i < num_leaves(); ++i) {
    const LeafSpec& spec = layout_[i].spec;
    const torch::Tensor arrays = leaf_[i].flatten(0, 1);
    const torch::Tensor shown = spec.stack == 1
                                    ? arrays.index_select(0, index)
                                    : GatherStacks(arrays, arrays_[i], index);
    batch.leaf.push_back(shown.view(BatchShape(spec, index.numel())));
  }
  return batch;
}

// Leaf by leaf, and then the ages.
int64_t ObservationStore::StepBytes(int64_t rows) const {
  int64_t bytes = Aligned(rows);
  for (const Layout& l : layout_) bytes += Aligned(rows * l.bytes);
  return bytes;
}

void ObservationStore::PackStep(int64_t t, int64_t first, int64_t rows,
                                uint8_t* message) const {
  for (int i = 0; i < num_leaves(); ++i) {
    std::memcpy(message, RowAt(i, t, first), rows * layout_[i].bytes);
    message += Aligned(rows * layout_[i].bytes);
  }
  std::memcpy(message, ages_ + AgeIndex(t, first), rows);
}

void ObservationStore::UnpackStep(const torch::Tensor& index,
                                  const torch::Tensor& message) {
  const int64_t rows = index.numel();
  int64_t at = 0;
  for (int i = 0; i < num_leaves(); ++i) {
    torch::Tensor arrays = leaf_[i].flatten(0, 1);
    const int64_t bytes = rows * layout_[i].bytes;
    std::vector<int64_t> shape = arrays.sizes().vec();
    shape[0] = rows;
    const int64_t before = ArrayOf(i, 0) * rows_;
    arrays.index_copy_(
        0, before > 0 ? index + before : index,
        message.narrow(0, at, bytes).view(arrays.scalar_type()).view(shape));
    at += Aligned(bytes);
  }
  age_.view({-1}).index_copy_(
      0, index, message.narrow(0, at, rows).to(age_.scalar_type()));
}

Batch ObservationStore::Show(const torch::Tensor& index) const {
  Batch batch;
  for (int i = 0; i < num_leaves(); ++i) {
    const LeafSpec& spec = layout_[i].spec;
    const torch::Tensor shown =
        spec.stack == 1 ? index : ArraysOf(i, index).flatten();
    batch.leaf.push_back(leaf_[i].flatten(0, 1).index_select(0, shown).view(
        BatchShape(spec, index.numel())));
  }
  return batch;
}

Batch ObservationStore::ShowFinal(const torch::Tensor& index,
                                  const torch::Tensor& rows) const {
  const int64_t count = index.numel();
  Batch batch;
  for (int i = 0; i < num_leaves(); ++i) {
    const LeafSpec& spec = layout_[i].spec;
    torch::Tensor shown = rows.narrow(1, layout_[i].offset, layout_[i].bytes)
                              .contiguous()
                              .view(leaf_[i].scalar_type());  // [F, elements]
    if (spec.stack > 1) {
      // The oldest array of the step before is gone.
      const torch::Tensor before =
          ArraysOf(i, index).narrow(1, 1, spec.stack - 1).flatten();
      shown = torch::cat(
          {leaf_[i].flatten(0, 1).index_select(0, before).view({count, -1}),
           shown},
          1);
    }
    batch.leaf.push_back(shown.view(BatchShape(spec, count)));
  }
  return batch;
}

}  // namespace flotilla
