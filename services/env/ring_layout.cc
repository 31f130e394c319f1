#include "services/env/ring_layout.h"

#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

static_assert(std::endian::native == std::endian::little);

// Of every place.
constexpr size_t kSeq = 0;
constexpr size_t kGroup = 8;
// Of a step's.
constexpr size_t kFlags = 12;
constexpr size_t kFinals = 16;
constexpr size_t kEnds = 20;
constexpr size_t kHeader = 24;
constexpr uint32_t kOnStream = 1;
constexpr uint32_t kHasActive = 2;
// Of an EpisodeEnd.
constexpr size_t kOthersPlayOn = 4;
constexpr size_t kRawReturn = 8;
constexpr size_t kLength = 16;
constexpr size_t kMetrics = 24;

constexpr size_t kLine = 64;
constexpr size_t kCounters = 4 * kLine;  // see ring.cc

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The place of an array of `bytes`, after what `end` says is there.
size_t Append(size_t bytes, size_t* end) {
  const size_t at = *end;
  *end += RoundUp(bytes, 8);
  return at;
}

// Once, whatever the other process does meanwhile.
template <typename T>
T Load(std::span<const std::byte> place, size_t at) {
  T value;
  __atomic_load(reinterpret_cast<const T*>(place.data() + at), &value,
                __ATOMIC_RELAXED);
  return value;
}

template <typename T>
void Store(T value, size_t at, std::span<std::byte> place) {
  std::memcpy(place.data() + at, &value, sizeof(value));
}

void Copy(const std::string& bytes, size_t at, std::span<std::byte> place) {
  std::memcpy(place.data() + at, bytes.data(), bytes.size());
}

void Assign(std::span<const std::byte> place, size_t at, size_t bytes,
            std::string* to) {
  to->assign(reinterpret_cast<const char*>(place.data() + at), bytes);
}

bool Fits(const v1::EnvSpec& spec, const GroupLayout& layout,
          const v1::StepBatch& step) {
  const size_t rows = layout.rows;
  if (step.reward().size() != rows * sizeof(float) ||
      step.terminated().size() != rows || step.truncated().size() != rows ||
      (!step.active().empty() && step.active().size() != rows) ||
      static_cast<size_t>(step.final_row_size()) > rows ||
      static_cast<size_t>(step.episode_end_size()) > rows ||
      step.error_size() > 0) {
    return false;
  }
  if (step.final_row_size() > 0) {
    const v1::Columns& finals = step.final_observation();
    if (static_cast<size_t>(finals.leaf_size()) !=
        layout.observation_bytes.size()) {
      return false;
    }
    for (int i = 0; i < finals.leaf_size(); ++i) {
      if (finals.leaf(i).size() !=
          step.final_row_size() * layout.observation_bytes[i]) {
        return false;
      }
    }
  }
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    if (static_cast<int>(end.metric_size()) != spec.episode_metric_size()) {
      return false;
    }
    for (const std::string& name : spec.episode_metric()) {
      if (!end.metric().contains(name)) return false;
    }
  }
  return true;
}

absl::Status CheckCount(const char* field, uint32_t count, int most) {
  if (count <= static_cast<uint32_t>(most)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the ring's step has ", count, " ",
                                          field, ", want 0 to ", most));
}

}  // namespace

RingLayout MakeRingLayout(const v1::EnvSpec& spec, const GroupLayout& layout) {
  RingLayout ring;
  ring.groups = layout.groups;
  ring.rows = layout.rows;
  ring.metrics = spec.episode_metric_size();
  const size_t rows = layout.rows;
  size_t end = kHeader;
  Append(rows * sizeof(float), &end);  // reward, first
  ring.terminated = Append(rows, &end);
  ring.truncated = Append(rows, &end);
  ring.active = Append(rows, &end);
  ring.final_row = Append(rows * sizeof(int32_t), &end);
  ring.episode_end_bytes = kMetrics + ring.metrics * sizeof(double);
  ring.episode_end = Append(rows * ring.episode_end_bytes, &end);
  for (const size_t bytes : layout.observation_bytes) {
    ring.final_observation.push_back(Append(rows * bytes, &end));
  }
  ring.step_bytes = RoundUp(end, kLine);
  end = kHeader;
  for (const size_t bytes : layout.action_bytes) {
    ring.action.push_back(Append(rows * bytes, &end));
  }
  ring.action_bytes = RoundUp(end, kLine);
  ring.first_step = kCounters;
  ring.first_action = ring.first_step + ring.groups * ring.step_bytes;
  ring.bytes = ring.first_action + ring.groups * ring.action_bytes;
  return ring;
}

bool PutStep(const v1::EnvSpec& spec, const GroupLayout& layout,
             const RingLayout& ring, const v1::StepBatch& step,
             std::span<std::byte> place) {
  Store<uint64_t>(step.seq(), kSeq, place);
  Store<uint32_t>(step.group(), kGroup, place);
  Store<uint32_t>(0, kFinals, place);
  Store<uint32_t>(0, kEnds, place);
  if (!Fits(spec, layout, step)) {
    Store<uint32_t>(kOnStream, kFlags, place);
    return false;
  }
  Store<uint32_t>(step.active().empty() ? 0 : kHasActive, kFlags, place);
  Copy(step.reward(), kHeader, place);
  Copy(step.terminated(), ring.terminated, place);
  Copy(step.truncated(), ring.truncated, place);
  Copy(step.active(), ring.active, place);
  if (step.final_row_size() > 0) {
    Store<uint32_t>(step.final_row_size(), kFinals, place);
    for (int i = 0; i < step.final_row_size(); ++i) {
      Store<int32_t>(step.final_row(i), ring.final_row + i * sizeof(int32_t),
                     place);
    }
    for (int i = 0; i < step.final_observation().leaf_size(); ++i) {
      Copy(step.final_observation().leaf(i), ring.final_observation[i], place);
    }
  }
  Store<uint32_t>(step.episode_end_size(), kEnds, place);
  size_t at = ring.episode_end;
  for (const v1::EpisodeEnd& end : step.episode_end()) {
    Store<int32_t>(end.row(), at, place);
    Store<uint32_t>(end.others_play_on(), at + kOthersPlayOn, place);
    Store<double>(end.raw_return(), at + kRawReturn, place);
    Store<int64_t>(end.length(), at + kLength, place);
    for (int i = 0; i < ring.metrics; ++i) {
      Store<double>(end.metric().at(spec.episode_metric(i)),
                    at + kMetrics + i * sizeof(double), place);
    }
    at += ring.episode_end_bytes;
  }
  return true;
}

absl::StatusOr<bool> TakeStep(const v1::EnvSpec& spec,
                              const GroupLayout& layout, const RingLayout& ring,
                              std::span<const std::byte> place,
                              v1::StepBatch* step) {
  step->set_seq(Load<uint64_t>(place, kSeq));
  step->set_group(static_cast<int>(Load<uint32_t>(place, kGroup)));
  step->clear_final_row();
  step->clear_episode_end();
  step->clear_error();
  const uint32_t flags = Load<uint32_t>(place, kFlags);
  if (flags == kOnStream) return false;
  if ((flags & ~kHasActive) != 0) {
    return absl::InternalError(
        absl::StrCat("the ring's step has flags ", flags,
                     ", want 0, 1 (the stream has it) or 2 (active)"));
  }
  const uint32_t finals = Load<uint32_t>(place, kFinals);
  const uint32_t ends = Load<uint32_t>(place, kEnds);
  if (auto status = CheckCount("final rows", finals, ring.rows); !status.ok()) {
    return status;
  }
  if (auto status = CheckCount("episode ends", ends, ring.rows); !status.ok()) {
    return status;
  }
  step->set_slot(static_cast<uint32_t>(step->group()));
  const size_t rows = ring.rows;
  Assign(place, kHeader, rows * sizeof(float), step->mutable_reward());
  Assign(place, ring.terminated, rows, step->mutable_terminated());
  Assign(place, ring.truncated, rows, step->mutable_truncated());
  Assign(place, ring.active, flags == kHasActive ? rows : 0,
         step->mutable_active());
  for (uint32_t i = 0; i < finals; ++i) {
    step->add_final_row(
        Load<int32_t>(place, ring.final_row + i * sizeof(int32_t)));
  }
  v1::Columns* const columns = step->mutable_final_observation();
  columns->clear_leaf();
  for (size_t i = 0; finals > 0 && i < ring.final_observation.size(); ++i) {
    Assign(place, ring.final_observation[i],
           finals * layout.observation_bytes[i], columns->add_leaf());
  }
  size_t at = ring.episode_end;
  for (uint32_t i = 0; i < ends; ++i, at += ring.episode_end_bytes) {
    v1::EpisodeEnd* const end = step->add_episode_end();
    end->set_row(Load<int32_t>(place, at));
    end->set_others_play_on(Load<uint32_t>(place, at + kOthersPlayOn) != 0);
    end->set_raw_return(Load<double>(place, at + kRawReturn));
    end->set_length(Load<int64_t>(place, at + kLength));
    for (int m = 0; m < ring.metrics; ++m) {
      (*end->mutable_metric())[spec.episode_metric(m)] =
          Load<double>(place, at + kMetrics + m * sizeof(double));
    }
  }
  return true;
}

absl::Status PutActions(const GroupLayout& layout, const RingLayout& ring,
                        const v1::ActionBatch& actions,
                        std::span<std::byte> place) {
  if (static_cast<size_t>(actions.action_size()) != ring.action.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("actions.action has ", actions.action_size(),
                     " leaves, want ", ring.action.size()));
  }
  Store<uint64_t>(actions.seq(), kSeq, place);
  Store<uint32_t>(actions.group(), kGroup, place);
  for (int i = 0; i < actions.action_size(); ++i) {
    const size_t want = ring.rows * layout.action_bytes[i];
    if (actions.action(i).size() != want) {
      return absl::InvalidArgumentError(
          absl::StrCat("actions.action[", i, "] has ", actions.action(i).size(),
                       " bytes, want ", want, " (", ring.rows, " rows of ",
                       layout.action_bytes[i], ")"));
    }
    Copy(actions.action(i), ring.action[i], place);
  }
  return absl::OkStatus();
}

void TakeActions(const GroupLayout& layout, const RingLayout& ring,
                 std::span<const std::byte> place, v1::ActionBatch* actions) {
  actions->set_seq(Load<uint64_t>(place, kSeq));
  actions->set_group(static_cast<int>(Load<uint32_t>(place, kGroup)));
  while (actions->action_size() > static_cast<int>(ring.action.size())) {
    actions->mutable_action()->RemoveLast();
  }
  for (size_t i = 0; i < ring.action.size(); ++i) {
    const int leaf = static_cast<int>(i);
    Assign(place, ring.action[i], ring.rows * layout.action_bytes[i],
           leaf < actions->action_size() ? actions->mutable_action(leaf)
                                         : actions->add_action());
  }
}

}  // namespace flotilla
