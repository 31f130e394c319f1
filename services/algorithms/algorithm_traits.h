#ifndef FLOTILLA_SERVICES_ALGORITHMS_ALGORITHM_TRAITS_H_
#define FLOTILLA_SERVICES_ALGORITHMS_ALGORITHM_TRAITS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "services/base/collection.h"
#include "services/base/config_problem.h"

// The table of algorithms, as far as it needs no Torch: whatever a program wants
// to know of one without running it. learner/algo/algorithm_table.h is its other
// half, which makes them.
//
// A new algorithm of this tree is its option message in RunConfig's `algorithm`, a file beside
// ppo.cc with a line in built_in.cc, and a factory with a line in
// algorithm_table.cc.

namespace flotilla {

// What a learner does in one update.
struct UpdatePlan {
  int64_t minibatch = 0;       // samples of a gradient step
  int64_t gradient_steps = 0;  // unless it ends early
};

// What a learner keeps of what it has seen. No replay: nothing.
struct ReplayPlan {
  int64_t capacity = 0;   // transitions
  double step_bytes = 0;  // of each, beside its observation
  int64_t learning_starts =
      0;  // steps of all learners before it is learned from
};

// One row of the table. `config` has sizes of one learner, and chooses this
// algorithm.
//
// Thread-safe: rows do not change.
class AlgorithmTraits {
 public:
  virtual ~AlgorithmTraits() = default;

  // "ppo": also the name of its options' field in RunConfig.
  virtual std::string name() const = 0;

  // Whether it holds the place of a row that a library brings (custom.h): one of
  // the same name takes it, and nobody is advised to choose it.
  virtual bool StandsIn() const { return false; }

  // ---- What it plays and collects

  // Of these it takes at least one; with both, also both together.
  virtual bool TakesDiscreteActions() const { return true; }
  virtual bool TakesContinuousActions() const { return true; }

  // What is wrong with continuous values that are bounded like this, infinite
  // where there is no bound; "" if nothing is. Takes them all by default.
  virtual std::string BoundsProblem(std::span<const float> low,
                                    std::span<const float> high) const;

  // Of a reward one step later: gamma.
  virtual double Discount(const v1::RunConfig& config) const = 0;

  // When rollouts are collected, if rollout.overlap_one_update does not say.
  virtual Collection CollectionOf(const v1::RunConfig& config) const;

  // Whether the collector values the observation that a time limit ended an
  // episode with. If not, truncation counts as termination.
  virtual bool BootstrapsTruncation(const v1::RunConfig& config) const;

  // ---- What it takes

  virtual UpdatePlan PlanOf(const v1::RunConfig& config) const = 0;

  // Steps that go through the network at once: a minibatch's, or part of them,
  // or more. A fraction where minibatches do not divide the batch.
  virtual double StepsAtOnce(const v1::RunConfig& config) const = 0;

  // How many trunks its model has. `may_split`: whether the model has a form
  // with one for the policy and one for values.
  virtual int Trunks(const v1::RunConfig& config, bool may_split) const;

  virtual ReplayPlan ReplayOf(const v1::RunConfig& config) const;

  // ---- What it asks of a configuration

  // Adds what is wrong, beside numbers out of their range.
  virtual void FindProblems(const v1::RunConfig& config,
                            std::vector<ConfigProblem>* problems) const;

  // Integer fields of its option message that distributed.sizes GLOBAL divides
  // among learners, beside env.num_envs: "batch_size".
  virtual std::vector<std::string> GlobalSizes() const { return {}; }
};

// Adds a row, for as long as the program runs; in the place of one that stands for
// it, if that says so. The other built-in rows are always there. Thread-safe, as
// all below.
// Errors: kAlreadyExists if the name is taken; kInvalidArgument if there is none,
// or if it takes no actions.
absl::Status RegisterAlgorithm(std::unique_ptr<const AlgorithmTraits> row);

// Null if there is no such algorithm.
const AlgorithmTraits* FindAlgorithm(const std::string& name);

// In the order in which they came: "ppo", "dqn", "impala", "sac".
std::vector<std::string> AlgorithmNames();

// The row that `config` chooses. If it chooses none, or one that is not in the
// table, a row of plain defaults whose only problem is just that.
const AlgorithmTraits& TraitsOf(const v1::RunConfig& config);

// "" if `algorithm` takes the actions of an environment that has `discrete`
// ones, continuous ones bounded by `low` and `high` (none: empty), or both; else
// what it needs, and an algorithm that takes them.
std::string ActionsProblem(const AlgorithmTraits& algorithm, bool discrete,
                           std::span<const float> low,
                           std::span<const float> high);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ALGORITHMS_ALGORITHM_TRAITS_H_
