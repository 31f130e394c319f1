#include "services/algorithms/replay_traits.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

// Steps of a replay are numbered in 32 bits, some beside those that it holds too.
constexpr int64_t kMaxCapacity = 2'000'000'000;

}  // namespace

double ReplayTraits::StepsAtOnce(const v1::RunConfig& config) const {
  return static_cast<double>(SizesOf(config).batch);
}

// Beside observations, 12 bytes a step and two nodes of the sum tree.
ReplayPlan ReplayTraits::ReplayOf(const v1::RunConfig& config) const {
  const Sizes sizes = SizesOf(config);
  return {.capacity = sizes.capacity,
          .step_bytes = 12 + 32,
          .learning_starts = sizes.learning_starts};
}

std::vector<std::string> ReplayTraits::GlobalSizes() const {
  return {"batch_size", "replay_capacity"};
}

void ReplayTraits::FindProblems(const v1::RunConfig& config,
                                std::vector<ConfigProblem>* problems) const {
  const v1::ModelConfig& model = config.model();
  Require(model.recurrent() == v1::NONE, "model.recurrent",
          absl::StrCat("is ", v1::RecurrentCell_Name(model.recurrent()), "; ",
                       name(), " has no recurrent form: choose ppo, or NONE"),
          problems);
  const std::string own = OwnNetworkField(model);
  Require(own.empty(), own,
          absl::StrCat("is set, but ", name(),
                       " builds its own network; choose ppo or impala, or "
                       "leave it out"),
          problems);
  const std::pair<std::string, bool> scales[] = {
      {"model.normalize_observations", model.normalize_observations()},
      {"model.normalize_rewards", model.normalize_rewards()}};
  for (const auto& [path, on] : scales) {
    Require(!on, path,
            absl::StrCat("is true, but replay would mix what was scaled at "
                         "different times; ",
                         name(), " needs false"),
            problems);
  }
  const Sizes sizes = SizesOf(config);
  Require(
      sizes.capacity >= sizes.batch, absl::StrCat(name(), ".replay_capacity"),
      absl::StrCat("is ", sizes.capacity, "; it must hold at least one batch, ",
                   name(), ".batch_size = ", sizes.batch),
      problems);
  // What is of all learners together is looked at again as a learner's share.
  Require(sizes.capacity <= kMaxCapacity ||
              config.distributed().sizes() == v1::GLOBAL,
          absl::StrCat(name(), ".replay_capacity"),
          absl::StrCat("is ", sizes.capacity, "; a learner's replay holds ",
                       kMaxCapacity, " transitions at most: use that or less"),
          problems);
}

}  // namespace flotilla
