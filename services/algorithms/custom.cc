#include "services/algorithms/custom.h"

#include <cmath>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "services/algorithms/built_in.h"
#include "services/algorithms/minibatches.h"
#include "services/base/nearest_name.h"

namespace flotilla {
namespace {

bool IsNumber(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

bool IsFlag(const std::string& text) {
  return text == "true" || text == "false";
}

// "" if `value` is of the type that `option` has by default.
std::string TypeProblem(const CustomOption& option, const std::string& value) {
  double ignored;
  if (IsFlag(option.value)) {
    return IsFlag(value) ? "" : "want true or false";
  }
  if (IsNumber(option.value, &ignored)) {
    return IsNumber(value, &ignored) ? "" : "want a number";
  }
  return "";
}

void RequireLibrary(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) {
  Require(!config.custom().library().empty(), "custom.library",
          "is not set; it names the shared library of an algorithm (`flotilla "
          "new algorithm DIR` writes the project of one)",
          problems);
}

// The row until a library is loaded, and in programs that load none: what the
// options may be, only a learner knows.
class NotLoaded : public CustomAlgorithm {
 public:
  std::vector<CustomOption> Options() const override { return {}; }

  double Discount(const v1::RunConfig&) const override { return 0.99; }

  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override {
    RequireLibrary(config, problems);
  }
};

}  // namespace

double CustomAlgorithm::Discount(const v1::RunConfig& config) const {
  for (const CustomOption& option : Options()) {
    if (option.name == "discount") return Number(config, option.name);
  }
  return 0.99;
}

UpdatePlan CustomAlgorithm::PlanOf(const v1::RunConfig& config) const {
  return PlanOfMinibatches(config, /*epochs=*/1, /*minibatches=*/1);
}

double CustomAlgorithm::StepsAtOnce(const v1::RunConfig& config) const {
  return MinibatchSteps(config, /*minibatches=*/1);
}

int CustomAlgorithm::Trunks(const v1::RunConfig& config, bool may_split) const {
  return PolicyAndValueTrunks(config, may_split);
}

void CustomAlgorithm::FindProblems(const v1::RunConfig& config,
                                   std::vector<ConfigProblem>* problems) const {
  RequireLibrary(config, problems);
  const std::vector<CustomOption> declared = Options();
  std::vector<std::string> names;
  for (const CustomOption& option : declared) names.push_back(option.name);
  const std::map<std::string, std::string> given(
      config.custom().options().begin(), config.custom().options().end());
  for (const auto& [name, value] : given) {
    const std::string path = absl::StrCat("custom.options.", name);
    const CustomOption* known = nullptr;
    for (const CustomOption& option : declared) {
      if (option.name == name) known = &option;
    }
    if (known == nullptr) {
      problems->push_back(
          {path, absl::StrCat(
                     "is no option of the algorithm in ",
                     config.custom().library(), DidYouMean(name, names), " (",
                     names.empty() ? "it has none"
                                   : "it has " + absl::StrJoin(names, ", "),
                     ")")});
      continue;
    }
    const std::string problem = TypeProblem(*known, value);
    Require(problem.empty(), path,
            absl::StrCat("is \"", value, "\"; ", problem), problems);
  }
}

std::string CustomAlgorithm::Text(const v1::RunConfig& config,
                                  const std::string& option) const {
  for (const CustomOption& declared : Options()) {
    if (declared.name != option) continue;
    const auto given = config.custom().options().find(option);
    return given == config.custom().options().end() ? declared.value
                                                    : given->second;
  }
  LOG(FATAL) << "the algorithm declares no option \"" << option << "\"";
}

double CustomAlgorithm::Number(const v1::RunConfig& config,
                               const std::string& option) const {
  const std::string text = Text(config, option);
  double value = 0;
  CHECK(IsNumber(text, &value))
      << "custom.options." << option << " is \"" << text << "\", no number";
  return value;
}

bool CustomAlgorithm::Flag(const v1::RunConfig& config,
                           const std::string& option) const {
  const std::string text = Text(config, option);
  CHECK(IsFlag(text)) << "custom.options." << option << " is \"" << text
                      << "\", neither true nor false";
  return text == "true";
}

std::unique_ptr<const AlgorithmTraits> CustomTraits() {
  return std::make_unique<NotLoaded>();
}

}  // namespace flotilla
