#ifndef FLOTILLA_LEARNER_LIBRARY_DATA_PARALLEL_H_
#define FLOTILLA_LEARNER_LIBRARY_DATA_PARALLEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "learner/collective/collective.h"
#include "learner/torch.h"

namespace flotilla {

// Trains any torch::nn::Module on all ranks as if one process had all the data:
//
//   auto parallel = DataParallel::Wrap(module, world->collective());
//   for each batch:
//     optimizer.zero_grad();
//     loss.backward();                       // loss: a mean over `samples`
//     parallel->AverageGradients(samples);
//     optimizer.step();
//
// All gradients travel in one flat buffer, in parameters()' order, so a
// parameter that no rank's graph reached costs nothing but its bytes.
//
// Not thread-safe.
class DataParallel {
 public:
  struct Traffic {
    int64_t calls = 0;
    double seconds = 0;  // in all-reduces, waiting for other ranks included
    int64_t bytes = 0;   // that this rank gave to them

    double MeanSeconds() const { return calls > 0 ? seconds / calls : 0; }
  };

  // Gives every rank rank 0's parameters and buffers. `module`, whose trained
  // parameters are float32 and on one device, and `collective` are borrowed.
  // Errors: kInvalidArgument naming a parameter that is not float32 or lies
  // elsewhere; those of Collective::Broadcast.
  static absl::StatusOr<DataParallel> Wrap(torch::nn::Module* module,
                                           Collective* collective);

  // Makes each gradient the mean over the samples of all ranks: sum over ranks
  // of samples * gradient, by the sum of samples. A rank with 0 samples takes
  // part with zeros, whatever its gradients are; with none anywhere, all are
  // zero. Blocks for all ranks. Errors: those of Collective::AllReduceSum.
  absl::Status AverageGradients(double samples);

  const Traffic& traffic() const { return traffic_; }

 private:
  DataParallel(std::vector<torch::Tensor> parameters, Collective* collective);

  std::vector<torch::Tensor> parameters_;
  Collective* collective_;
  torch::Tensor message_;  // [P + 1]: gradients, and the samples
  Traffic traffic_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_LIBRARY_DATA_PARALLEL_H_
