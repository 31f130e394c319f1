#include "services/env/group_layout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/config_rules.h"
#include "services/base/status_macros.h"
#include "services/rpc/channel.h"

namespace flotilla {
namespace {

constexpr size_t kSlotAlignment = 64;
constexpr size_t kMaxNameBytes = 256;
// Room in a message for everything besides observations, or actions.
constexpr size_t kMaxStepBytes = kMaxMessageBytes - (1 << 20);
// Of all groups' observations together.
constexpr size_t kMaxStreamBytes = size_t{1} << 30;
constexpr int kMaxEpisodeMetrics = 64;
constexpr int kMaxAgents = 1024;
constexpr int64_t kMaxValues = int64_t{1} << 31;  // of a discrete element
constexpr float kInfinity = std::numeric_limits<float>::infinity();

size_t RoundUp(size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

size_t ItemBytes(v1::DType dtype) {
  switch (dtype) {
    case v1::UINT8:
      return 1;
    case v1::INT64:
      return 8;
    case v1::FLOAT32:
      return 4;
    default:
      return 0;
  }
}

// Of element `i`: one bound may be for all of them, or none is given.
float BoundAt(const google::protobuf::RepeatedField<float>& bounds, size_t i,
              float none) {
  if (bounds.empty()) return none;
  return bounds.size() == 1 ? bounds[0] : bounds[static_cast<int>(i)];
}

std::string LeafName(const char* kind, int index, const v1::Leaf& leaf) {
  return absl::StrCat("spec.", kind, "[", index, "] (\"", leaf.path(), "\")");
}

// Bytes of one row of `leaf`.
absl::StatusOr<size_t> CheckLeaf(const std::string& name,
                                 const v1::Leaf& leaf) {
  const size_t item = ItemBytes(leaf.dtype());
  if (item == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ".dtype is ", leaf.dtype(), ", want UINT8, INT64 or FLOAT32"));
  }
  size_t elements = 1;
  for (int64_t dim : leaf.shape()) {
    if (dim < 1 || static_cast<uint64_t>(dim) > kMaxStepBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ".shape has a dimension of ", dim, ", want 1 to ",
                       kMaxStepBytes));
    }
    elements *= static_cast<size_t>(dim);
    if (elements * item > kMaxStepBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has more than ", kMaxStepBytes, " bytes a row"));
    }
  }
  for (const auto& [field, size] :
       {std::pair("low", leaf.low_size()), std::pair("high", leaf.high_size()),
        std::pair("num_values_each", leaf.num_values_each_size())}) {
    const bool one_for_all = size == 1 && std::strcmp(field, "num_values_each");
    if (size != 0 && !one_for_all && static_cast<size_t>(size) != elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ".", field, " has ", size, " values, want one for each of ",
          elements, " elements"));
    }
  }
  for (const auto* bounds : {&leaf.low(), &leaf.high()}) {
    for (const float bound : *bounds) {
      if (!std::isnan(bound)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          name, " has a bound that is ", bound, ", want a number"));
    }
  }
  for (int i = 0; i < std::max(leaf.low_size(), leaf.high_size()); ++i) {
    const float low = BoundAt(leaf.low(), i, -kInfinity);
    const float high = BoundAt(leaf.high(), i, kInfinity);
    if (low <= high) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".low is ", low, " and .high ", high, " in element ",
                     i, ", want low to be at most high"));
  }
  for (const int64_t values : leaf.num_values_each()) {
    if (values >= 1 && values <= kMaxValues) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".num_values_each has a ", values, ", want 1 to ",
                     kMaxValues, " values"));
  }
  if (leaf.num_values() > kMaxValues) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".num_values is ", leaf.num_values(),
                     ", want at most ", kMaxValues));
  }
  if (leaf.num_values() < 0 || leaf.frame_stack() < 0 ||
      leaf.frame_stack() > 1024) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has num_values ", leaf.num_values(), " and frame_stack ",
        leaf.frame_stack(), ", want none below 0 and at most 1024 frames"));
  }
  return elements * item;
}

absl::StatusOr<std::vector<size_t>> CheckLeaves(
    const char* kind,
    const google::protobuf::RepeatedPtrField<v1::Leaf>& leaves) {
  if (leaves.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.", kind, " is empty, want at least one leaf"));
  }
  std::vector<size_t> bytes;
  for (int i = 0; i < leaves.size(); ++i) {
    if (i > 0 && leaves[i - 1].path() >= leaves[i].path()) {
      return absl::InvalidArgumentError(absl::StrCat(
          LeafName(kind, i, leaves[i]), " comes after \"", leaves[i - 1].path(),
          "\", want paths sorted and distinct"));
    }
    ASSIGN_OR_RETURN(size_t leaf_bytes,
                     CheckLeaf(LeafName(kind, i, leaves[i]), leaves[i]));
    bytes.push_back(leaf_bytes);
  }
  return bytes;
}

absl::Status BadSize(const std::string& field, size_t got, size_t rows,
                     size_t row_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", got, " bytes, want ", rows * row_bytes, " (",
                   rows, " rows of ", row_bytes, ")"));
}

template <typename T>
T ValueAt(const std::string& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
int64_t IntegerAt(const std::string& bytes, size_t index) {
  return static_cast<int64_t>(ValueAt<T>(bytes, index));
}

absl::Status CheckDiscrete(const v1::Leaf& leaf, const v1::StepBatch& step,
                           size_t rows, const std::string& bytes) {
  const size_t elements = bytes.size() / ItemBytes(leaf.dtype()) / rows;
  const bool each = leaf.num_values_each_size() > 0;
  for (size_t row = 0; row < rows; ++row) {
    if (!IsActive(step, static_cast<int>(row))) continue;
    for (size_t i = 0; i < elements; ++i) {
      const size_t index = row * elements + i;
      const int64_t value = leaf.dtype() == v1::INT64
                                ? IntegerAt<int64_t>(bytes, index)
                                : IntegerAt<uint8_t>(bytes, index);
      const int64_t limit =
          each ? leaf.num_values_each(static_cast<int>(i)) : leaf.num_values();
      if (value < 0 || value >= limit) {
        return absl::InvalidArgumentError(
            absl::StrCat(" is ", value, " in row ", row,
                         elements > 1 ? absl::StrCat(", element ", i) : "",
                         ", want 0 to ", limit - 1));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckContinuous(const v1::Leaf& leaf, const v1::StepBatch& step,
                             size_t rows, const std::string& bytes) {
  const size_t elements = bytes.size() / sizeof(float) / rows;
  for (size_t row = 0; row < rows; ++row) {
    if (!IsActive(step, static_cast<int>(row))) continue;
    for (size_t i = 0; i < elements; ++i) {
      const float value = ValueAt<float>(bytes, row * elements + i);
      const float low = BoundAt(leaf.low(), i, -kInfinity);
      const float high = BoundAt(leaf.high(), i, kInfinity);
      if (!std::isfinite(value) || value < low || value > high) {
        return absl::InvalidArgumentError(
            absl::StrCat(" is ", value, " in row ", row,
                         elements > 1 ? absl::StrCat(", element ", i) : "",
                         ", want a finite number from ", low, " to ", high));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const char* field, const std::string& flags,
                        size_t rows) {
  if (flags.size() != rows) return BadSize(field, flags.size(), rows, 1);
  for (size_t row = 0; row < rows; ++row) {
    if (static_cast<uint8_t>(flags[row]) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, " is ", static_cast<uint8_t>(flags[row]),
                       " in row ", row, ", want 0 or 1"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const char* field, const v1::Columns& columns,
                          size_t rows, const std::vector<size_t>& row_bytes) {
  if (static_cast<size_t>(columns.leaf_size()) != row_bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", columns.leaf_size(), " leaves, want ",
                     row_bytes.size()));
  }
  for (int i = 0; i < columns.leaf_size(); ++i) {
    if (columns.leaf(i).size() != rows * row_bytes[i]) {
      return BadSize(absl::StrCat(field, ".leaf[", i, "]"),
                     columns.leaf(i).size(), rows, row_bytes[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRow(const char* field, int row, int rows) {
  if (row >= 0 && row < rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " names row ", row, ", want 0 to ", rows - 1));
}

absl::Status CheckPayload(const GroupLayout& layout, bool shared,
                          const v1::StepBatch& step) {
  if (shared) {
    if (step.payload_case() == v1::StepBatch::kSlot &&
        step.slot() == static_cast<uint32_t>(step.group())) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("step.payload is not slot ", step.group(),
                     ", want the group's own shared slot"));
  }
  if (step.payload_case() != v1::StepBatch::kInline) {
    return absl::InvalidArgumentError(
        "step.payload is not inline, and no memory is shared");
  }
  return CheckColumns("step.inline", step.inline_(), layout.rows,
                      layout.observation_bytes);
}

absl::Status CheckFinals(const GroupLayout& layout, const v1::StepBatch& step) {
  int next = 0;
  for (int row = 0; row < layout.rows; ++row) {
    if (!step.terminated()[row] && !step.truncated()[row]) continue;
    if (next == step.final_row_size() || step.final_row(next) != row) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step.final_row does not list row ", row,
          ", whose episode ended; want the ended rows, ascending"));
    }
    ++next;
  }
  if (next != step.final_row_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("step.final_row has ", step.final_row_size(),
                     " rows, want the ", next, " whose episode ended"));
  }
  if (next == 0 && step.final_observation().leaf_size() == 0) {
    return absl::OkStatus();
  }
  return CheckColumns("step.final_observation", step.final_observation(), next,
                      layout.observation_bytes);
}

// Whoever counts games counts these.
absl::Status CheckEpisodeEnds(const GroupLayout& layout,
                              const v1::StepBatch& step) {
  if (step.episode_end_size() == 0) return absl::OkStatus();
  std::vector<bool> named(layout.rows);
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    const int row = end.row();
    RETURN_IF_ERROR(CheckRow("step.episode_end", row, layout.rows));
    if (end.others_play_on() && layout.agents == 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("step.episode_end says that others play on after row ",
                       row, ", and spec.agents is 1: there are no others"));
    }
    if (!step.terminated()[row] && !step.truncated()[row]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step.episode_end names row ", row,
          ", and neither step.terminated nor step.truncated is 1 there"));
    }
    if (named[row]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step.episode_end names row ", row, " twice, want one a row"));
    }
    named[row] = true;
  }
  return absl::OkStatus();
}

// Whoever counts errors counts rows, and an environment fails as a whole.
absl::Status CheckErrors(const GroupLayout& layout, const v1::StepBatch& step) {
  if (step.error_size() == 0) return absl::OkStatus();
  std::vector<bool> named(layout.rows);
  for (const v1::RowError& error : step.error()) {
    RETURN_IF_ERROR(CheckRow("step.error", error.row(), layout.rows));
    if (named[error.row()]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step.error names row ", error.row(), " twice, want one a row"));
    }
    named[error.row()] = true;
  }
  for (int row = 0; layout.agents > 1 && row < layout.rows; ++row) {
    const int first = row - row % layout.agents;
    if (named[row] == named[first]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("step.error names row ", named[row] ? row : first,
                     " and not row ", named[row] ? first : row, ", want all ",
                     layout.agents, " slots of the environment that failed"));
  }
  return absl::OkStatus();
}

absl::Status CheckStepFields(const GroupLayout& layout, bool shared,
                             const v1::StepBatch& step) {
  RETURN_IF_ERROR(CheckPayload(layout, shared, step));
  if (step.reward().size() != layout.rows * sizeof(float)) {
    return BadSize("step.reward", step.reward().size(), layout.rows,
                   sizeof(float));
  }
  RETURN_IF_ERROR(
      CheckFlags("step.terminated", step.terminated(), layout.rows));
  RETURN_IF_ERROR(CheckFlags("step.truncated", step.truncated(), layout.rows));
  RETURN_IF_ERROR(CheckFinals(layout, step));
  for (const auto& [field, size] :
       {std::pair("step.episode_end", step.episode_end_size()),
        std::pair("step.error", step.error_size())}) {
    if (size <= layout.rows) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", size,
                     " entries, want one a row at most, of ", layout.rows));
  }
  RETURN_IF_ERROR(CheckEpisodeEnds(layout, step));
  if (!step.active().empty()) {
    RETURN_IF_ERROR(CheckFlags("step.active", step.active(), layout.rows));
    const size_t idle = step.active().find('\0');
    if (layout.agents == 1 && idle != step.active().npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step.active is 0 in row ", idle,
          ", want 1: where an environment has one agent, each step is its own; "
          "play what others do before it is answered"));
    }
  }
  return CheckErrors(layout, step);
}

absl::Status CheckName(const char* field, const std::string& value) {
  if (!value.empty() && value.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " has ", value.size(), " bytes, want 1 to ", kMaxNameBytes));
}

}  // namespace

absl::StatusOr<int> AgentsOf(const v1::EnvSpec& spec) {
  if (spec.agents() >= 0 && spec.agents() <= kMaxAgents) {
    return std::max(spec.agents(), 1);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "spec.agents is ", spec.agents(), ", want 1 to ", kMaxAgents));
}

absl::StatusOr<GroupLayout> MakeGroupLayout(const v1::EnvSpec& spec,
                                            int num_envs, int num_groups) {
  GroupLayout layout;
  layout.groups = num_groups;
  layout.rows = num_envs / num_groups;
  ASSIGN_OR_RETURN(layout.agents, AgentsOf(spec));
  if (layout.rows % layout.agents != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_envs is ", num_envs, " in ", num_groups, " groups, and \"",
        spec.env_id(), "\" has ", layout.agents, " agents: ",
        NearbyMultiples(num_envs, int64_t{layout.agents} * num_groups)));
  }
  ASSIGN_OR_RETURN(layout.observation_bytes,
                   CheckLeaves("observation", spec.observation()));
  ASSIGN_OR_RETURN(layout.action_bytes, CheckLeaves("action", spec.action()));
  if (spec.episode_metric_size() > kMaxEpisodeMetrics) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.episode_metric has ", spec.episode_metric_size(),
                     " names, want at most ", kMaxEpisodeMetrics));
  }
  for (const std::string& name : spec.episode_metric()) {
    RETURN_IF_ERROR(CheckName("spec.episode_metric", name));
  }
  size_t row_bytes = 0;
  for (size_t bytes : layout.observation_bytes) {
    layout.slot_offset.push_back(layout.slot_bytes);
    layout.slot_bytes += RoundUp(bytes * layout.rows);
    row_bytes += bytes;
  }
  // A step may carry every row twice: as it starts and as it ended.
  const size_t most_rows = kMaxStepBytes / (2 * row_bytes);
  if (static_cast<size_t>(layout.rows) > most_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", layout.rows, " rows of ", row_bytes,
                     " bytes does not fit into a message of ", kMaxMessageBytes,
                     " bytes; have more groups or workers, at most ", most_rows,
                     " rows a group"));
  }
  size_t action_row_bytes = 0;
  for (size_t bytes : layout.action_bytes) action_row_bytes += bytes;
  const size_t most_acting = kMaxStepBytes / action_row_bytes;
  if (static_cast<size_t>(layout.rows) > most_acting) {
    return absl::InvalidArgumentError(absl::StrCat(
        "actions for a group of ", layout.rows, " rows of ", action_row_bytes,
        " bytes do not fit into a message of ", kMaxMessageBytes, " bytes; ",
        most_acting == 0 ? "not even those of one row do"
                         : absl::StrCat("have more groups or workers, at most ",
                                        most_acting, " rows a group")));
  }
  if (layout.slot_bytes > kMaxStreamBytes / num_groups) {
    return absl::InvalidArgumentError(absl::StrCat(
        num_envs, " rows of ", row_bytes, " bytes take more than the ",
        kMaxStreamBytes, " bytes of a stream; have more workers"));
  }
  return layout;
}

absl::Status CheckHello(const v1::Hello& hello, int max_num_envs) {
  if (hello.protocol_version() != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("hello.protocol_version is ", hello.protocol_version(),
                     ", this server speaks 1; update the older side"));
  }
  RETURN_IF_ERROR(CheckName("hello.learner_id", hello.learner_id()));
  RETURN_IF_ERROR(CheckName("hello.env_id", hello.env_id()));
  if (hello.num_envs() < 1 || hello.num_envs() > max_num_envs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hello.num_envs is ", hello.num_envs(), ", want 1 to ", max_num_envs));
  }
  if (hello.num_groups() < 1 || hello.num_envs() % hello.num_groups() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello.num_groups is ", hello.num_groups(),
                     ", want a divisor of the ", hello.num_envs(), " rows"));
  }
  if (hello.options().max_episode_steps() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello.options.max_episode_steps is ",
                     hello.options().max_episode_steps(),
                     ", want 0 (the environment's own) or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckActions(const v1::EnvSpec& spec, const GroupLayout& layout,
                          const v1::StepBatch& step,
                          const v1::ActionBatch& actions) {
  if (actions.action_size() != spec.action_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("actions.action has ", actions.action_size(),
                     " leaves, want ", spec.action_size()));
  }
  const size_t rows = layout.rows;
  for (int i = 0; i < spec.action_size(); ++i) {
    const v1::Leaf& leaf = spec.action(i);
    const std::string& bytes = actions.action(i);
    const auto field = [&] {
      return absl::StrCat("env \"", spec.env_id(), "\": actions.action[", i,
                          "] (leaf \"", leaf.path(), "\")");
    };
    if (bytes.size() != rows * layout.action_bytes[i]) {
      return BadSize(field(), bytes.size(), rows, layout.action_bytes[i]);
    }
    absl::Status status;
    if (leaf.dtype() == v1::FLOAT32) {
      status = CheckContinuous(leaf, step, rows, bytes);
    } else if (leaf.num_values() > 0 || leaf.num_values_each_size() > 0) {
      status = CheckDiscrete(leaf, step, rows, bytes);
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field(), std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStep(const v1::EnvSpec& spec, const GroupLayout& layout,
                       bool shared, const v1::StepBatch& step) {
  const absl::Status status = CheckStepFields(layout, shared, step);
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat("env \"", spec.env_id(), "\", group ",
                                          step.group(), ", seq ", step.seq(),
                                          ": ", std::string(status.message())));
}

}  // namespace flotilla
