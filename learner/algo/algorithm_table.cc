#include "learner/algo/algorithm_table.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/algo/dqn.h"
#include "learner/algo/impala.h"
#include "learner/algo/ppo.h"
#include "learner/algo/sac.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"
#include "services/base/mutex.h"

namespace flotilla {
namespace {

class Factories {
 public:
  absl::Status Add(const AlgorithmTraits& row, AlgorithmFactory factory) {
    const std::string name = row.name();
    MutexLock lock(&mu_);
    if (row.StandsIn()) {
      factories_[name] = std::move(factory);
    } else if (!factories_.emplace(name, std::move(factory)).second) {
      return absl::AlreadyExistsError(
          absl::StrCat("the algorithm \"", name, "\" has a factory already"));
    }
    return absl::OkStatus();
  }

  // Null if there is none. A copy: it runs without the lock.
  AlgorithmFactory Find(const std::string& name) const {
    MutexLock lock(&mu_);
    const auto found = factories_.find(name);
    return found == factories_.end() ? nullptr : found->second;
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, AlgorithmFactory> factories_ ABSL_GUARDED_BY(mu_) = {
      {"ppo", MakePpo},
      {"dqn", MakeDqn},
      {"impala", MakeImpala},
      {"sac", MakeSac},
  };
};

// Never destroyed: a factory's code may be in a library that is gone by then.
Factories& TheFactories() {
  static Factories& factories = *new Factories;
  return factories;
}

}  // namespace

absl::Status RegisterAlgorithmFactory(const std::string& name,
                                      AlgorithmFactory factory) {
  const AlgorithmTraits* const row = FindAlgorithm(name);
  if (row == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no algorithm \"", name,
                     "\" to make; call RegisterAlgorithm first"));
  }
  return TheFactories().Add(*row, std::move(factory));
}

absl::StatusOr<std::unique_ptr<Algorithm>> MakeAlgorithm(
    const v1::RunConfig& config, const Spaces& spaces, torch::Device device) {
  const std::string name = AlgorithmName(config);
  if (name == "none") {
    return absl::InvalidArgumentError(
        "the configuration names no algorithm; add ppo { }");
  }
  const AlgorithmFactory factory = TheFactories().Find(name);
  if (factory == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("this learner cannot make the algorithm \"", name, "\""));
  }
  return factory(config, spaces, device);
}

}  // namespace flotilla
