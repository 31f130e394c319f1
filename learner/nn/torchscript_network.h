#ifndef FLOTILLA_LEARNER_NN_TORCHSCRIPT_NETWORK_H_
#define FLOTILLA_LEARNER_NN_TORCHSCRIPT_NETWORK_H_

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/network.h"
#include "learner/torch.h"
#include "services/env/spaces.h"

namespace flotilla {

// A network that was written in Python: model.torchscript, a file that
// torch.jit.script(module).save(...) made. The module has
//
//   forward(observation) -> (policy, value) or (policy, value, log_std)
//
//   observation   the tensor of the one leaf that there is to see, or
//                 Dict[str, Tensor] by path ("vector": leaves joined end to
//                 end); of shapes and dtypes as in rollout/batch.h: pixels are
//                 uint8 [N, k, H, W]. Masks are not shown: the action head
//                 applies them
//   policy        [N, O] float32  logits of choices, then means of values
//   value         [N] or [N, 1] float32
//   log_std       [A], [1, A] or [N, A] float32; continuous actions only. Left
//                 out: a parameter of ours, "actor_logstd" [A], as ActorCritic's
//
// Its parameters that require gradients are trained, from the weights in the
// file on whatever the seed is; they have their names of module.state_dict() in
// checkpoints. All else, such as buffers, stays as the file has it. The module
// is in eval() mode always: Dropout does nothing, and BatchNorm scales by what
// it was saved with.
//
// It runs without TorchScript's optimizer, whose plans change over the first
// calls and round differently: a learner and its replacement, or two runs of one
// seed, would not have the same bits.
class TorchScriptNetwork : public Network {
 public:
  // Tries the module on zeros.
  // Errors: kInvalidArgument, naming the file, what it has and what is wanted.
  static absl::StatusOr<std::unique_ptr<TorchScriptNetwork>> Make(
      const Spaces& spaces, const v1::ModelConfig& config,
      torch::Device device);

  // Nothing: the file's weights are the first.
  void Initialize(uint64_t seed) override;

  // Throws what the module throws, and std::runtime_error for outputs of other
  // shapes than at first.
  NetworkOutput Forward(const Batch& observation,
                        const Sequences& sequences = {}) const override;
  const FlatParameters& Flat() const override { return flat_; }
  // Of the file as it was: it need not be there any more.
  std::unique_ptr<Network> Clone() const override;

 private:
  // What all copies of a network share. Immutable.
  struct Origin {
    Spaces spaces;
    std::vector<int> seen;  // of spaces.observation
    std::string title;      // for messages
    std::string file;       // all of it
    torch::Device device = torch::kCPU;
    bool own_log_std = false;  // A parameter of ours
    double initial_log_std = 0;
  };

  TorchScriptNetwork() = default;
  // Errors: what LibTorch says.
  static absl::StatusOr<torch::jit::Module> Load(const Origin& origin);
  absl::Status CheckForward() const;
  absl::Status Try(int64_t rows, size_t* outputs) const;
  absl::Status Adopt();
  c10::IValue Call(const Batch& observation) const;
  absl::StatusOr<NetworkOutput> Read(const c10::IValue& returned,
                                     int64_t rows) const;
  // With what the module is, for people.
  absl::Status Refuse(const std::string& problem) const;

  std::shared_ptr<const Origin> origin_;
  mutable torch::jit::Module module_;  // forward is not const
  FlatParameters flat_;
  torch::Tensor log_std_;  // [A] if origin_->own_log_std
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_TORCHSCRIPT_NETWORK_H_
