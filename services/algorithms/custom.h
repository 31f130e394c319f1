#ifndef FLOTILLA_SERVICES_ALGORITHMS_CUSTOM_H_
#define FLOTILLA_SERVICES_ALGORITHMS_CUSTOM_H_

#include <string>
#include <vector>

#include "services/algorithms/algorithm_traits.h"

namespace flotilla {

// What custom.options may hold.
struct CustomOption {
  std::string name;   // "entropy_cost"
  std::string value;  // where the configuration has none; "" for a text
  std::string help;   // a line for people
};

// The row of an algorithm that a library of yours brings: say what its options
// are, and override what is not as it is here. It learns from a rollout once,
// whole, by policy and value.
//
// Immutable, as all rows are.
class CustomAlgorithm : public AlgorithmTraits {
 public:
  std::string name() const final { return "custom"; }
  bool StandsIn() const final { return true; }

  // A value that is a number stands for options that are numbers; `true` or
  // `false` for those that are that.
  virtual std::vector<CustomOption> Options() const = 0;

  // The option `discount`, if there is one; else 0.99.
  double Discount(const v1::RunConfig& config) const override;
  UpdatePlan PlanOf(const v1::RunConfig& config) const override;
  double StepsAtOnce(const v1::RunConfig& config) const override;
  int Trunks(const v1::RunConfig& config, bool may_split) const override;
  // Options that are not declared, or are no such number. Call it first where
  // you override it.
  void FindProblems(const v1::RunConfig& config,
                    std::vector<ConfigProblem>* problems) const override;

  // The option as `config` has it, or else its value above. Dies if there is no
  // such option, or if it is not of that type and FindProblems would have said so.
  std::string Text(const v1::RunConfig& config,
                   const std::string& option) const;
  double Number(const v1::RunConfig& config, const std::string& option) const;
  bool Flag(const v1::RunConfig& config, const std::string& option) const;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ALGORITHMS_CUSTOM_H_
