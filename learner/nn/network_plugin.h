#ifndef FLOTILLA_LEARNER_NN_NETWORK_PLUGIN_H_
#define FLOTILLA_LEARNER_NN_NETWORK_PLUGIN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/nn/network.h"
#include "learner/plugin/build_stamp.h"
#include "learner/torch_nn.h"  // for modules of yours
#include "services/env/spaces.h"

// A network of your own from a shared library: model.plugin. In one file of it,
//
//   FLOTILLA_NETWORK(MakeMyNetwork)
//
// names a NetworkMaker. `flotilla new network DIR` writes a project with one.

namespace flotilla {

// Makes a network for `spaces` on `device`; what `config` says of networks means
// what you make of it. May be called from several threads, and again for every
// generation. Errors: kInvalidArgument for spaces that it does not fit.
using NetworkMaker = absl::StatusOr<std::unique_ptr<Network>> (*)(
    const Spaces& spaces, const v1::ModelConfig& config, torch::Device device);

#define FLOTILLA_NETWORK(make)                                               \
  FLOTILLA_STAMPED();                                                        \
  extern "C" __attribute__((visibility("default"))) ::flotilla::NetworkMaker \
  flotilla_network() {                                                       \
    return make;                                                             \
  }                                                                          \
  static_assert(true)

// The network of the library model.plugin, initialised and tried
// (network_check.h).
// Errors: kInvalidArgument, naming the library, what it has and what is wanted;
// kFailedPrecondition if it was built for something else.
absl::StatusOr<std::unique_ptr<Network>> MakePluginNetwork(
    const Spaces& spaces, const v1::ModelConfig& config, torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_NETWORK_PLUGIN_H_
