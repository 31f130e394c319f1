#ifndef FLOTILLA_LEARNER_NN_NETWORK_H_
#define FLOTILLA_LEARNER_NN_NETWORK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/nn/flat_parameters.h"
#include "learner/rollout/batch.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// Of N observations; O and A are the action head's (action_head.h).
struct NetworkOutput {
  torch::Tensor policy;   // [N, O]  logits of choices, then means of values
  torch::Tensor log_std;  // [A] or [N, A]; undefined if A is 0
  torch::Tensor value;    // [N]
  torch::Tensor state;    // [B, S]  recurrent, and only without gradients
};

// What a recurrent network needs besides observations: N = T * B of them are T
// steps of B sequences, time first.
struct Sequences {
  torch::Tensor state;  // [B, S] float32  before the first step
  torch::Tensor keep;   // [T, B, 1] float32  0: the state is forgotten before
                        // this step, which begins an episode; else 1
};

// From observations to what a policy says of them, and their value: what PPO and
// IMPALA train. Ours is ActorCritic; yours may be any class (learner/README.md).
//
// Not thread-safe.
class Network {
 public:
  virtual ~Network() = default;

  // With gradients, if they are on. `sequences` is for recurrent networks, and
  // they need it.
  virtual NetworkOutput Forward(const Batch& observation,
                                const Sequences& sequences = {}) const = 0;

  // The same seed gives the same weights on every rank.
  virtual void Initialize(uint64_t seed) = 0;

  // Parameters and gradients, [P] float32 each, on one device.
  virtual const FlatParameters& Flat() const = 0;

  // The same shape with weights of its own: what acts while this one learns.
  virtual std::unique_ptr<Network> Clone() const = 0;

  // S: numbers of recurrent state in a row, all 0 when an episode begins; 0 if
  // there is none.
  virtual int64_t state_size() const { return 0; }

  // The network as learner/kernels runs it on a CPU, if they can: of the first leaf,
  // [N, D] float32, whatever else the actions depend on (a mask).
  virtual std::optional<MlpShape> KernelShape() const { return std::nullopt; }

  // Convolutions, and the linear layer behind them, in bfloat16, and what KernelShape
  // says of an MLP's hidden layers; weights and everything else in float32. Before
  // whoever asks for KernelShape.
  virtual void set_bf16(bool) {}
  // Says that the weights stay as they are until the next call: what Forward
  // without gradients converts of them may be converted once.
  virtual void Settle() {}
  // Whether that may make anything.
  virtual bool settles() const { return false; }
  // What that made, beside the parameters: it stays where it is.
  virtual std::vector<torch::Tensor> settled() const { return {}; }
  // Whether what Forward asks of a device depends on parameters(), settled() and its
  // arguments alone, and stays where it is, so that decisions may be recorded
  // (device/graph.h).
  virtual bool recordable() const { return false; }
  // KernelShape's sibling on a device, as learner/cuda runs it there: of the one leaf that is seen,
  // [N, D] float32, whatever else the actions depend on (a mask). Choices are
  // `actions` logits end to end.
  virtual std::optional<MlpShape> DeviceShape() const { return std::nullopt; }

  bool recurrent() const { return state_size() > 0; }
  torch::Device device() const { return Flat().device(); }
  const torch::Tensor& parameters() const { return Flat().parameters; }
  const torch::Tensor& gradients() const { return Flat().gradients; }
  int64_t num_parameters() const { return Flat().size(); }
  // Views into parameters(), in its order.
  const std::vector<NamedTensor>& Named() const { return Flat().named; }
};

// The network that `config` asks for: ActorCritic, a TorchScriptNetwork, or that of
// a library (network_plugin.h).
// Errors: kInvalidArgument for an encoder that does not fit the observation, or a
// file that is no network for these spaces; kFailedPrecondition for a library that
// was built for something else.
absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(
    const Spaces& spaces, const v1::ModelConfig& config, torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_NETWORK_H_
