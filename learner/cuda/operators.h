#ifndef FLOTILLA_LEARNER_CUDA_OPERATORS_H_
#define FLOTILLA_LEARNER_CUDA_OPERATORS_H_

#include <cstdint>

#include "learner/kernels/adam_update.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/torch.h"

// This folder's kernels as operators of Torch, flotilla::ppo_loss and so on: each
// runs where its tensors lie, on a GPU without a wait of the host, and may be part of
// a graph. None has a gradient of its own.
//
// Tensors are contiguous and on one device; "?" may be undefined. Thread-safe.
// Errors: throw c10::Error, which names the tensor that does not fit.

namespace flotilla {

// See ppo_loss.h beside this file. Steps of a rollout are S, those to learn from M.
struct PpoLossInput {
  torch::Tensor policy;          // [M, O] float32
  torch::Tensor log_std;         // ? [A] or [M, A] float32
  torch::Tensor value;           // [M] float32
  torch::Tensor mask;            // ? [M, L] uint8
  torch::Tensor first_logit;     // [K + 1] int32  of each choice; then L
  torch::Tensor index;           // ? [M] int32 among S; undefined: S is M
  torch::Tensor discrete;        // ? [S, K] int64
  torch::Tensor continuous;      // ? [S, A] float32
  torch::Tensor log_prob;        // [S] float32
  torch::Tensor old_value;       // [S] float32
  torch::Tensor returns;         // [S] float32
  torch::Tensor advantage;       // [S] float32
  torch::Tensor mean_and_scale;  // ? [2] float32  of advantages
  double clip_ratio = 0;
  double value_clip = 0;  // 0: off
  double entropy_cost = 0;
  double value_cost = 0;
};
struct PpoLossOutput {
  torch::Tensor policy_slope;   // [M, O] float32
  torch::Tensor log_std_slope;  // [M, A] float32
  torch::Tensor value_slope;    // [M] float32
  torch::Tensor sums;           // [6] float64  as PpoSums behind `samples`
};
PpoLossOutput PpoLossOperator(const PpoLossInput& in);

// Mean and scale of the advantages [S] at `index` [M] int32, [2] float32: see
// advantages.h.
torch::Tensor AdvantageScaleOperator(const torch::Tensor& advantage,
                                     const torch::Tensor& index);

// Adam's step, or with `correct_bias` off RMSprop's: see adam.h.
struct AdamTensors {
  torch::Tensor gradient, parameters, moment1, moment2;  // [P] float32
  torch::Tensor done;           // [2] float64  sum of norms, steps taken
  torch::Tensor count;          // [1] float64
  torch::Tensor learning_rate;  // [1] float64
  torch::Tensor divisor = {};   // ? [1] float32
  double host_divisor = 1;      // where that is undefined
};
// Learning rate and scale of the gradient are not those of `options`.
void AdamOperator(const AdamTensors& tensors, const AdamOptions& options);

// kernels/gae.h and kernels/vtrace.h. `valid`, `terminated` and `truncated` are
// [T, B] uint8, `value` is [T + 1, B], all else [T, B], float32; the last two are
// written.
struct TraceTensors {
  torch::Tensor reward, value, terminated, truncated, bootstrap_value, valid;
};
void GaeOperator(const TraceTensors& in, double discount, double lambda,
                 const torch::Tensor& advantage, const torch::Tensor& returns);
struct VtraceNumbers {
  double discount = 0.99;
  double lambda = 1;
  double rho_clip = 1;
  double c_clip = 1;
  double pg_rho_clip = 1;
};
void VtraceOperator(const TraceTensors& in, const torch::Tensor& log_prob,
                    const torch::Tensor& actor_log_prob,
                    const VtraceNumbers& numbers, const torch::Tensor& target,
                    const torch::Tensor& advantage);

// The stacks of `arrays` [N, ...] that steps `index` [M] int32 show, [M, k, ...], where
// of all steps `shown` [S, k] int32 says which arrays those are.
torch::Tensor GatherStacks(const torch::Tensor& arrays,
                           const torch::Tensor& shown,
                           const torch::Tensor& index);

// What M places of a ring of N steps show, as ring.h and rollout/observation_store.h
// have it: [M, stack, ...]. The last F of them stand for what followed, where `slot`
// names a row of `finals`, in which the array begins at byte `offset`.
struct RingTensors {
  torch::Tensor arrays;  // [N, B, ...]
  torch::Tensor age;     // [N, B] uint8
  torch::Tensor place;   // [M] int32  (t mod N) * B + b
  torch::Tensor slot;    // [F] int32  -1: none
  torch::Tensor finals;  // [S, bytes] uint8
};
torch::Tensor GatherRing(const RingTensors& ring, int64_t stack,
                         int64_t offset);

// A sum tree of L leaves: see kernels/sum_node.h, and sum_tree.h for what these do.
struct SumTreeTensors {
  torch::Tensor nodes;    // [2 L, 2] float64
  torch::Tensor largest;  // [1] float64
};
// `leaf` and `mark` are [n] int32, no leaf twice.
void MarkLeaves(const SumTreeTensors& tree, const torch::Tensor& leaf,
                const torch::Tensor& mark);
// `leaf` is [n] int32, `error` [n] float32.
void SetLeafErrors(const SumTreeTensors& tree, const torch::Tensor& leaf,
                   const torch::Tensor& error, double alpha);
// Leaves [n] int32 and their importance weights [n] float32, by the `n` places of the
// stream of `seed` from `place` on (kernels/draws.h).
struct FoundLeaves {
  torch::Tensor leaf, importance;
};
FoundLeaves FindLeaves(const SumTreeTensors& tree, uint64_t seed,
                       uint64_t place, double beta, int64_t n);

// Pixels [N, C, H, W] uint8 times `scale`, float32 of the same sizes and channels
// last.
torch::Tensor ScalePixels(const torch::Tensor& pixels, double scale);

// An MLP actor-critic (kernels/mlp_shape.h), `parameters` [P] float32 in
// ParameterLayout's order, of `observation` [R, D] float32: all layers in one launch
// (mlp_policy.h). The networks are those that MlpOperatorsTake: at most 8 hidden
// layers, of at most 256 units, and at most 256 actions.
bool MlpOperatorsTake(const MlpShape& shape);
struct MlpOutputs {
  torch::Tensor policy;  // [R, O] float32
  torch::Tensor value;   // [R] float32
  torch::Tensor kept;    // [R, H] float32, if `keep`: for MlpBackwardOperator
};
MlpOutputs MlpForwardOperator(const MlpShape& shape,
                              const torch::Tensor& parameters,
                              const torch::Tensor& observation,
                              bool keep = false);

// Adds to `gradient` [P] float32 that of a loss whose slopes with respect to the
// outputs are known; the same input gives the same bits (mlp_gradient.h).
struct MlpSlopes {
  torch::Tensor policy;   // [R, O] float32
  torch::Tensor value;    // [R] float32
  torch::Tensor log_std;  // ? [R, A] float32  continuous actions
};
void MlpBackwardOperator(const MlpShape& shape, const torch::Tensor& parameters,
                         const torch::Tensor& observation,
                         const torch::Tensor& kept, const MlpSlopes& slopes,
                         const torch::Tensor& gradient);

// Actions of R rows, drawn by `stream`: see sampling.h.
struct SampleInput {
  torch::Tensor policy;       // [R, L + A] float32  logits, then means
  torch::Tensor log_std;      // ? [A] or [R, A] float32
  torch::Tensor mask;         // ? [R, L] uint8
  torch::Tensor first_logit;  // [K + 1] int32  of each choice; then L
  torch::Tensor stream;       // [2] int64
};
struct SampledActions {
  torch::Tensor discrete;    // [R, K] int64
  torch::Tensor continuous;  // [R, A] float32
  torch::Tensor log_prob;    // [R] float32
};
SampledActions SampleActions(const SampleInput& in);

// Those of the largest `value` [R, L] float32 of each choice, or, with probability
// `epsilon` [1] float64, any: [R, K] int64. `mask`, which may be undefined,
// `first_logit` and `stream` are as above.
torch::Tensor ExploreActions(const torch::Tensor& value,
                             const torch::Tensor& mask,
                             const torch::Tensor& first_logit,
                             const torch::Tensor& stream,
                             const torch::Tensor& epsilon);

// Within bounds, [rows, A] float32: a squashed Gaussian's, or, without it, anything
// alike.
struct SquashedInput {
  torch::Tensor mean;       // ? [R, A] float32
  torch::Tensor log_std;    // ? [R, A] float32
  torch::Tensor low, high;  // [A] float32
  torch::Tensor stream;     // ? [2] int64; undefined: the means'
};
torch::Tensor SquashedActions(const SquashedInput& in, int64_t rows);

// The normal numbers at the places from `place` on of `seed` (kernels/draws.h, as
// int64), [sizes] float32 on `device`. Both are the host's, so that a graph would
// draw the same again and again.
torch::Tensor NormalDraws(int64_t seed, int64_t place, at::IntArrayRef sizes,
                          torch::Device device);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_OPERATORS_H_
