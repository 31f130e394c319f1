#ifndef FLOTILLA_LEARNER_NN_FROZEN_POLICY_H_
#define FLOTILLA_LEARNER_NN_FROZEN_POLICY_H_

#include <utility>

#include "learner/nn/policy.h"

namespace flotilla {

// A policy that reads a network, with a copy of that of its own. It has no resident(),
// whatever its Reader has: what it sees and decides goes through the host.
template <typename Net, typename Reader>
class FrozenPolicy : public Policy {
 public:
  // `make(const Net*)` returns the Reader of what it is given.
  template <typename Make>
  FrozenPolicy(Net net, const Make& make)
      : net_(std::move(net)), policy_(make(&net_)) {}

  void Decide(const Observations& seen, bool greedy, Draws* draws,
              const DecisionOutput& out) override {
    policy_.Decide(seen, greedy, draws, out);
  }
  void Value(const Observations& seen, float* value) override {
    policy_.Value(seen, value);
  }

 private:
  const Net net_;
  Reader policy_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_FROZEN_POLICY_H_
