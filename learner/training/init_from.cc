#include "learner/training/init_from.h"

#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "learner/checkpoint/checkpoint.h"
#include "services/base/run_folder.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Weights that learned to see scaled observations are lost without the scale.
void TakeObservationSums(const TensorMap& state, const LiveState& live,
                         InitReport* report) {
  std::optional<torch::Tensor> here;
  for (const NamedTensor& t : live.PlayState()) {
    if (t.name == kObservationSums) here = t.tensor;
  }
  const auto there = state.find(kObservationSums);
  const bool has = there != state.end();
  if (!here && !has) return;
  if (here && has && here->sizes() == there->second.sizes()) {
    here->copy_(there->second);
    report->observations = (*here)[0].item<int64_t>();
    return;
  }
  const auto shape = [](const torch::Tensor& t) { return c10::str(t.sizes()); };
  report->not_taken.push_back(absl::StrCat(
      kObservationSums, ": ", here ? shape(*here) : "none", " here, ",
      has ? shape(there->second) : "none", " there; ",
      here ? "model.normalize_observations scales observations from anew, "
             "which the weights did not learn with"
           : "the weights learned with scaled observations: set "
             "model.normalize_observations=true"));
}

}  // namespace

absl::StatusOr<InitReport> InitializeFrom(const std::string& path,
                                          const LiveState& live) {
  std::error_code ignored;
  const std::string latest = RunFolder(path).latest_checkpoint();
  ASSIGN_OR_RETURN(
      const CheckpointData data,
      LoadCheckpoint(std::filesystem::exists(latest, ignored) ? latest : path));
  torch::NoGradGuard no_grad;
  InitReport report;
  std::set<std::string> taken;
  for (const NamedTensor& here : live.Weights()) {
    const auto there = data.weights.find(here.name);
    if (there == data.weights.end()) {
      report.not_taken.push_back(absl::StrCat(
          here.name, ": ", c10::str(here.tensor.sizes()), " here, none there"));
    } else if (there->second.sizes() != here.tensor.sizes()) {
      report.not_taken.push_back(
          absl::StrCat(here.name, ": ", c10::str(here.tensor.sizes()),
                       " here, ", c10::str(there->second.sizes()), " there"));
    } else {
      here.tensor.copy_(there->second);
      taken.insert(here.name);
    }
  }
  for (const auto& [name, tensor] : data.weights) {
    bool known = false;
    for (const NamedTensor& here : live.Weights()) {
      known |= here.name == name;
    }
    if (known) continue;
    report.not_taken.push_back(absl::StrCat(
        name, ": none here, ", c10::str(tensor.sizes()), " there"));
  }
  report.taken = static_cast<int>(taken.size());
  if (report.taken == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.init_from ", path,
                     " has no weight of this network's: no name and shape "
                     "match; the first: ",
                     report.not_taken[0]));
  }
  for (const NamedTensor& copy : live.State()) {
    constexpr absl::string_view kTarget = "target.";
    if (copy.name.rfind(std::string(kTarget), 0) != 0) continue;
    const std::string name = copy.name.substr(kTarget.size());
    if (taken.count(name) > 0) copy.tensor.copy_(data.weights.at(name));
  }
  TakeObservationSums(data.state, live, &report);
  live.WasReplaced();
  return report;
}

}  // namespace flotilla
