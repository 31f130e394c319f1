#include "learner/training/run_state.h"

#include <bit>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Every field of Progress, once: `visit` gets its name and a reference.
template <typename P, typename Visit>
void ForEachField(P& p, Visit visit) {
  visit("update", p.update);
  visit("global_step", p.global_step);
  visit("episodes", p.episodes);
  visit("evaluation_round", p.evaluation_round);
  visit("env_incarnation", p.env_incarnation);
  visit("env_restarts", p.env_restarts);
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
  return absl::SimpleAtod(text, value);
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
    (*to)[i].tensor.copy_(from[i].tensor);
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
  for (const NamedTensor& t : live) t.tensor.copy_(saved.at(t.name));
  return absl::OkStatus();
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
    if (found == text.end() || !Parse(found->second, &value)) {
      status = absl::DataLossError(absl::StrCat(
          "the checkpoint's progress has no number \"", name, "\""));
    }
  });
  if (!status.ok()) return status;
  return progress;
}

std::vector<NamedTensor> LiveState::State() const {
  std::vector<NamedTensor> state = algorithm_->State();
  if (normalizer_->observations()) {
    state.push_back(
        {"normalizer.observation_sums", normalizer_->observation_sums()});
  }
  if (normalizer_->rewards()) {
    state.push_back({"normalizer.reward_sums", normalizer_->reward_sums()});
  }
  return state;
}

void LiveState::WasReplaced() const {
  algorithm_->StateWasReplaced();
  normalizer_->SumsWereReplaced();
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

absl::Status ShareState(Collective* collective, int source,
                        const LiveState& live, Progress* progress) {
  if (collective->world_size() == 1) return absl::OkStatus();
  torch::NoGradGuard no_grad;
  for (const auto& tensors : {live.Weights(), live.State()}) {
    for (const NamedTensor& t : tensors) {
      torch::Tensor whole = t.tensor.contiguous();
      RETURN_IF_ERROR(collective->Broadcast(whole, source));
      if (!whole.is_same(t.tensor)) t.tensor.copy_(whole);
    }
  }
  std::vector<int64_t> words;
  ForEachField(*progress, [&](const char*, auto& value) {
    words.push_back(std::bit_cast<int64_t>(value));
  });
  RETURN_IF_ERROR(collective->Broadcast(
      torch::from_blob(words.data(), {static_cast<int64_t>(words.size())},
                       torch::kInt64),
      source));
  size_t i = 0;
  ForEachField(*progress, [&](const char*, auto& value) {
    value = std::bit_cast<std::decay_t<decltype(value)>>(words[i++]);
  });
  live.WasReplaced();
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
  ASSIGN_OR_RETURN(*progress, ProgressFromText(data.progress));
  RETURN_IF_ERROR(LoadInto(data.weights, live.Weights()));
  RETURN_IF_ERROR(LoadInto(data.state, live.State()));
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

}  // namespace flotilla
