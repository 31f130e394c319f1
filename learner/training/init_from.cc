#include "learner/training/init_from.h"

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "learner/checkpoint/checkpoint.h"
#include "services/base/run_folder.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::StatusOr<InitReport> InitializeFrom(const std::string& path,
                                          Algorithm* algorithm) {
  std::error_code ignored;
  const std::string latest = RunFolder(path).latest_checkpoint();
  ASSIGN_OR_RETURN(
      const CheckpointData data,
      LoadCheckpoint(std::filesystem::exists(latest, ignored) ? latest : path));
  torch::NoGradGuard no_grad;
  InitReport report;
  std::set<std::string> taken;
  for (const NamedTensor& here : algorithm->Weights()) {
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
    for (const NamedTensor& here : algorithm->Weights()) {
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
  for (const NamedTensor& copy : algorithm->State()) {
    constexpr absl::string_view kTarget = "target.";
    if (copy.name.rfind(std::string(kTarget), 0) != 0) continue;
    const std::string name = copy.name.substr(kTarget.size());
    if (taken.count(name) > 0) copy.tensor.copy_(data.weights.at(name));
  }
  algorithm->StateWasReplaced();
  return report;
}

}  // namespace flotilla
