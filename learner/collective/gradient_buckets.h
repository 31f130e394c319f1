#ifndef FLOTILLA_LEARNER_COLLECTIVE_GRADIENT_BUCKETS_H_
#define FLOTILLA_LEARNER_COLLECTIVE_GRADIENT_BUCKETS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "learner/collective/collective.h"
#include "learner/torch.h"
#include "services/base/mutex.h"

namespace flotilla {

// Sums a network's gradients over ranks piece by piece, while the backward pass
// is still computing the others (Li et al. 2020, PyTorch Distributed, 3.2.3).
//
//   gradients   | conv1  conv2  conv3 | linear  policy  value |
//   buckets     |          1          |           0           |
//
// A backward pass goes from the last layer to the first, so buckets are cut
// from the end. Bucket k is summed once all its gradients are there and bucket
// k - 1 is summed; what a rank's graph did not reach goes in Finish. So every
// rank makes the same calls in the same order, whatever its graph is, and the
// result is that of one all-reduce of everything.
//
// The calls are made on a thread of its own and, on a GPU, on a stream of its
// own.
//
// Not thread-safe.
class GradientBuckets {
 public:
  struct Options {
    // A bucket is full when it holds this much; a parameter is never cut.
    int64_t bucket_bytes = 1 << 20;
    v1::GradientType type = v1::GRADIENT_FLOAT32;  // on the way
    // Called in the backward pass that follows a Begin, once leaf[i] has its
    // gradient, which need not be the one in `gradients` yet.
    std::function<void(size_t i)> has_gradient = {};
  };

  // `gradients`, float32, holds those of `leaf`, in its order.
  GradientBuckets(const std::vector<torch::Tensor>& leaf,
                  const torch::Tensor& gradients, Options options);
  // Blocks for all-reduces that were begun and not finished.
  ~GradientBuckets();

  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Says that the next backward pass completes the gradients, and that the sum is
  // of `scale` times each rank's. `collective` is borrowed, and used by nobody
  // else, until Finish.
  void Begin(Collective* collective, double scale = 1);

  // Sums what is left, with or without a Begin, and blocks until all is summed
  // (on a GPU: queued). `scale` as in Begin. Errors: the first of those of
  // Collective::AllReduceSum; the gradients are then of no use.
  absl::Status Finish(Collective* collective, double scale = 1);

  // The slices of the gradients, in the order they are summed.
  const std::vector<torch::Tensor>& buckets() const { return bucket_; }

 private:
  void HasGradient(size_t leaf, size_t bucket);
  void Work();
  absl::Status Sum(Collective* collective, size_t bucket, double scale);

  const Options options_;
  std::vector<torch::Tensor> bucket_;  // each [n] float32
  std::vector<int> parameters_;        // in each bucket
  // What tells that a parameter has its gradient: autograd's node for it, and
  // our hook there.
  struct Hook {
    std::shared_ptr<torch::autograd::Node> node;
    uintptr_t key;
  };
  std::vector<Hook> hook_;
  std::optional<c10::Stream> stream_;  // on a GPU

  Mutex mu_;
  std::condition_variable changed_;
  // Null between a Finish and the next Begin.
  Collective* collective_ ABSL_GUARDED_BY(mu_) = nullptr;
  double scale_ ABSL_GUARDED_BY(mu_) = 1;
  std::vector<int> missing_ ABSL_GUARDED_BY(mu_);  // gradients, of each bucket
  size_t complete_ ABSL_GUARDED_BY(mu_) = 0;       // buckets, from the first on
  size_t summed_ ABSL_GUARDED_BY(mu_) = 0;         // of those
  std::vector<c10::Event> computed_ ABSL_GUARDED_BY(mu_);  // on a GPU
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // from the first Begin on
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_GRADIENT_BUCKETS_H_
