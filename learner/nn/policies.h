#ifndef FLOTILLA_LEARNER_NN_POLICIES_H_
#define FLOTILLA_LEARNER_NN_POLICIES_H_

#include <memory>

#include "learner/nn/network.h"
#include "learner/nn/policy.h"
#include "services/env/spaces.h"

namespace flotilla {

// A policy that reads `net`'s weights as they are at each call: through
// learner/kernels for MLPs on the CPU, through Torch otherwise. `net` is
// borrowed and must not change during a call.
//
// `Refresh` must follow every change of the weights.
class NetworkPolicy : public Policy {
 public:
  virtual void Refresh() = 0;
};
std::unique_ptr<NetworkPolicy> MakeNetworkPolicy(const Network* net,
                                                 const Spaces& spaces);

// The same with a copy of `net` of its own: frozen.
std::unique_ptr<Policy> MakeFrozenPolicy(const Network& net,
                                         const Spaces& spaces);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_POLICIES_H_
