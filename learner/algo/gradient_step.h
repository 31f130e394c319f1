#ifndef FLOTILLA_LEARNER_ALGO_GRADIENT_STEP_H_
#define FLOTILLA_LEARNER_ALGO_GRADIENT_STEP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "learner/algo/device_step.h"
#include "learner/collective/collective.h"
#include "learner/collective/gradient_buckets.h"
#include "learner/device/host.h"
#include "learner/nn/flat_parameters.h"
#include "learner/nn/gradient_factors.h"

namespace flotilla {

// The one place where a gradient becomes a change of weights: all-reduce, take
// the mean that distributed.gradient_mean names (over the samples of all ranks,
// or over the means of those ranks that have samples), clip by the global norm,
// and
//
//   ADAM     Kingma & Ba 2015, torch.optim.Adam's arithmetic
//   RMSPROP  IMPALA's, torch.optim.RMSprop's arithmetic: alpha is beta2
//   MUON     see muon.h: momentum is beta1
//
// Not thread-safe.
class GradientStep {
 public:
  struct Result {
    double samples = 0;    // of all ranks
    double extra = 0;      // summed over ranks
    double grad_norm = 0;  // after the all-reduce, before clipping
    // Waited for all-reduces and so for peers; a flat one on a CPU takes the norm too.
    double sync_seconds = 0;
    int64_t sync_bytes = 0;  // that this rank gave to it
  };

  // All-reduces take the form and type that `distributed` names: gradients in one
  // flat message, or in buckets (gradient_buckets.h). Weights and the optimizer's
  // buffers are float32, whatever travels. Of `precision` BF16, on a CPU, Muon's
  // products may be too (muon.h).
  GradientStep(const FlatParameters& net, const v1::OptimizerConfig& config,
               const v1::DistributedConfig& distributed = {},
               v1::Precision precision = v1::FP32);

  // Steps as `config` says from now on. Its type stays what it was.
  void Reconfigure(const v1::OptimizerConfig& config);

  // With buckets, lets them overlap the backward pass that follows, which must
  // be the last before Apply with the same collective and samples. May be left
  // out.
  void BeforeLastBackward(Collective* collective, double samples);

  // Says that the gradient of net.leaf[leaf] may be left as what it is a product of, of
  // `rows` rows on every rank at each step (gradient_factors.h; the rest is its
  // constructor's): between ranks of one host, float32 in a flat message; by means of
  // ranks rows of float32 alone.
  void MayFactor(size_t leaf, torch::Dtype dtype, int64_t rows);
  // Where it is to be left for the next Apply, rows or SetNothing, if that is less with
  // these ranks, who all decide alike; else null. Without it, and after that Apply whatever
  // comes of it, gradients are whole.
  GradientFactors* BeginFactors(const Collective& collective);

  // Takes the network's gradients, which hold the sum over this rank's
  // `samples` of their losses' gradients, and steps. `extra` is any number to
  // sum over ranks on the way (PPO's KL). With no sample on any rank nothing
  // changes. Errors: those of the collective; kInternal if the gradient is not
  // finite, which leaves the weights alone on every rank.
  absl::StatusOr<Result> Apply(Collective* collective, double samples,
                               double extra, double learning_rate);

  // On a device, the same for several steps in turn, of which the host learns
  // nothing until it asks for all at once:
  //
  //   Begin, ApplyLater ..., Outcome, on the host: Finish
  //
  // After a gradient that is not finite none of them changes anything.
  void Begin();
  // `extra` is [1] float32 on the device, and may not change until the next call.
  // Errors: those of the collective.
  absl::Status ApplyLater(Collective* collective, double samples,
                          const torch::Tensor& extra, double learning_rate);
  // How much of a gradient step one graph may do.
  enum class Recorded {
    kNothing,  // gradients are in buckets, which leave within the backward pass
    kGradient,  // peers have to do with the rest; Muon's rate is the host's
    kAll,
  };
  Recorded MayRecord(const Collective& collective) const;
  // For graphs of all of it, ApplyLater with it. Before each: the learning rate of
  // the steps from here on.
  void SetLearningRate(double learning_rate);
  // After each: the last step had this.
  void AppliedAgain(double samples, const torch::Tensor& extra);
  // [kOutcome] float64 on the device.
  static constexpr int64_t kOutcome = 4;
  torch::Tensor Outcome() const;
  // What `outcome` says of the last step, and sums over all since Begin: grad_norm
  // and what syncing took. Errors: kInternal, as Apply.
  absl::StatusOr<Result> Finish(const double* outcome);

  // Steps taken, by all ranks alike: those without a sample do not count.
  int64_t count() const { return *Host<int64_t>(step_); }

  // The optimizer's buffers, each [P], and then its step count [1] int64: live
  // views.
  std::vector<NamedTensor> State();

 private:
  absl::Status Sum(Collective* collective, double samples,
                   std::optional<double>* squares);
  // Of message[first, first + count); squares of what is gradients are added.
  absl::Status SumPart(Collective* collective, int64_t first, int64_t count,
                       double* squares);
  absl::Status GatherFactors(Collective* collective, double scale);
  // Calls use(first, count) for the gradients that are in net_.gradients.
  template <typename Use>
  void ForGradients(Use use) const;
  bool has_kernels() const {
    return net_.device().is_cpu() && config_.type() != v1::MUON;
  }
  // What a rank's gradients are multiplied by before they are summed.
  double Scale(double samples) const;

  // The clipped step, by hand-written kernels or in Torch's operations, of the
  // gradients over `divisor`. Both return the norm before clipping, and change
  // nothing if it is not finite.
  double StepWithKernels(double divisor, double learning_rate,
                         std::optional<double> squares);
  double StepWithTorch(double divisor, double learning_rate);
  void AdamWithTorch(const torch::Tensor& gradient, double learning_rate);
  absl::Status NotFinite(double norm) const;

  const FlatParameters net_;
  // [kTail]  what travels behind the gradients: samples, extra, ranks with samples.
  const torch::Tensor tail_;
  v1::OptimizerConfig config_;
  const bool by_ranks_;
  const v1::GradientType type_;
  const bool bfloat16_;
  std::unique_ptr<GradientBuckets> buckets_;  // null: one flat message
  std::optional<GradientFactors> factors_;
  bool factored_ = false;  // from BeginFactors to Apply
  // ADAM: both moments. RMSPROP: scratch and the second. MUON: momentum, -.
  torch::Tensor moment1_, moment2_;    // [P]
  torch::Tensor step_;                 // [1] int64
  std::unique_ptr<DeviceStep> later_;  // null on a CPU
  // Of the last ApplyLater: samples and extra, [2] float32 over all ranks, or of
  // this one alone extra [1].
  torch::Tensor last_;
  double last_samples_ = 0;
  double sync_seconds_ = 0;
  int64_t sync_bytes_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_GRADIENT_STEP_H_
