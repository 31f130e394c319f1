#include "learner/rollout/observation_store.h"

#include <algorithm>
#include <cstring>

#include "learner/device/host.h"
#include "learner/device/transfer.h"

namespace flotilla {
namespace {

int64_t ItemBytes(v1::DType dtype) {
  return dtype == v1::UINT8 ? 1 : dtype == v1::INT64 ? 8 : 4;
}

// Calls `use` with the numbers at `from` as a pointer to their type. Slots and
// messages begin aligned, and so do whole rows in them.
template <typename Function>
void WithType(v1::DType dtype, const char* from, Function use) {
  switch (dtype) {
    case v1::UINT8:
      return use(reinterpret_cast<const uint8_t*>(from));
    case v1::INT64:
      return use(reinterpret_cast<const int64_t*>(from));
    default:
      return use(reinterpret_cast<const float*>(from));
  }
}

// Rows of `n` numbers as another type, to rows `stride` apart.
template <typename To>
void Widen(const LeafSpec::Part& part, const char* from, int64_t rows, To* to,
           int64_t stride) {
  WithType(part.dtype, from, [&](const auto* values) {
    for (int64_t r = 0; r < rows; ++r, to += stride) {
      for (int64_t i = 0; i < part.elements; ++i) {
        to[i] = static_cast<To>(*values++);
      }
    }
  });
}

void OneHot(const LeafSpec::Part& part, const char* from, int64_t rows,
            float* to, int64_t stride) {
  WithType(part.dtype, from, [&](const auto* values) {
    for (int64_t r = 0; r < rows; ++r, to += stride) {
      std::fill_n(to, part.columns, 0.0f);
      float* first = to;
      for (const int64_t n : part.one_hot) {
        // It was checked when it came, but a server may write what it has handed
        // over.
        const auto value = static_cast<int64_t>(*values++);
        first[std::clamp<int64_t>(value, 0, n - 1)] = 1;
        first += n;
      }
    }
  });
}

}  // namespace

ObservationStore::ObservationStore(const Spaces& spaces, int64_t steps,
                                   int64_t rows, bool pinned, Form form) {
  Allocate(spaces, steps, rows, form, [&](const auto& shape, auto dtype) {
    const auto options =
        torch::TensorOptions().dtype(dtype).pinned_memory(pinned);
    return form == Form::kSpan ? torch::zeros(shape, options)
                               : torch::empty(shape, options);
  });
  for (const torch::Tensor& leaf : leaf_) bytes_.push_back(HostBytes(leaf));
  age_ = torch::zeros({steps, rows},
                      torch::dtype(torch::kUInt8).pinned_memory(pinned));
  ages_ = Host<uint8_t>(age_);
}

void ObservationStore::Allocate(const Spaces& spaces, int64_t steps,
                                int64_t rows, Form form, MakeLeaf make) {
  form_ = form;
  steps_ = steps;
  rows_ = rows;
  max_stack_ = spaces.max_stack();
  cut_.assign(rows, 0);
  int64_t offset = 0;
  for (const LeafSpec& spec : spaces.observation) {
    const int64_t ahead = form == Form::kSpan ? spec.stack - 1 : 0;
    std::vector<int64_t> shape = {steps + ahead, rows};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    leaf_.push_back(make(shape, TorchType(spec.dtype)));
    layout_.push_back({spec, spec.bytes(), offset});
    offset = Aligned(offset + spec.bytes());
  }
}

int64_t ObservationStore::bytes() const {
  auto sum = static_cast<int64_t>(age_.nbytes());
  if (age_there_.defined()) sum += static_cast<int64_t>(age_there_.nbytes());
  for (const torch::Tensor& t : leaf_) sum += static_cast<int64_t>(t.nbytes());
  return sum;
}

void ObservationStore::Encode(int i, WireColumns columns, int64_t from,
                              int64_t rows, uint8_t* out) const {
  const LeafSpec& spec = layout_[i].spec;
  if (spec.kind == LeafKind::kMask) {
    std::memset(out, 1,
                rows * layout_[i].bytes);  // what has no mask is allowed
  }
  for (const LeafSpec::Part& part : spec.parts) {
    const int64_t row_bytes = part.elements * ItemBytes(part.dtype);
    const absl::string_view column = columns(part.leaf);
    CHECK_GE(static_cast<int64_t>(column.size()), (from + rows) * row_bytes)
        << "leaf " << part.leaf << " of an environment is not what it was";
    const char* source = column.data() + from * row_bytes;
    switch (spec.kind) {
      case LeafKind::kImage:
        std::memcpy(out, source, rows * row_bytes);
        break;
      case LeafKind::kMask:
        Widen(part, source, rows, out + part.column, spec.shape[0]);
        break;
      case LeafKind::kDiscrete:
        Widen(part, source, rows, reinterpret_cast<int64_t*>(out),
              part.elements);
        // Checked, but a server may write what it has handed over.
        for (int64_t k = 0; k < rows * part.elements; ++k) {
          int64_t* const value = reinterpret_cast<int64_t*>(out) + k;
          *value = std::clamp<int64_t>(*value, 0,
                                       spec.num_values[k % part.elements] - 1);
        }
        break;
      case LeafKind::kVector: {
        float* to = reinterpret_cast<float*>(out) + part.column;
        if (part.one_hot.empty()) {
          Widen(part, source, rows, to, spec.shape[0]);
        } else {
          OneHot(part, source, rows, to, spec.shape[0]);
        }
      }
    }
  }
}

void ObservationStore::Write(int64_t t, int64_t first, int64_t rows,
                             WireColumns columns) {
  for (int i = 0; i < num_leaves(); ++i) {
    Encode(i, columns, /*from=*/0, rows, RowAt(i, t, first));
  }
}

void ObservationStore::WriteRow(int64_t t, int64_t b, WireColumns columns,
                                int64_t row) {
  for (int i = 0; i < num_leaves(); ++i) {
    Encode(i, columns, row, 1, RowAt(i, t, b));
  }
}

void ObservationStore::Restart(int64_t t, int64_t first, int64_t rows) {
  std::memset(ages_ + AgeIndex(t, first), 0, rows);
}

void ObservationStore::Continue(int64_t t, int64_t first, int64_t rows,
                                const uint8_t* ended) {
  if (max_stack_ == 1) return;
  const uint8_t* before = ages_ + AgeIndex(t - 1, first);
  uint8_t* now = ages_ + AgeIndex(t, first);
  for (int64_t i = 0; i < rows; ++i) {
    now[i] = ended[i] ? 0 : std::min<int64_t>(before[i] + 1, max_stack_ - 1);
  }
}

float* ObservationStore::Numbers(int64_t t, int64_t first) {
  return reinterpret_cast<float*>(RowAt(0, t, first));
}

int64_t ObservationStore::stride() const { return layout_[0].spec.elements(); }

void ObservationStore::CopyStep(int64_t to, const ObservationStore& other,
                                int64_t from) {
  if (on_device()) {
    age_[to].copy_(other.age_[from]);
  } else {
    std::memcpy(ages_ + AgeIndex(to, 0), other.ages_ + other.AgeIndex(from, 0),
                rows_);
  }
  for (int i = 0; i < num_leaves(); ++i) {
    const int64_t k = layout_[i].spec.stack;
    leaf_[i].narrow(0, to, k).copy_(other.leaf_[i].narrow(0, from, k));
  }
}

void ObservationStore::CopyRowStep(int64_t to, const ObservationStore& other,
                                   int64_t from, int64_t b) {
  for (int i = 0; i < num_leaves(); ++i) {
    for (int64_t back = 0; back < layout_[i].spec.stack; ++back) {
      std::memcpy(RowAt(i, to - back, b), other.RowAt(i, from - back, b),
                  layout_[i].bytes);
    }
  }
  ages_[AgeIndex(to, b)] = other.ages_[other.AgeIndex(from, b)];
}

void ObservationStore::CopyNewest(int64_t t, const ObservationStore& other,
                                  int64_t from, int64_t steps,
                                  const ObservationStore* there) {
  for (int64_t s = 0; s < steps; ++s) {
    const uint8_t* age = other.ages_ + other.AgeIndex(from + s, 0);
    for (int64_t b = 0; b < rows_; ++b) {
      ages_[AgeIndex(t + s, b)] = AgeSinceCut(t + s, b, age[b]);
    }
  }
  if (on_device()) {
    for (int i = 0; i < num_leaves(); ++i) {
      const uint8_t* last = other.RowAt(i, from + steps - 1, 0);
      newest_[i].assign(last, last + rows_ * layout_[i].bytes);
    }
    CopyArrays(t, there != nullptr ? *there : other, from, steps);
    if (max_stack_ > 1) CopyAges(t, steps);
    return;
  }
  for (int i = 0; i < num_leaves(); ++i) {
    for (int64_t s = 0; s < steps; ++s) {
      std::memcpy(RowAt(i, t + s, 0), other.RowAt(i, from + s, 0),
                  rows_ * layout_[i].bytes);
    }
  }
}

bool ObservationStore::SameNewest(int64_t t, int64_t b,
                                  const ObservationStore& other,
                                  int64_t from) const {
  if (ages_[AgeIndex(t, b)] !=
      AgeSinceCut(t, b, other.ages_[other.AgeIndex(from, b)])) {
    return false;
  }
  for (int i = 0; i < num_leaves(); ++i) {
    const int64_t bytes = layout_[i].bytes;
    const uint8_t* mine =
        on_device() ? newest_[i].data() + b * bytes : RowAt(i, t, b);
    if (std::memcmp(mine, other.RowAt(i, from, b), bytes) != 0) return false;
  }
  return true;
}

void ObservationStore::CopyStack(int i, int64_t t, int64_t b,
                                 uint8_t* out) const {
  const int64_t bytes = layout_[i].bytes;
  const int64_t age = ages_[AgeIndex(t, b)];
  for (int64_t back = layout_[i].spec.stack - 1; back >= 0;
       --back, out += bytes) {
    std::memcpy(out, RowAt(i, t - std::min(back, age), b), bytes);
  }
}

void ObservationStore::CopyFinalStack(int i, int64_t t, int64_t b,
                                      const uint8_t* final_row,
                                      uint8_t* out) const {
  const int64_t bytes = layout_[i].bytes;
  const int64_t age = ages_[AgeIndex(t, b)];
  for (int64_t back = layout_[i].spec.stack - 2; back >= 0;
       --back, out += bytes) {
    std::memcpy(out, RowAt(i, t - std::min(back, age), b), bytes);
  }
  std::memcpy(out, final_row + layout_[i].offset, bytes);
}

Batch ObservationStore::EmptyBatch(int64_t m, torch::Device device) const {
  Batch batch;
  for (const Layout& l : layout_) {
    batch.leaf.push_back(
        Staging(BatchShape(l.spec, m), TorchType(l.spec.dtype), device));
  }
  return batch;
}

void ObservationStore::CopyRow(int64_t t, int64_t b, int64_t to,
                               Batch* out) const {
  for (int i = 0; i < num_leaves(); ++i) {
    CopyStack(i, t, b,
              HostBytes(out->leaf[i]) +
                  to * layout_[i].spec.stack * layout_[i].bytes);
  }
}

void ObservationStore::CopyFinal(int64_t t, int64_t b, const uint8_t* final_row,
                                 int64_t to, Batch* out) const {
  for (int i = 0; i < num_leaves(); ++i) {
    CopyFinalStack(i, t, b, final_row,
                   HostBytes(out->leaf[i]) +
                       to * layout_[i].spec.stack * layout_[i].bytes);
  }
}

Batch ObservationStore::Gather(const torch::Tensor& index,
                               torch::Device device) const {
  if (on_device()) return GatherOnDevice(index);
  const int32_t* at = Host<int32_t>(index);
  const int64_t m = index.numel();
  Batch batch;
  for (int i = 0; i < num_leaves(); ++i) {
    const LeafSpec& spec = layout_[i].spec;
    if (spec.stack == 1 && form_ == Form::kSpan &&
        spec.kind != LeafKind::kImage) {
      batch.leaf.push_back(RowsToDevice(leaf_[i].flatten(0, 1), index, device));
      continue;
    }
    const torch::Tensor rows =
        Staging(BatchShape(spec, m), TorchType(spec.dtype), device);
    uint8_t* out = HostBytes(rows);
    for (int64_t j = 0; j < m; ++j, out += spec.stack * layout_[i].bytes) {
      CopyStack(i, at[j] / rows_, at[j] % rows_, out);
    }
    batch.leaf.push_back(ToDevice(rows, device));
  }
  return batch;
}

void ObservationStore::Gather(std::span<const Place> places, Batch* out) const {
  CHECK_EQ(out->leaf.size(), layout_.size());
  for (int i = 0; i < num_leaves(); ++i) {
    uint8_t* to = HostBytes(out->leaf[i]);
    CHECK_EQ(out->leaf[i].nbytes(),
             places.size() * layout_[i].spec.stack * layout_[i].bytes);
    for (const Place& place : places) {
      if (place.final_row != nullptr) {
        CopyFinalStack(i, place.t, place.b, place.final_row, to);
      } else {
        CopyStack(i, place.t, place.b, to);
      }
      to += layout_[i].spec.stack * layout_[i].bytes;
    }
  }
}

void ObservationStore::View(int64_t t, int64_t first, int64_t rows,
                            Scratch* scratch, Observations* out) const {
  scratch->leaf.resize(num_leaves());
  scratch->pointer.resize(num_leaves());
  for (int i = 0; i < num_leaves(); ++i) {
    const int64_t k = layout_[i].spec.stack, bytes = layout_[i].bytes;
    if (k == 1) {
      scratch->pointer[i] = RowAt(i, t, first);
      continue;
    }
    scratch->leaf[i].resize(rows * k * bytes);
    uint8_t* to = scratch->leaf[i].data();
    for (int64_t r = 0; r < rows; ++r, to += k * bytes) {
      CopyStack(i, t, first + r, to);
    }
    scratch->pointer[i] = scratch->leaf[i].data();
  }
  out->leaf = scratch->pointer.data();
  out->rows = rows;
}

int64_t ObservationStore::row_bytes() const {
  return Aligned(layout_.back().offset + layout_.back().bytes);
}

void ObservationStore::EncodeRow(WireColumns columns, int64_t row,
                                 uint8_t* out) const {
  for (int i = 0; i < num_leaves(); ++i) {
    Encode(i, columns, row, 1, out + layout_[i].offset);
  }
}

float* ObservationStore::NumbersOf(uint8_t* final_row) {
  return reinterpret_cast<float*>(final_row);
}

void ObservationStore::ViewFinal(int64_t t, int64_t b, const uint8_t* final_row,
                                 Scratch* scratch, Observations* out) const {
  scratch->leaf.resize(num_leaves());
  scratch->pointer.resize(num_leaves());
  for (int i = 0; i < num_leaves(); ++i) {
    scratch->leaf[i].resize(layout_[i].spec.stack * layout_[i].bytes);
    CopyFinalStack(i, t, b, final_row, scratch->leaf[i].data());
    scratch->pointer[i] = scratch->leaf[i].data();
  }
  out->leaf = scratch->pointer.data();
  out->rows = 1;
}

}  // namespace flotilla
