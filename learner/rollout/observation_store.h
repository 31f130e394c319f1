#ifndef FLOTILLA_LEARNER_ROLLOUT_OBSERVATION_STORE_H_
#define FLOTILLA_LEARNER_ROLLOUT_OBSERVATION_STORE_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "learner/rollout/batch.h"
#include "learner/rollout/observations.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// What B rows saw over time, on the host: the only code that knows how frames
// are stacked. Two forms:
//
//   a span   steps 0 .. N - 1 of a rollout; the k - 1 steps before step 0 lie
//            ahead of it
//   a ring   the newest N steps of steps that count from 0 for ever
//
// Every leaf is stored once a step. Of a leaf with stack k, step t shows its own
// array and the k - 1 before it:
//
//   array    0 .. k-2 | k-1    k   ...   N+k-2
//   step     (older)  |  0     1   ...   N-1       of a span: t is array t + k - 1
//
// `age[t, b]` counts the steps since the episode's reset, up to the largest
// stack - 1; a stack reaching further back repeats the reset's array. For k = 4
// and one row, where an episode starts at step 3,
//
//   step    0   1   2   3   4   5
//   age     3   3   3   0   1   2
//
// step 1 shows arrays 1 2 3 4, step 3 shows 6 6 6 6 and step 5 6 6 7 8.
//
// Copies share memory, as tensors do. Not thread-safe.
class ObservationStore {
 public:
  enum class Form { kSpan, kRing };
  // The bytes of leaf `i` of the environment's observation, of all rows that are
  // written: [rows, ...].
  using WireColumns = absl::FunctionRef<absl::string_view(int i)>;

  ObservationStore() = default;
  // Allocates everything; a ring's pages are touched as they fill.
  ObservationStore(const Spaces& spaces, int64_t steps, int64_t rows,
                   bool pinned = false, Form form = Form::kSpan);
  // In memory of `device`, which is no CPU: what CopyAll, CopyNewest and Gather are
  // for. Nobody writes or looks at single rows of it. Of a ring the ages and the
  // newest step are the host's too, for what it compares and keeps.
  static ObservationStore OnDevice(const Spaces& spaces, int64_t steps,
                                   int64_t rows, torch::Device device,
                                   Form form = Form::kSpan);

  int64_t steps() const { return steps_; }  // N
  int64_t rows() const { return rows_; }    // B
  int num_leaves() const { return static_cast<int>(leaf_.size()); }
  // [N + k - 1, B, ...]; of a ring [N, B, ...].
  const torch::Tensor& leaf(int i) const { return leaf_[i]; }
  // [N, B] uint8; on the host but of a span on a device, whose are int32.
  const torch::Tensor& age() const { return age_; }
  int64_t bytes() const;  // of memory

  // Writes what rows [first, first + rows) saw at step t, numbers and one-hot
  // vectors as float32. Their age stays as it is.
  void Write(int64_t t, int64_t first, int64_t rows, WireColumns columns);

  // The same of row b alone: what is at `row` of the columns.
  void WriteRow(int64_t t, int64_t b, WireColumns columns, int64_t row);

  // Rows [first, first + rows) begin an episode at step t, or go on from t - 1
  // where `ended` [rows] is 0.
  void Restart(int64_t t, int64_t first, int64_t rows);
  void Continue(int64_t t, int64_t first, int64_t rows, const uint8_t* ended);

  // The columns of step t from row `first` on that Spaces::normalized counts:
  // rows `stride()` apart.
  float* Numbers(int64_t t, int64_t first);
  int64_t stride() const;

  // Makes step `to`, with the arrays before it, what step `from` of `other` is.
  // Between spans.
  void CopyStep(int64_t to, const ObservationStore& other, int64_t from);
  // The same of row b alone.
  void CopyRowStep(int64_t to, const ObservationStore& other, int64_t from,
                   int64_t b);
  // Appends to a ring: the newest arrays and ages of steps [t, t + steps) are those
  // of `other`'s from step `from` on, a span on the host. Ages reach back to the
  // row's last Cut at most, or to step 0. A ring on a device takes the arrays from
  // `there`, the same span on that device, if it is given; ages go there where there
  // are stacks. The host does not wait.
  void CopyNewest(int64_t t, const ObservationStore& other, int64_t from,
                  int64_t steps = 1, const ObservationStore* there = nullptr);
  // Of a ring: what row b saw before step t, which is to be appended yet, is not what
  // came before that. No step from t on shows it.
  void Cut(int64_t t, int64_t b) { cut_[b] = t; }
  // Whether row b looks the same at step t and at `other`'s step `from`, without
  // the arrays before. Of a ring on a device t is its newest step.
  bool SameNewest(int64_t t, int64_t b, const ObservationStore& other,
                  int64_t from) const;

  // On a device: becomes `host`, a span of the same sizes, whose memory must not
  // change until the host has waited for something computed from this.
  void CopyAll(const ObservationStore& host);

  // Step by step. What rows [first, first + rows) saw at step t, of a span on the
  // host, with their ages: StepBytes of a message, from an address that 8 divides.
  int64_t StepBytes(int64_t rows) const;
  void PackStep(int64_t t, int64_t first, int64_t rows, uint8_t* message) const;
  // On a device, where `message` [StepBytes] uint8 is by now and the numbers t * B +
  // b of its rows, `index` [R] int64: takes that.
  void UnpackStep(const torch::Tensor& index, const torch::Tensor& message);
  // What rows at `index` [R] int64 see, on the device, before all steps are there.
  Batch Show(const torch::Tensor& index) const;
  // On a device, and with them the final observations `rows` [F, row_bytes] uint8
  // of the steps `index` [F] int32.
  Batch ShowFinal(const torch::Tensor& index, const torch::Tensor& rows) const;
  // On a device, when all steps are there: what Gather asks for. Of a ring, whose
  // leaf() and age() were written: its ages.
  void Settle();
  // Of a span on a device, all that Gather reads.
  std::vector<torch::Tensor> gathered() const;

  // The observations at `index` [M] int32, each t * B + b, on `device`. Of a store
  // on a device: there, where `index` is too; the host neither copies nor waits.
  Batch Gather(const torch::Tensor& index,
               torch::Device device = torch::kCPU) const;
  // Fills `out`, of EmptyBatch, with the observations at its M places of a store on the
  // host.
  struct Place {
    int64_t t, b;
    // Of what followed step t, whose episode ended; else null. [row_bytes]
    const uint8_t* final_row = nullptr;
  };
  void Gather(std::span<const Place> places, Batch* out) const;
  // Of a ring on a device, there: the observations at `place` [M] int32, each
  // (t mod N) * B + b. Of the last F of them what followed, where `slot` [F] int32 is
  // not -1: that row of `finals` [S, row_bytes] uint8. The host neither copies nor
  // waits.
  Batch GatherThere(const torch::Tensor& place, const torch::Tensor& slot,
                    const torch::Tensor& finals) const;
  // An uninitialised batch of M on the host, that is to go to `device`
  // (device/transfer.h), and its rows: `out` may be any of these.
  Batch EmptyBatch(int64_t m, torch::Device device = torch::kCPU) const;
  void CopyRow(int64_t t, int64_t b, int64_t to, Batch* out) const;

  // Rows [first, first + rows) at step t as a policy takes them. Points into
  // this store or into `scratch`, valid until either changes.
  struct Scratch {
    std::vector<std::vector<uint8_t>> leaf;
    std::vector<const void*> pointer;
  };
  void View(int64_t t, int64_t first, int64_t rows, Scratch* scratch,
            Observations* out) const;

  // Final observations: what followed step t of row b, whose episode ended. One
  // row's newest arrays, leaf after leaf, as bytes.
  int64_t row_bytes() const;
  void EncodeRow(WireColumns columns, int64_t row, uint8_t* out) const;
  // Of such a row, the columns that Spaces::normalized counts.
  static float* NumbersOf(uint8_t* final_row);
  // With the arrays of step t before it.
  void CopyFinal(int64_t t, int64_t b, const uint8_t* final_row, int64_t to,
                 Batch* out) const;
  void ViewFinal(int64_t t, int64_t b, const uint8_t* final_row,
                 Scratch* scratch, Observations* out) const;

 private:
  struct Layout {
    LeafSpec spec;
    int64_t bytes = 0;   // of one row
    int64_t offset = 0;  // in a final row
  };
  using MakeLeaf = absl::FunctionRef<torch::Tensor(
      const std::vector<int64_t>& shape, torch::Dtype dtype)>;
  // All but ages, and what points into leaves on the host.
  void Allocate(const Spaces& spaces, int64_t steps, int64_t rows, Form form,
                MakeLeaf make);
  int64_t ArrayOf(int i, int64_t t) const {
    return form_ == Form::kRing ? t % steps_ : t + layout_[i].spec.stack - 1;
  }
  int64_t AgeIndex(int64_t t, int64_t b) const {
    return (form_ == Form::kRing ? t % steps_ : t) * rows_ + b;
  }
  uint8_t* RowAt(int i, int64_t t, int64_t b) const {
    return bytes_[i] + (ArrayOf(i, t) * rows_ + b) * layout_[i].bytes;
  }
  // Of row b at step t, as far as what it saw before is there.
  uint8_t AgeSinceCut(int64_t t, int64_t b, int64_t age) const {
    return static_cast<uint8_t>(std::min(age, t - cut_[b]));
  }
  bool on_device() const { return !leaf_.empty() && !leaf_[0].is_cpu(); }
  Batch GatherOnDevice(const torch::Tensor& index) const;
  void CopyArrays(int64_t t, const ObservationStore& other, int64_t from,
                  int64_t steps);
  void CopyAges(int64_t t, int64_t steps);
  // [M, k] int32: of leaf i's arrays, those that steps `index` show.
  torch::Tensor ArraysOf(int i, const torch::Tensor& index) const;
  void CopyStack(int i, int64_t t, int64_t b, uint8_t* out) const;
  void CopyFinalStack(int i, int64_t t, int64_t b, const uint8_t* final_row,
                      uint8_t* out) const;
  void Encode(int i, WireColumns columns, int64_t from, int64_t rows,
              uint8_t* out) const;
  // Of any type that a leaf has.
  static int64_t Aligned(int64_t offset) { return (offset + 7) / 8 * 8; }

  Form form_ = Form::kSpan;
  int64_t steps_ = 0, rows_ = 0;
  int64_t max_stack_ = 1;
  std::vector<Layout> layout_;
  std::vector<torch::Tensor> leaf_;
  std::vector<uint8_t*> bytes_;  // of leaf_
  torch::Tensor age_;            // of a span on a device there, int32
  // On a device, of leaves that are stacked, all that ArraysOf gives: [N * B, k].
  std::vector<torch::Tensor> arrays_;
  uint8_t* ages_ = nullptr;   // of age_
  std::vector<int64_t> cut_;  // [B]  of a ring: the step of the last Cut
  // Of a ring on a device: age_ there, and on the host the newest step's arrays, leaf
  // by leaf, [B, ...].
  torch::Tensor age_there_;
  std::vector<std::vector<uint8_t>> newest_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ROLLOUT_OBSERVATION_STORE_H_
