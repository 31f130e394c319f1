#include "learner/nn/network_plugin.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/nn/network_check.h"
#include "learner/plugin/shared_library.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

absl::StatusOr<std::unique_ptr<Network>> Call(NetworkMaker make,
                                              const Spaces& spaces,
                                              const v1::ModelConfig& config,
                                              torch::Device device) {
  try {
    return make(spaces, config, device);
  } catch (const std::exception& thrown) {
    const std::string text = thrown.what();
    return absl::InvalidArgumentError(
        absl::StrCat("making it fails: ", text.substr(0, text.find('\n'))));
  }
}

// Minibatches keep sequences whole where the configuration says that there are
// any.
absl::Status CheckMemory(const Network& net, const v1::ModelConfig& config) {
  const bool said = config.recurrent() != v1::NONE;
  if (net.recurrent() == said) return absl::OkStatus();
  return absl::InvalidArgumentError(
      said ? absl::StrCat("it remembers nothing (state_size is 0), but "
                          "model.recurrent is ",
                          v1::RecurrentCell_Name(config.recurrent()),
                          "; use NONE")
           : absl::StrCat("it remembers ", net.state_size(),
                          " numbers a row, which model.recurrent has to say; "
                          "use LSTM or GRU, whichever is nearer"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakePluginNetwork(
    const Spaces& spaces, const v1::ModelConfig& config, torch::Device device) {
  const std::string title =
      absl::StrCat("model.plugin \"", config.plugin(), "\"");
  ASSIGN_OR_RETURN(void* const function,
                   LoadFunction(title, config.plugin(), "flotilla_network"));
  const NetworkMaker make = reinterpret_cast<NetworkMaker (*)()>(function)();
  auto net = Call(make, spaces, config, device);
  absl::Status status = net.status();
  if (status.ok() && *net == nullptr) {
    status = absl::InvalidArgumentError("it makes no network");
  }
  if (status.ok()) status = CheckMemory(**net, config);
  // As it will be: weights that are all zeros have no gradients.
  if (status.ok()) (*net)->Initialize(/*seed=*/1);
  if (status.ok()) status = CheckNetwork(**net, spaces, device);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(title, ": ", status.message()));
  }
  return net;
}

}  // namespace flotilla
