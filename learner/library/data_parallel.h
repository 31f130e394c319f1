#ifndef FLOTILLA_LEARNER_LIBRARY_DATA_PARALLEL_H_
#define FLOTILLA_LEARNER_LIBRARY_DATA_PARALLEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "learner/collective/collective.h"
#include "learner/torch_nn.h"

namespace flotilla {

struct DataParallelOptions {
  // 0: gradients travel in one flat message. Above: in buckets, each full when it
  // holds this many bytes, which BeforeLastBackward lets overlap the pass.
  int64_t bucket_bytes = 0;
  // What gradients travel as; sums and parameters are float32 either way.
  v1::GradientType gradient_type = v1::GRADIENT_FLOAT32;
};

// Trains any torch::nn::Module on all ranks as if one process had all the data:
//
//   auto parallel = DataParallel::Wrap(module, world->collective());
//   for each batch:
//     optimizer.zero_grad();
//     loss.backward();                       // loss: a mean over `samples`
//     parallel->AverageGradients(samples);
//     optimizer.step();
//
// Graphs may differ: a parameter's mean is over those ranks whose graph reached
// it, so that a rank that skips a head does not dilute the others' gradient.
// zero_grad() must undefine gradients, as is its default: one that is there and
// zero counts as a contribution.
//
// Not thread-safe.
class DataParallel {
 public:
  struct Traffic {
    int64_t calls = 0;
    double seconds = 0;  // in all-reduces that nothing hid, and waiting in them
    int64_t bytes = 0;   // that this rank gave to them

    double MeanSeconds() const { return calls > 0 ? seconds / calls : 0; }
  };

  // Gives every rank rank 0's parameters and buffers, of any dtype, bit for bit.
  // `module`, whose trained parameters are float32 and on one device, and
  // `collective` are borrowed.
  // Errors: kInvalidArgument naming a parameter that is not float32 or lies
  // elsewhere; those of Collective::Broadcast.
  static absl::StatusOr<DataParallel> Wrap(torch::nn::Module* module,
                                           Collective* collective,
                                           DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;

  // With buckets: lets their sums overlap the next backward pass, the last
  // before AverageGradients, which is given the same samples.
  void BeforeLastBackward(double samples);

  // Makes each gradient the mean over the samples of all ranks that have it: sum
  // over ranks of samples * gradient, by the sum of their samples. A rank with 0
  // samples takes part with nothing, whatever its gradients are; one that no
  // rank has is undefined on all. Blocks for all ranks. Errors: those of
  // Collective::AllReduceSum.
  absl::Status AverageGradients(double samples);

  const Traffic& traffic() const;

 private:
  class State;
  explicit DataParallel(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_LIBRARY_DATA_PARALLEL_H_
