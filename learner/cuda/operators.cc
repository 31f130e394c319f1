#include "learner/cuda/operators.h"

#include <torch/library.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "learner/cuda/implement.h"

namespace flotilla {
namespace {

struct OnHost {
  template <typename Args>
  static void Run(const Args& args) {
    RunKernels(args, RunOnHost());
  }
};

MaybeTensor Maybe(const Tensor& t) {
  return t.defined() ? MaybeTensor(t) : std::nullopt;
}

// Calls the operator `name` for whatever device the tensors lie on, which is no
// part of any gradient.
template <typename Function, typename... Args>
auto Call(const char* name, const Args&... args) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow(name, "")
                      .typed<std::remove_pointer_t<Function>>();
  return op.call(args...);
}

std::vector<int64_t> Widths(const MlpShape& shape) {
  return {shape.hidden.begin(), shape.hidden.end()};
}

int64_t LogStdNumbers(const MlpShape& shape) {
  return shape.continuous ? shape.actions : 0;
}

}  // namespace

TORCH_LIBRARY(flotilla, library) {
  library.def(
      "ppo_loss(Tensor policy, Tensor? log_std, Tensor value, Tensor? mask, "
      "Tensor first_logit, Tensor? index, Tensor? discrete, Tensor? continuous,"
      " Tensor log_prob, Tensor old_value, Tensor returns, Tensor advantage, "
      "Tensor? mean_and_scale, float clip_ratio, float value_clip, "
      "float entropy_cost, float value_cost) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  library.def("advantage_scale(Tensor advantage, Tensor index) -> Tensor");
  library.def(
      "adam_step(Tensor(a!) parameters, Tensor(b!) moment1, Tensor(c!) moment2,"
      " Tensor(d!) done, Tensor(e!) count, Tensor gradient, "
      "Tensor learning_rate, Tensor? divisor, float host_divisor, float beta1, "
      "float beta2, float epsilon, float max_grad_norm, bool correct_bias) -> "
      "()");
  library.def(
      "gae(Tensor reward, Tensor value, Tensor terminated, Tensor truncated, "
      "Tensor bootstrap_value, Tensor valid, float discount, float trace, "
      "Tensor(a!) advantage, Tensor(b!) returns) -> ()");
  library.def(
      "vtrace(Tensor reward, Tensor value, Tensor terminated, Tensor truncated,"
      " Tensor bootstrap_value, Tensor valid, Tensor log_prob, "
      "Tensor actor_log_prob, float discount, float trace, float rho_clip, "
      "float c_clip, float pg_rho_clip, Tensor(a!) target, "
      "Tensor(b!) advantage) -> ()");
  library.def(
      "gather_stacks(Tensor arrays, Tensor shown, Tensor index) -> Tensor");
  library.def(
      "gather_ring(Tensor arrays, Tensor age, Tensor place, Tensor slot, "
      "Tensor finals, int stack, int offset) -> Tensor");
  library.def(
      "mark_leaves(Tensor(a!) nodes, Tensor largest, Tensor leaf, Tensor mark) "
      "-> ()");
  library.def(
      "set_leaf_errors(Tensor(a!) nodes, Tensor(b!) largest, Tensor leaf, "
      "Tensor error, float alpha) -> ()");
  library.def(
      "find_leaves(Tensor nodes, int seed, int place, float beta, int n) -> "
      "(Tensor, Tensor)");
  library.def("scale_pixels(Tensor pixels, float scale) -> Tensor");
  library.def(
      "mlp_forward(Tensor parameters, Tensor observation, int[] hidden, "
      "int outputs, bool relu, bool share_trunk, int log_std, bool keep) -> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "mlp_backward(Tensor parameters, Tensor observation, Tensor kept, "
      "Tensor policy_slope, Tensor value_slope, Tensor? log_std_slope, "
      "int[] hidden, int outputs, bool relu, bool share_trunk, int log_std, "
      "Tensor(a!) gradient) -> ()");
  library.def(
      "sample_actions(Tensor policy, Tensor? log_std, Tensor? mask, "
      "Tensor first_logit, Tensor stream) -> (Tensor, Tensor, Tensor)");
  library.def(
      "explore_actions(Tensor value, Tensor? mask, Tensor first_logit, "
      "Tensor stream, Tensor epsilon) -> Tensor");
  library.def(
      "squashed_actions(Tensor? mean, Tensor? log_std, Tensor low, "
      "Tensor high, Tensor? stream, int rows) -> Tensor");
  library.def("normal_draws(Tensor(a!) to, int seed, int place) -> ()");
}

TORCH_LIBRARY_IMPL(flotilla, CPU, library) { Implement<OnHost>(&library); }

PpoLossOutput PpoLossOperator(const PpoLossInput& in) {
  const auto [policy_slope, log_std_slope, value_slope, sums] =
      Call<decltype(&PpoLossOn<OnHost>)>(
          "flotilla::ppo_loss", in.policy, Maybe(in.log_std), in.value,
          Maybe(in.mask), in.first_logit, Maybe(in.index), Maybe(in.discrete),
          Maybe(in.continuous), in.log_prob, in.old_value, in.returns,
          in.advantage, Maybe(in.mean_and_scale), in.clip_ratio, in.value_clip,
          in.entropy_cost, in.value_cost);
  return {policy_slope, log_std_slope, value_slope, sums};
}

torch::Tensor AdvantageScaleOperator(const torch::Tensor& advantage,
                                     const torch::Tensor& index) {
  return Call<decltype(&AdvantageScaleOn<OnHost>)>("flotilla::advantage_scale",
                                                   advantage, index);
}

void AdamOperator(const AdamTensors& t, const AdamOptions& options) {
  Call<decltype(&AdamStepOn<OnHost>)>(
      "flotilla::adam_step", t.parameters, t.moment1, t.moment2, t.done,
      t.count, t.gradient, t.learning_rate, Maybe(t.divisor), t.host_divisor,
      options.beta1, options.beta2, options.epsilon, options.max_grad_norm,
      options.correct_bias);
}

void GaeOperator(const TraceTensors& in, double discount, double lambda,
                 const torch::Tensor& advantage, const torch::Tensor& returns) {
  Call<decltype(&GaeOn<OnHost>)>(
      "flotilla::gae", in.reward, in.value, in.terminated, in.truncated,
      in.bootstrap_value, in.valid, discount, lambda, advantage, returns);
}

void VtraceOperator(const TraceTensors& in, const torch::Tensor& log_prob,
                    const torch::Tensor& actor_log_prob, const VtraceNumbers& n,
                    const torch::Tensor& target,
                    const torch::Tensor& advantage) {
  Call<decltype(&VtraceOn<OnHost>)>(
      "flotilla::vtrace", in.reward, in.value, in.terminated, in.truncated,
      in.bootstrap_value, in.valid, log_prob, actor_log_prob, n.discount,
      n.lambda, n.rho_clip, n.c_clip, n.pg_rho_clip, target, advantage);
}

torch::Tensor GatherStacks(const torch::Tensor& arrays,
                           const torch::Tensor& shown,
                           const torch::Tensor& index) {
  return Call<decltype(&GatherStacksOn<OnHost>)>("flotilla::gather_stacks",
                                                 arrays, shown, index);
}

torch::Tensor GatherRing(const RingTensors& ring, int64_t stack,
                         int64_t offset) {
  return Call<decltype(&GatherRingOn<OnHost>)>(
      "flotilla::gather_ring", ring.arrays, ring.age, ring.place, ring.slot,
      ring.finals, stack, offset);
}

void MarkLeaves(const SumTreeTensors& tree, const torch::Tensor& leaf,
                const torch::Tensor& mark) {
  Call<decltype(&MarkLeavesOn<OnHost>)>("flotilla::mark_leaves", tree.nodes,
                                        tree.largest, leaf, mark);
}

void SetLeafErrors(const SumTreeTensors& tree, const torch::Tensor& leaf,
                   const torch::Tensor& error, double alpha) {
  Call<decltype(&SetLeafErrorsOn<OnHost>)>("flotilla::set_leaf_errors",
                                           tree.nodes, tree.largest, leaf,
                                           error, alpha);
}

FoundLeaves FindLeaves(const SumTreeTensors& tree, uint64_t seed,
                       uint64_t place, double beta, int64_t n) {
  const auto [leaf, importance] = Call<decltype(&FindLeavesOn<OnHost>)>(
      "flotilla::find_leaves", tree.nodes, static_cast<int64_t>(seed),
      static_cast<int64_t>(place), beta, n);
  return {leaf, importance};
}

torch::Tensor ScalePixels(const torch::Tensor& pixels, double scale) {
  return Call<decltype(&ScalePixelsOn<OnHost>)>("flotilla::scale_pixels",
                                                pixels, scale);
}

bool MlpOperatorsTake(const MlpShape& shape) {
  const auto within = [](int64_t n, int64_t most) {
    return n >= 1 && n <= most;
  };
  return shape.output == MlpOutput::kActorCritic &&
         within(shape.observations, MlpLayers::kMostObservations) &&
         within(static_cast<int64_t>(shape.hidden.size()),
                MlpLayers::kMostHidden) &&
         within(shape.actions, MlpLayers::kWidest) &&
         std::all_of(shape.hidden.begin(), shape.hidden.end(),
                     [&](int n) { return within(n, MlpLayers::kWidest); });
}

MlpOutputs MlpForwardOperator(const MlpShape& shape,
                              const torch::Tensor& parameters,
                              const torch::Tensor& observation, bool keep) {
  const std::vector<int64_t> hidden = Widths(shape);
  const auto [policy, value, kept] = Call<decltype(&MlpForwardOn<OnHost>)>(
      "flotilla::mlp_forward", parameters, observation, at::IntArrayRef(hidden),
      int64_t{shape.actions}, shape.activation == Activation::kRelu,
      shape.share_trunk, LogStdNumbers(shape), keep);
  return {policy, value, kept};
}

void MlpBackwardOperator(const MlpShape& shape, const torch::Tensor& parameters,
                         const torch::Tensor& observation,
                         const torch::Tensor& kept, const MlpSlopes& slopes,
                         const torch::Tensor& gradient) {
  const std::vector<int64_t> hidden = Widths(shape);
  Call<decltype(&MlpBackwardOn<OnHost>)>(
      "flotilla::mlp_backward", parameters, observation, kept, slopes.policy,
      slopes.value, Maybe(slopes.log_std), at::IntArrayRef(hidden),
      int64_t{shape.actions}, shape.activation == Activation::kRelu,
      shape.share_trunk, LogStdNumbers(shape), gradient);
}

SampledActions SampleActions(const SampleInput& in) {
  const auto [discrete, continuous, log_prob] =
      Call<decltype(&SampleActionsOn<OnHost>)>(
          "flotilla::sample_actions", in.policy, Maybe(in.log_std),
          Maybe(in.mask), in.first_logit, in.stream);
  return {discrete, continuous, log_prob};
}

torch::Tensor ExploreActions(const torch::Tensor& value,
                             const torch::Tensor& mask,
                             const torch::Tensor& first_logit,
                             const torch::Tensor& stream,
                             const torch::Tensor& epsilon) {
  return Call<decltype(&ExploreActionsOn<OnHost>)>(
      "flotilla::explore_actions", value, Maybe(mask), first_logit, stream,
      epsilon);
}

torch::Tensor SquashedActions(const SquashedInput& in, int64_t rows) {
  return Call<decltype(&SquashedActionsOn<OnHost>)>(
      "flotilla::squashed_actions", Maybe(in.mean), Maybe(in.log_std), in.low,
      in.high, Maybe(in.stream), rows);
}

torch::Tensor NormalDraws(int64_t seed, int64_t place, at::IntArrayRef sizes,
                          torch::Device device) {
  const torch::Tensor to =
      torch::empty(sizes, torch::dtype(torch::kFloat32).device(device));
  Call<decltype(&NormalDrawsOn<OnHost>)>("flotilla::normal_draws", to, seed,
                                         place);
  return to;
}

}  // namespace flotilla
