#include "learner/algo/algorithm_plugin.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/plugin/shared_library.h"
#include "services/base/status_macros.h"

namespace flotilla {

absl::Status LoadCustomAlgorithm(const v1::RunConfig& config) {
  const std::string& path = config.custom().library();
  if (!config.has_custom() || path.empty()) return absl::OkStatus();
  const std::string title = absl::StrCat("custom.library \"", path, "\"");
  ASSIGN_OR_RETURN(void* const function,
                   LoadFunction(title, path, "flotilla_algorithm"));
  AlgorithmPlugin plugin;
  reinterpret_cast<void (*)(AlgorithmPlugin*)>(function)(&plugin);
  if (plugin.traits == nullptr || plugin.make == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(title, " has an algorithm without traits or maker"));
  }
  RETURN_IF_ERROR(RegisterAlgorithm(std::move(plugin.traits)));
  return RegisterAlgorithmFactory("custom", std::move(plugin.make));
}

}  // namespace flotilla
