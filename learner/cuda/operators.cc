#include "learner/cuda/operators.h"

#include <torch/library.h>

#include <type_traits>

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

torch::Tensor NormalDraws(int64_t seed, int64_t place, at::IntArrayRef sizes,
                          torch::Device device) {
  const torch::Tensor to =
      torch::empty(sizes, torch::dtype(torch::kFloat32).device(device));
  Call<decltype(&NormalDrawsOn<OnHost>)>("flotilla::normal_draws", to, seed,
                                         place);
  return to;
}

}  // namespace flotilla
