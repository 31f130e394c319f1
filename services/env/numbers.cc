#include "services/env/numbers.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>

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
  size_t i = 0;
  while (IsUsable(At(values, i))) ++i;
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

  auto* finals = step->mutable_final_observation()->mutable_leaf();
  for (int i = 0; i < spec.observation_size(); ++i) {
    if (spec.observation(i).dtype() != v1::FLOAT32) continue;
    const size_t bytes = layout.observation_bytes[i];
    const auto rows_of = [&](const char* name, std::span<std::byte> array,
                             auto row_number, bool blind) {
      if (AllUsable(array)) return;
      for (size_t r = 0; r < array.size() / bytes; ++r) {
        const auto row = array.subspan(r * bytes, bytes);
        const absl::Status status =
            CheckNumbers(LeafName(name, spec.observation(i)), row);
        if (status.ok()) continue;
        refusal.Refuse(row_number(static_cast<int>(r)), status, blind);
        zero(row);
      }
    };
    rows_of(
        "the observation", observation[i], [](int r) { return r; },
        /*blind=*/true);
    if (i < finals->size()) {
      rows_of(
          "the final observation", Bytes(finals->Mutable(i)),
          [&](int f) { return step->final_row(f); }, /*blind=*/false);
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

}  // namespace flotilla
