#include "learner/training/run_state.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "learner/device/host.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr char kEpisodeWindow[] = "episode_window";
// Which checkpoints of before they were counted lack.
constexpr absl::string_view kCountedLater[] = {
    "failed_rows", "learner_restarts", "assigned_restarts"};

// Every field of Progress, once: `visit` gets its name and a reference.
template <typename P, typename Visit>
void ForEachField(P& p, Visit visit) {
  visit("update", p.update);
  visit("global_step", p.global_step);
  visit("episodes", p.episodes);
  visit("evaluation_round", p.evaluation_round);
  visit("env_incarnation", p.env_incarnation);
  visit("env_restarts", p.env_restarts);
  visit("learner_restarts", p.learner_restarts);
  visit("assigned_restarts", p.assigned_restarts);
  visit("failed_rows", p.failed_rows);
  visit("wall_seconds", p.wall_seconds);
  visit("best_return", p.best_return);
}

std::string Text(int64_t value) { return absl::StrCat(value); }
// 17 digits read back to the same bits.
std::string Text(double value) { return absl::StrFormat("%.17g", value); }
bool Parse(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool Parse(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

// What is small takes Torch longer to begin than to copy.
void CopyOver(const torch::Tensor& from, torch::Tensor to) {
  constexpr size_t kSmall = 1 << 18;  // bytes
  if (from.nbytes() <= kSmall && from.is_cpu() && to.is_cpu() &&
      from.is_contiguous() && to.is_contiguous() &&
      from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes()) {
    std::memcpy(HostBytes(to), HostBytes(from), from.nbytes());
  } else {
    to.copy_(from);
  }
}

void CopyInto(const std::vector<NamedTensor>& from,
              std::vector<NamedTensor>* to) {
  torch::NoGradGuard no_grad;
  if (to->size() != from.size()) {
    to->clear();
    for (const NamedTensor& t : from) {
      to->push_back({t.name, t.tensor.clone()});
    }
    return;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    CopyOver(from[i].tensor, (*to)[i].tensor);
  }
}

void CopyBack(const std::vector<NamedTensor>& from,
              const std::vector<NamedTensor>& to) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_(from[i].tensor);
}

TensorMap ToMap(const std::vector<NamedTensor>& tensors) {
  TensorMap map;
  for (const NamedTensor& t : tensors) map[t.name] = t.tensor.to(torch::kCPU);
  return map;
}

absl::Status LoadInto(const TensorMap& saved,
                      const std::vector<NamedTensor>& live) {
  torch::NoGradGuard no_grad;
  for (const NamedTensor& t : live) {
    if (t.name == kEpisodeWindow) continue;  // FromCheckpoint knows of it
    const auto found = saved.find(t.name);
    if (found == saved.end() || found->second.sizes() != t.tensor.sizes() ||
        found->second.dtype() != t.tensor.dtype()) {
      std::string has = "no such tensor";
      if (found != saved.end()) {
        has = absl::StrCat("shape ", c10::str(found->second.sizes()));
      }
      return absl::FailedPreconditionError(
          absl::StrCat("the checkpoint is of another network: tensor \"",
                       t.name, "\" should have shape ",
                       c10::str(t.tensor.sizes()), ", the checkpoint has ", has,
                       "; resume with the configuration it was made with"));
    }
  }
  for (const NamedTensor& t : live) {
    if (t.name != kEpisodeWindow) t.tensor.copy_(saved.at(t.name));
  }
  return absl::OkStatus();
}

absl::Status ShareTensors(Collective* collective, int source,
                          const std::vector<NamedTensor>& tensors) {
  torch::NoGradGuard no_grad;
  for (const NamedTensor& t : tensors) {
    torch::Tensor whole = t.tensor.contiguous();
    RETURN_IF_ERROR(collective->Broadcast(whole, source));
    if (!whole.is_same(t.tensor)) t.tensor.copy_(whole);
  }
  return absl::OkStatus();
}

absl::Status ShareProgress(Collective* collective, int source,
                           Progress* progress) {
  std::vector<int64_t> words;
  ForEachField(*progress, [&](const char*, auto& value) {
    words.push_back(std::bit_cast<int64_t>(value));
  });
  RETURN_IF_ERROR(ShareWords(collective, source, &words));
  size_t i = 0;
  ForEachField(*progress, [&](const char*, auto& value) {
    value = std::bit_cast<std::decay_t<decltype(value)>>(words[i++]);
  });
  std::string changes = progress->changes.SerializeAsString();
  RETURN_IF_ERROR(ShareBytes(collective, source, &changes));
  if (!progress->changes.ParseFromString(changes)) {
    return absl::InternalError("a peer's changes do not read back");
  }
  return absl::OkStatus();
}

size_t WordsFor(size_t letters) { return (letters + 7) / 8; }

// One step of a digest: for either argument fixed, no two of the other give the
// same.
uint64_t Mixed(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * 0x9e3779b97f4a7c15;
  return digest ^ (digest >> 32);
}

// Four lanes, so that multiplications need not wait for each other.
uint64_t DigestOf(const char* bytes, size_t size, uint64_t seed) {
  uint64_t lane[4] = {seed, seed + 1, seed + 2, seed + 3};
  size_t at = 0;
  for (; at + 32 <= size; at += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + at, 32);
    for (int i = 0; i < 4; ++i) lane[i] = Mixed(lane[i], words[i]);
  }
  for (; at < size; ++at) {
    lane[0] = Mixed(lane[0], static_cast<unsigned char>(bytes[at]));
  }
  uint64_t digest = size;
  for (const uint64_t one : lane) digest = Mixed(digest, one);
  return digest;
}

}  // namespace

std::map<std::string, std::string> ToText(const Progress& progress) {
  std::map<std::string, std::string> text;
  ForEachField(progress, [&](const char* name, const auto& value) {
    text[name] = Text(value);
  });
  return text;
}

absl::StatusOr<Progress> ProgressFromText(
    const std::map<std::string, std::string>& text) {
  Progress progress;
  absl::Status status;
  ForEachField(progress, [&](const char* name, auto& value) {
    const auto found = text.find(name);
    if (found == text.end() && absl::c_linear_search(kCountedLater, name)) {
      return;
    }
    if (found == text.end() || !Parse(found->second, &value)) {
      status = absl::DataLossError(absl::StrCat(
          "the checkpoint's progress has no number \"", name, "\""));
    }
  });
  if (!status.ok()) return status;
  return progress;
}

absl::StatusOr<Progress> SavedProgress(const std::string& path) {
  ASSIGN_OR_RETURN(const auto text, LoadCheckpointProgress(path));
  return ProgressFromText(text);
}

std::vector<NamedTensor> LiveState::State() const {
  std::vector<NamedTensor> state = algorithm_->State();
  if (normalizer_->observations()) {
    state.push_back({kObservationSums, normalizer_->observation_sums()});
  }
  if (normalizer_->rewards()) {
    state.push_back({"normalizer.reward_sums", normalizer_->reward_sums()});
  }
  if (episodes_ != nullptr) {
    state.push_back({kEpisodeWindow, episodes_->tensor()});
  }
  if (self_play_ != nullptr) {
    for (NamedTensor& t : self_play_->State()) state.push_back(std::move(t));
  }
  return state;
}

std::vector<NamedTensor> LiveState::PlayState() const {
  std::vector<NamedTensor> state;
  if (normalizer_->observations()) {
    state.push_back({kObservationSums, normalizer_->observation_sums()});
  }
  if (self_play_ != nullptr) {
    for (NamedTensor& t : self_play_->State()) state.push_back(std::move(t));
  }
  return state;
}

void LiveState::WasReplaced() const {
  algorithm_->StateWasReplaced();
  normalizer_->SumsWereReplaced();
  if (self_play_ != nullptr) self_play_->StateWasReplaced();
}

void TakeSnapshot(const LiveState& live, const Progress& progress,
                  Snapshot* snapshot) {
  snapshot->progress = progress;
  CopyInto(live.Weights(), &snapshot->weights);
  CopyInto(live.State(), &snapshot->state);
}

void RestoreSnapshot(const Snapshot& snapshot, const LiveState& live,
                     Progress* progress) {
  CopyBack(snapshot.weights, live.Weights());
  CopyBack(snapshot.state, live.State());
  *progress = snapshot.progress;
  live.WasReplaced();
}

std::string LayoutOf(const LiveState& live) {
  std::string layout;
  for (const std::vector<NamedTensor>& tensors :
       {live.Weights(), live.State()}) {
    for (const NamedTensor& t : tensors) {
      absl::StrAppend(&layout, t.name, " ",
                      c10::toString(t.tensor.scalar_type()), " ",
                      c10::str(t.tensor.sizes()), "\n");
    }
  }
  return layout;
}

absl::Status ShareState(Collective* collective, int source,
                        const LiveState& live, Progress* progress) {
  if (!collective->has_group()) return absl::OkStatus();
  RETURN_IF_ERROR(ShareTensors(collective, source, live.Weights()));
  RETURN_IF_ERROR(ShareTensors(collective, source, live.State()));
  RETURN_IF_ERROR(ShareProgress(collective, source, progress));
  live.WasReplaced();
  return absl::OkStatus();
}

absl::Status ShareWords(Collective* collective, int source,
                        std::vector<int64_t>* words) {
  return collective->Broadcast(
      torch::from_blob(words->data(), {static_cast<int64_t>(words->size())},
                       torch::kInt64),
      source);
}

absl::Status ShareBytes(Collective* collective, int source,
                        std::string* bytes) {
  std::vector<int64_t> size = {static_cast<int64_t>(bytes->size())};
  RETURN_IF_ERROR(ShareWords(collective, source, &size));
  if (size[0] == 0) {
    bytes->clear();
    return absl::OkStatus();
  }
  bytes->resize(size[0]);
  std::vector<int64_t> words(WordsFor(bytes->size()));
  std::memcpy(words.data(), bytes->data(), bytes->size());
  RETURN_IF_ERROR(ShareWords(collective, source, &words));
  std::memcpy(bytes->data(), words.data(), bytes->size());
  return absl::OkStatus();
}

absl::Status ShareSnapshot(Collective* collective, int source,
                           const LiveState& live, Snapshot* snapshot) {
  if (collective->world_size() == 1) return absl::OkStatus();
  if (snapshot->weights.empty()) {
    TakeSnapshot(live, snapshot->progress, snapshot);
  }
  RETURN_IF_ERROR(ShareTensors(collective, source, snapshot->weights));
  RETURN_IF_ERROR(ShareTensors(collective, source, snapshot->state));
  return ShareProgress(collective, source, &snapshot->progress);
}

absl::Status ShareMetrics(Collective* collective, int source,
                          std::vector<Metric>* metrics) {
  if (collective->world_size() == 1) return absl::OkStatus();
  // Of each metric: its value, the size of its name, and that, 8 to a word.
  std::vector<int64_t> words;
  for (const Metric& metric : *metrics) {
    words.push_back(std::bit_cast<int64_t>(metric.value));
    words.push_back(static_cast<int64_t>(metric.name.size()));
    const size_t at = words.size();
    words.resize(at + WordsFor(metric.name.size()), 0);
    std::memcpy(&words[at], metric.name.data(), metric.name.size());
  }
  std::vector<int64_t> size = {static_cast<int64_t>(words.size())};
  RETURN_IF_ERROR(ShareWords(collective, source, &size));
  words.resize(size[0]);
  if (words.empty()) {
    metrics->clear();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ShareWords(collective, source, &words));
  if (collective->rank() == source) return absl::OkStatus();
  metrics->clear();
  for (size_t i = 0; i < words.size();) {
    const double value = std::bit_cast<double>(words[i++]);
    const size_t letters = words[i++];
    metrics->push_back(
        {std::string(reinterpret_cast<const char*>(&words[i]), letters),
         value});
    i += WordsFor(letters);
  }
  return absl::OkStatus();
}

CheckpointData ToCheckpoint(const Snapshot& snapshot,
                            const v1::RunConfig& config) {
  CheckpointData data;
  data.weights = ToMap(snapshot.weights);
  data.state = ToMap(snapshot.state);
  data.progress = ToText(snapshot.progress);
  data.config = config;
  return data;
}

absl::Status FromCheckpoint(const CheckpointData& data, const LiveState& live,
                            Progress* progress) {
  v1::Changes changes = std::move(progress->changes);
  ASSIGN_OR_RETURN(*progress, ProgressFromText(data.progress));
  progress->changes = std::move(changes);
  RETURN_IF_ERROR(LoadInto(data.weights, live.Weights()));
  RETURN_IF_ERROR(LoadInto(data.state, live.State()));
  // Its size may have changed; a checkpoint without one begins anew.
  const auto episodes = data.state.find(kEpisodeWindow);
  if (live.episodes() != nullptr && episodes != data.state.end()) {
    RETURN_IF_ERROR(live.episodes()->Load(episodes->second));
  }
  live.WasReplaced();
  return absl::OkStatus();
}

absl::Status PolicyFromCheckpoint(const CheckpointData& data,
                                  const LiveState& live, Progress* progress) {
  ASSIGN_OR_RETURN(*progress, ProgressFromText(data.progress));
  const std::vector<NamedTensor> state = live.PlayState();
  for (const NamedTensor& t : state) {
    if (t.name == kObservationSums || data.state.contains(t.name)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint lacks the earlier selves that its run plays against "
        "(tensor \"",
        t.name,
        "\"), as what `flotilla push` writes does; name the run's folder or a "
        "checkpoint in it"));
  }
  RETURN_IF_ERROR(LoadInto(data.weights, live.Weights()));
  RETURN_IF_ERROR(LoadInto(data.state, state));
  live.WasReplaced();
  return absl::OkStatus();
}

std::string WeightsSha256(const LiveState& live) {
  std::vector<torch::Tensor> tensors;
  for (const NamedTensor& t : live.Weights()) {
    tensors.push_back(t.tensor.to(torch::kCPU));
  }
  return ParametersSha256(tensors);
}

uint64_t WeightsDigest(const LiveState& live) {
  uint64_t digest = 0;
  for (const NamedTensor& t : live.Weights()) {
    const torch::Tensor whole = t.tensor.detach().to(torch::kCPU).contiguous();
    digest = DigestOf(reinterpret_cast<const char*>(HostBytes(whole)),
                      whole.nbytes(), digest);
  }
  return digest;
}

}  // namespace flotilla
