#include "services/env/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Of floats without their sign, bits are in the order of magnitudes, with
// infinity and NaN above all: below 0 exactly where `bits` is not usable.
int32_t Margin(uint32_t bits) {
  constexpr auto kLimit = std::bit_cast<int32_t>(kMaxMagnitude);
  return kLimit - static_cast<int32_t>(bits & 0x7fffffff);
}

float At(std::span<const std::byte> values, size_t i) {
  float value;
  std::memcpy(&value, values.data() + i * sizeof(float), sizeof(value));
  return value;
}

std::span<std::byte> Bytes(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

std::string LeafName(const char* kind, const v1::Leaf& leaf) {
  return leaf.path().empty() ? std::string(kind)
                             : absl::StrCat(kind, " \"", leaf.path(), "\"");
}

absl::Status CheckEnd(const v1::EpisodeEnd& end) {
  const auto check = [](const std::string& what, double value) {
    if (IsUsable(value)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("episode_end.", what, " is ", value,
                                            ", want a finite number up to ",
                                            kMaxMagnitude));
  };
  RETURN_IF_ERROR(check("raw_return", end.raw_return()));
  for (const auto& [name, value] : end.metric()) {
    RETURN_IF_ERROR(check("metric", value));
  }
  if (end.length() >= 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "episode_end.length is ", end.length(), ", want 0 or more steps"));
}

int64_t IntegerAt(v1::DType dtype, std::span<const std::byte> values,
                  size_t i) {
  if (dtype == v1::UINT8) return std::to_integer<int64_t>(values[i]);
  int64_t value;
  std::memcpy(&value, values.data() + i * sizeof(value), sizeof(value));
  return value;
}

// What the rows of one leaf have to be: usable numbers, values within their
// range, or a mask that allows something.
class LeafCheck {
 public:
  LeafCheck(const v1::EnvSpec& spec, const v1::Leaf& leaf) : leaf_(leaf) {
    for (const v1::Leaf& action : spec.action()) {
      const bool only = spec.action_size() == 1 && action.mask_path().empty();
      const std::string& mask =
          only ? spec.action_mask_path() : action.mask_path();
      if (!mask.empty() && mask == leaf.path() && leaf.dtype() == v1::UINT8) {
        actions_.push_back(&action);
      }
    }
  }

  bool needed() const { return leaf_.dtype() == v1::FLOAT32 || discrete(); }

  // Whether no row needs a look; false says nothing.
  bool AllFine(std::span<const std::byte> array) const {
    return leaf_.dtype() == v1::FLOAT32 && AllUsable(array);
  }

  absl::Status Row(const std::string& what, std::span<const std::byte> row,
                   bool may_forbid_all) const {
    if (leaf_.dtype() == v1::FLOAT32) return CheckNumbers(what, row);
    const size_t item = leaf_.dtype() == v1::UINT8 ? 1 : sizeof(int64_t);
    const size_t n = row.size() / item;
    for (size_t i = 0; i < n; ++i) {
      const int64_t limit = Limit(i);
      const int64_t value = IntegerAt(leaf_.dtype(), row, i);
      if (value >= 0 && value < limit) continue;
      return absl::InternalError(
          absl::StrCat(what, n == 1 ? "" : absl::StrCat(", element ", i, ","),
                       " is ", value, ", want 0 to ", limit - 1));
    }
    if (may_forbid_all) return absl::OkStatus();
    for (const v1::Leaf* action : actions_) {
      RETURN_IF_ERROR(CheckMask(what, row, *action));
    }
    return absl::OkStatus();
  }

 private:
  bool discrete() const {
    return !actions_.empty() || leaf_.num_values() > 0 ||
           leaf_.num_values_each_size() > 0;
  }

  int64_t Limit(size_t i) const {
    if (!actions_.empty()) return 2;
    return leaf_.num_values_each_size() > 0
               ? leaf_.num_values_each(static_cast<int>(i))
               : leaf_.num_values();
  }

  // Every element of `action` has at least one value that is allowed.
  static absl::Status CheckMask(const std::string& what,
                                std::span<const std::byte> row,
                                const v1::Leaf& action) {
    size_t first = 0;
    const int each = action.num_values_each_size();
    for (int element = 0; first < row.size(); ++element) {
      if (each > 0 && element >= each) break;  // not a mask of this action
      const int64_t values =
          each > 0 ? action.num_values_each(element) : action.num_values();
      if (values <= 0) break;
      const auto allowed =
          row.subspan(first, std::min<size_t>(values, row.size() - first));
      if (std::all_of(allowed.begin(), allowed.end(),
                      [](std::byte b) { return b == std::byte{0}; })) {
        return absl::InternalError(
            absl::StrCat(what, " allows no value of the action's element ",
                         element, ", want at least one of ", values));
      }
      first += values;
    }
    return absl::OkStatus();
  }

  const v1::Leaf& leaf_;
  std::vector<const v1::Leaf*> actions_;  // whose mask this is
};

// Collects what is wrong with the rows of one step.
class Refusal {
 public:
  Refusal(const v1::EnvSpec& spec, const GroupLayout& layout,
          v1::StepBatch* step, std::vector<uint8_t>* blind)
      : spec_(spec), layout_(layout), step_(*step), blind_(blind) {
    blind_->assign(static_cast<size_t>(layout.rows), 0);
  }

  // `blind`: the row has no observation now.
  void Refuse(int row, const absl::Status& why, bool blind) {
    rows_.insert(row);
    v1::RowError* error = nullptr;
    for (v1::RowError& known : *step_.mutable_error()) {
      if (known.row() == row) error = &known;
    }
    if (error == nullptr) {
      error = step_.add_error();
      error->set_row(row);
    }
    if (blind) (*blind_)[row] = 1;
    if (!error->message().empty()) return;
    error->set_message(absl::StrCat("env \"", spec_.env_id(), "\", row ",
                                    step_.group() * layout_.rows + row,
                                    ", step ", step_.seq(), ": ",
                                    std::string(why.message())));
    error->set_unusable(true);
  }

  int rows() const { return static_cast<int>(rows_.size()); }

 private:
  const v1::EnvSpec& spec_;
  const GroupLayout& layout_;
  v1::StepBatch& step_;
  std::vector<uint8_t>* const blind_;
  std::set<int> rows_;
};

}  // namespace

bool IsUsable(double value) { return std::abs(value) <= 1e18; }

bool AllUsable(std::span<const std::byte> values) {
  constexpr size_t kLanes = 16;
  const std::byte* at = values.data();
  size_t left = values.size() / sizeof(float);
  int32_t lanes[kLanes] = {};
  for (; left >= kLanes; left -= kLanes, at += kLanes * sizeof(float)) {
    uint32_t bits[kLanes];
    std::memcpy(bits, at, sizeof(bits));
    for (size_t i = 0; i < kLanes; ++i) lanes[i] |= Margin(bits[i]);
  }
  int32_t any = 0;
  for (const int32_t lane : lanes) any |= lane;
  for (; left > 0; --left, at += sizeof(float)) {
    uint32_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    any |= Margin(bits);
  }
  return any >= 0;
}

absl::Status CheckNumbers(const std::string& what,
                          std::span<const std::byte> values) {
  if (AllUsable(values)) return absl::OkStatus();
  // Where a peer writes what it has handed over, it may be another by now.
  const size_t count = values.size() / sizeof(float);
  size_t i = 0;
  while (i < count && IsUsable(At(values, i))) ++i;
  if (i == count) {
    return absl::InternalError(
        absl::StrCat(what, " is written while it is read"));
  }
  const bool one = values.size() == sizeof(float);
  return absl::InternalError(absl::StrCat(
      what, one ? "" : absl::StrCat(", element ", i, ","), " is ",
      At(values, i), ", want a finite number up to ", kMaxMagnitude));
}

int RefuseRows(const v1::EnvSpec& spec, const GroupLayout& layout,
               ObservationArrays observation, v1::StepBatch* step,
               std::vector<uint8_t>* blind) {
  Refusal refusal(spec, layout, step, blind);
  const auto zero = [](std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0, bytes.size());
  };

  const std::span<std::byte> rewards = Bytes(step->mutable_reward());
  for (int row = 0; !AllUsable(rewards) && row < layout.rows; ++row) {
    const auto reward = rewards.subspan(row * sizeof(float), sizeof(float));
    const absl::Status status = CheckNumbers("the reward", reward);
    if (status.ok()) continue;
    refusal.Refuse(row, status, /*blind=*/false);
    zero(reward);
  }

  std::vector<uint8_t> failed(static_cast<size_t>(layout.rows), 0);
  for (const v1::RowError& error : step->error()) failed[error.row()] = 1;
  auto* finals = step->mutable_final_observation()->mutable_leaf();
  for (int i = 0; i < spec.observation_size(); ++i) {
    const LeafCheck check(spec, spec.observation(i));
    if (!check.needed()) continue;
    const size_t bytes = layout.observation_bytes[i];
    const auto rows_of = [&](const char* name, std::span<std::byte> array,
                             auto row_number, bool final) {
      if (check.AllFine(array)) return;
      for (size_t r = 0; r < array.size() / bytes; ++r) {
        const int row_index = row_number(static_cast<int>(r));
        const auto row = array.subspan(r * bytes, bytes);
        // What has failed already need not allow anything, nor what has ended.
        const bool may_forbid_all = final || failed[row_index];
        if (check.Row("", row, may_forbid_all).ok()) continue;
        if (!final && !IsActive(*step, row_index)) {
          if (!check.Row("", row, /*may_forbid_all=*/true).ok()) zero(row);
          continue;
        }
        refusal.Refuse(
            row_index,
            check.Row(LeafName(name, spec.observation(i)), row, may_forbid_all),
            /*blind=*/!final);
        zero(row);
      }
    };
    rows_of(
        "the observation", observation[i], [](int r) { return r; },
        /*final=*/false);
    if (i < finals->size()) {
      rows_of(
          "the final observation", Bytes(finals->Mutable(i)),
          [&](int f) { return step->final_row(f); }, /*final=*/true);
    }
  }

  auto* ends = step->mutable_episode_end();
  for (int e = 0; e < ends->size();) {
    const absl::Status status = CheckEnd(ends->Get(e));
    if (status.ok()) {
      ++e;
      continue;
    }
    refusal.Refuse(ends->Get(e).row(), status, /*blind=*/false);
    ends->DeleteSubrange(e, 1);
  }
  return refusal.rows();
}

void FailOtherSlots(const GroupLayout& layout, v1::StepBatch* step) {
  if (layout.agents == 1 || step->error_size() == 0) return;
  std::vector<bool> failed(static_cast<size_t>(layout.rows));
  for (const v1::RowError& error : step->error()) failed[error.row()] = true;
  for (int e = 0; e < layout.environments(); ++e) {
    const auto first = failed.begin() + e * layout.agents;
    const auto end = first + layout.agents;
    if (std::find(first, end, true) == end) continue;
    for (auto slot = first; slot != end; ++slot) {
      if (*slot) continue;
      step->add_error()->set_row(static_cast<int>(slot - failed.begin()));
    }
  }
}

}  // namespace flotilla
