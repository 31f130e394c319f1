#include "services/algorithms/algorithm_traits.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/algorithms/built_in.h"
#include "services/base/config.h"
#include "services/base/mutex.h"

namespace flotilla {
namespace {

// What a configuration without an algorithm is taken for until it is refused.
class NoAlgorithm : public AlgorithmTraits {
 public:
  std::string name() const override { return "none"; }

  double Discount(const v1::RunConfig&) const override { return 0.99; }

  UpdatePlan PlanOf(const v1::RunConfig& config) const override {
    return {.minibatch =
                int64_t{config.rollout().length()} * config.env().num_envs(),
            .gradient_steps = 1};
  }

  double StepsAtOnce(const v1::RunConfig& config) const override {
    return static_cast<double>(PlanOf(config).minibatch);
  }

  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override {
    const std::string chosen = AlgorithmName(config);
    std::vector<std::string> rows = AlgorithmNames();
    if (chosen != name()) {
      problems->push_back(
          {"algorithm", absl::StrCat("is ", chosen, ", which is not here; use ",
                                     absl::StrJoin(rows, ", "))});
      return;
    }
    for (std::string& row : rows) row = absl::StrCat("\"", row, " {}\"");
    const std::string last = rows.back();
    rows.pop_back();
    problems->push_back(
        {"algorithm", absl::StrCat("is not chosen; add ",
                                   absl::StrJoin(rows, ", "), " or ", last)});
  }
};

// Rows are added or replaced and never removed, so that pointers to them stay
// good.
class Table {
 public:
  Table() : rows_(BuiltInAlgorithms()) {}

  absl::Status Add(std::unique_ptr<const AlgorithmTraits> row) {
    MutexLock lock(&mu_);
    for (auto& there : rows_) {
      if (there->name() != row->name()) continue;
      if (there->StandsIn()) {
        there.swap(row);
        replaced_.push_back(std::move(row));
        return absl::OkStatus();
      }
      return absl::AlreadyExistsError(
          absl::StrCat("there is an algorithm \"", row->name(), "\" already"));
    }
    rows_.push_back(std::move(row));
    return absl::OkStatus();
  }

  const AlgorithmTraits* Find(const std::string& name) const {
    MutexLock lock(&mu_);
    return FindLocked(name);
  }

  std::vector<const AlgorithmTraits*> Rows() const {
    MutexLock lock(&mu_);
    std::vector<const AlgorithmTraits*> rows;
    for (const auto& row : rows_) rows.push_back(row.get());
    return rows;
  }

 private:
  const AlgorithmTraits* FindLocked(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& row : rows_) {
      if (row->name() == name) return row.get();
    }
    return nullptr;
  }

  mutable Mutex mu_;
  std::vector<std::unique_ptr<const AlgorithmTraits>> rows_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<const AlgorithmTraits>> replaced_
      ABSL_GUARDED_BY(mu_);
};

// Never destroyed: a row's code may be in a library that is gone by then.
Table& TheTable() {
  static Table& table = *new Table;
  return table;
}

bool Takes(const AlgorithmTraits& algorithm, bool discrete, bool continuous) {
  return (!discrete || algorithm.TakesDiscreteActions()) &&
         (!continuous || algorithm.TakesContinuousActions());
}

}  // namespace

std::string AlgorithmTraits::BoundsProblem(std::span<const float>,
                                           std::span<const float>) const {
  return "";
}

Collection AlgorithmTraits::CollectionOf(const v1::RunConfig&) const {
  return Collection::kWhenAsked;
}

bool AlgorithmTraits::BootstrapsTruncation(const v1::RunConfig&) const {
  return true;
}

int AlgorithmTraits::Trunks(const v1::RunConfig&, bool) const { return 1; }

ReplayPlan AlgorithmTraits::ReplayOf(const v1::RunConfig&) const { return {}; }

void AlgorithmTraits::FindProblems(const v1::RunConfig&,
                                   std::vector<ConfigProblem>*) const {}

absl::Status RegisterAlgorithm(std::unique_ptr<const AlgorithmTraits> row) {
  const std::string name = row->name();
  if (name.empty() || name == NoAlgorithm().name()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name,
                     "\" is not a name for an algorithm; use that of its "
                     "options in RunConfig"));
  }
  if (!row->TakesDiscreteActions() && !row->TakesContinuousActions()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the algorithm \"", name,
                     "\" takes neither discrete nor continuous actions"));
  }
  return TheTable().Add(std::move(row));
}

const AlgorithmTraits* FindAlgorithm(const std::string& name) {
  return TheTable().Find(name);
}

std::vector<std::string> AlgorithmNames() {
  std::vector<std::string> names;
  for (const AlgorithmTraits* row : TheTable().Rows()) {
    names.push_back(row->name());
  }
  return names;
}

const AlgorithmTraits& TraitsOf(const v1::RunConfig& config) {
  static const NoAlgorithm& none = *new NoAlgorithm;
  const AlgorithmTraits* row = FindAlgorithm(AlgorithmName(config));
  return row == nullptr ? none : *row;
}

std::string ActionsProblem(const AlgorithmTraits& algorithm, bool discrete,
                           std::span<const float> low,
                           std::span<const float> high) {
  const bool continuous = !low.empty();
  const bool takes = Takes(algorithm, discrete, continuous);
  std::string problem;
  if (takes && continuous) problem = algorithm.BoundsProblem(low, high);
  if (takes && problem.empty()) return "";
  if (!takes) {
    const bool needs_discrete = !algorithm.TakesContinuousActions();
    problem = absl::StrCat(algorithm.name(), " needs ",
                           needs_discrete ? "discrete" : "continuous",
                           " actions, and this environment's are ",
                           discrete && continuous ? "partly " : "",
                           needs_discrete ? "continuous" : "discrete");
  }
  for (const AlgorithmTraits* row : TheTable().Rows()) {
    if (row->StandsIn() || !Takes(*row, discrete, continuous) ||
        (continuous && !row->BoundsProblem(low, high).empty())) {
      continue;
    }
    return absl::StrCat(problem, "; choose ", row->name());
  }
  return problem;
}

}  // namespace flotilla
