#ifndef FLOTILLA_LEARNER_CUDA_IMPLEMENT_H_
#define FLOTILLA_LEARNER_CUDA_IMPLEMENT_H_

#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "learner/cuda/launch.h"
#include "learner/torch.h"

// The operators of operators.h for one kind of device. Where::Run(args) runs the
// kernels of `args`: see launch.h.

namespace flotilla {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// The memory of tensors that have to lie on one device.
class Addresses {
 public:
  explicit Addresses(const Tensor& first) : device_(first.device()) {}

  // Of `numel` numbers of type T.
  template <typename T>
  T* Of(const char* name, const Tensor& t, int64_t numel) const {
    constexpr auto type = c10::CppTypeToScalarType<T>::value;
    TORCH_CHECK(t.device() == device_ && t.scalar_type() == type &&
                    t.is_contiguous() && t.numel() == numel,
                "flotilla: ", name, " is ", t.scalar_type(), " ", t.sizes(),
                " by ", t.strides(), " on ", t.device(), ", want ", numel,
                " numbers of ", type, " without gaps on ", device_);
    return t.data_ptr<T>();
  }
  // Null where there is none.
  template <typename T>
  T* Of(const char* name, const MaybeTensor& t, int64_t numel) const {
    return t.has_value() ? Of<T>(name, *t, numel) : nullptr;
  }

 private:
  const at::Device device_;
};

Tensor New(const Tensor& like, at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, like.options().dtype(type));
}

Tensor NewParts(const Tensor& like, int64_t n, int64_t sums) {
  return New(like, {BlocksFor(n), sums}, at::kDouble);
}

template <typename Where>
std::tuple<Tensor, Tensor, Tensor, Tensor> PpoLossOn(
    const Tensor& policy, const MaybeTensor& log_std, const Tensor& value,
    const MaybeTensor& mask, const Tensor& first_logit,
    const MaybeTensor& index, const MaybeTensor& discrete,
    const MaybeTensor& continuous, const Tensor& log_prob,
    const Tensor& old_value, const Tensor& returns, const Tensor& advantage,
    const MaybeTensor& mean_and_scale, double clip_ratio, double value_clip,
    double entropy_cost, double value_cost) {
  const Addresses at(policy);
  const int64_t M = policy.size(0), O = policy.size(1), S = log_prob.numel();
  const int64_t K = first_logit.numel() - 1;
  const int64_t A = continuous.has_value() ? continuous->size(-1) : 0;
  TORCH_CHECK(index.has_value() || M == S, "flotilla::ppo_loss: ", M,
              " rows of ", S, " steps want an index");
  TORCH_CHECK(discrete.has_value() == (K > 0) && log_std.has_value() == (A > 0),
              "flotilla::ppo_loss: ", K, " choices want discrete actions, ", A,
              " values a log_std");
  PpoLossArgs a;
  a.rows = M;
  a.choices = K;
  a.logits = O - A;
  a.continuous = A;
  a.first_logit = at.Of<int32_t>("first_logit", first_logit, K + 1);
  a.policy = at.Of<float>("policy", policy, M * O);
  if (log_std.has_value()) {
    a.log_std_per_row = log_std->dim() > 1;
    a.log_std = at.Of<float>("log_std", log_std, a.log_std_per_row ? M * A : A);
  }
  a.value = at.Of<float>("value", value, M);
  a.mask = at.Of<uint8_t>("mask", mask, M * (O - A));
  a.index = at.Of<int32_t>("index", index, M);
  a.discrete = at.Of<int64_t>("discrete", discrete, S * K);
  a.action = at.Of<float>("continuous", continuous, S * A);
  a.log_prob = at.Of<float>("log_prob", log_prob, S);
  a.old_value = at.Of<float>("old_value", old_value, S);
  a.returns = at.Of<float>("returns", returns, S);
  a.advantage = at.Of<float>("advantage", advantage, S);
  a.mean_and_scale = at.Of<float>("mean_and_scale", mean_and_scale, 2);
  a.clip_ratio = static_cast<float>(clip_ratio);
  a.value_clip = static_cast<float>(value_clip);
  a.entropy_cost = static_cast<float>(entropy_cost);
  a.value_cost = static_cast<float>(value_cost);
  const Tensor policy_slope = New(policy, {M, O}, at::kFloat);
  const Tensor log_std_slope = New(policy, {M, A}, at::kFloat);
  const Tensor value_slope = New(policy, {M}, at::kFloat);
  const Tensor sums = New(policy, {PpoLossArgs::kSums}, at::kDouble);
  const Tensor parts = NewParts(policy, M, PpoLossArgs::kSums);
  a.policy_slope = policy_slope.data_ptr<float>();
  a.log_std_slope = log_std_slope.data_ptr<float>();
  a.value_slope = value_slope.data_ptr<float>();
  a.sums = sums.data_ptr<double>();
  a.parts = parts.data_ptr<double>();
  Where::Run(a);
  return {policy_slope, log_std_slope, value_slope, sums};
}

template <typename Where>
Tensor AdvantageScaleOn(const Tensor& advantage, const Tensor& index) {
  const Addresses at(advantage);
  const Tensor result = New(advantage, {2}, at::kFloat);
  AdvantageScaleArgs a;
  a.rows = index.numel();
  TORCH_CHECK(a.rows > 0, "flotilla::advantage_scale: of no advantages");
  const Tensor parts = NewParts(advantage, a.rows, 2);
  a.advantage = at.Of<float>("advantage", advantage, advantage.numel());
  a.index = at.Of<int32_t>("index", index, a.rows);
  a.mean_and_scale = result.data_ptr<float>();
  a.parts = parts.data_ptr<double>();
  Where::Run(a);
  return result;
}

template <typename Where>
void AdamStepOn(const Tensor& parameters, const Tensor& moment1,
                const Tensor& moment2, const Tensor& done, const Tensor& count,
                const Tensor& gradient, const Tensor& learning_rate,
                const MaybeTensor& divisor, double host_divisor, double beta1,
                double beta2, double epsilon, double max_grad_norm,
                bool correct_bias) {
  const Addresses at(parameters);
  const int64_t P = parameters.numel();
  const Tensor now =
      New(parameters, {static_cast<int64_t>(sizeof(AdamFactors))}, at::kByte);
  const Tensor skip = New(parameters, {1}, at::kBool);
  const Tensor squares = NewParts(parameters, P, 1);
  AdamArgs a;
  a.size = P;
  a.gradient = at.Of<float>("gradient", gradient, P);
  a.parameters = at.Of<float>("parameters", parameters, P);
  a.moment1 = at.Of<float>("moment1", moment1, P);
  a.moment2 = at.Of<float>("moment2", moment2, P);
  a.done = at.Of<double>("done", done, 2);
  a.count = at.Of<double>("count", count, 1);
  a.learning_rate = at.Of<double>("learning_rate", learning_rate, 1);
  a.divisor = at.Of<float>("divisor", divisor, 1);
  a.host_divisor = host_divisor;
  a.options = {.beta1 = beta1,
               .beta2 = beta2,
               .epsilon = epsilon,
               .max_grad_norm = max_grad_norm,
               .correct_bias = correct_bias};
  a.now = static_cast<AdamFactors*>(now.data_ptr());
  a.skip = skip.data_ptr<bool>();
  a.squares = squares.data_ptr<double>();
  Where::Run(a);
}

// What GaeInput and VtraceInput have in common.
template <typename Input>
void FillTrace(const Addresses& at, const Tensor& reward, const Tensor& value,
               const Tensor& terminated, const Tensor& truncated,
               const Tensor& bootstrap_value, const Tensor& valid,
               double discount, double lambda, Input* in) {
  const int64_t T = reward.size(0), B = reward.size(1);
  in->length = T;
  in->rows = B;
  in->reward = at.Of<float>("reward", reward, T * B);
  in->value = at.Of<float>("value", value, (T + 1) * B);
  in->terminated = at.Of<uint8_t>("terminated", terminated, T * B);
  in->truncated = at.Of<uint8_t>("truncated", truncated, T * B);
  in->bootstrap_value = at.Of<float>("bootstrap_value", bootstrap_value, T * B);
  in->valid = at.Of<uint8_t>("valid", valid, T * B);
  in->discount = static_cast<float>(discount);
  in->lambda = static_cast<float>(lambda);
}

template <typename Where>
void GaeOn(const Tensor& reward, const Tensor& value, const Tensor& terminated,
           const Tensor& truncated, const Tensor& bootstrap_value,
           const Tensor& valid, double discount, double lambda,
           const Tensor& advantage, const Tensor& returns) {
  const Addresses at(reward);
  GaeArgs a;
  FillTrace(at, reward, value, terminated, truncated, bootstrap_value, valid,
            discount, lambda, &a.in);
  a.advantage = at.Of<float>("advantage", advantage, reward.numel());
  a.returns = at.Of<float>("returns", returns, reward.numel());
  Where::Run(a);
}

template <typename Where>
void VtraceOn(const Tensor& reward, const Tensor& value,
              const Tensor& terminated, const Tensor& truncated,
              const Tensor& bootstrap_value, const Tensor& valid,
              const Tensor& log_prob, const Tensor& actor_log_prob,
              double discount, double lambda, double rho_clip, double c_clip,
              double pg_rho_clip, const Tensor& target,
              const Tensor& advantage) {
  const Addresses at(reward);
  const int64_t n = reward.numel();
  VtraceArgs a;
  FillTrace(at, reward, value, terminated, truncated, bootstrap_value, valid,
            discount, lambda, &a.in);
  a.in.log_prob = at.Of<float>("log_prob", log_prob, n);
  a.in.actor_log_prob = at.Of<float>("actor_log_prob", actor_log_prob, n);
  a.in.rho_clip = static_cast<float>(rho_clip);
  a.in.c_clip = static_cast<float>(c_clip);
  a.in.pg_rho_clip = static_cast<float>(pg_rho_clip);
  a.target = at.Of<float>("target", target, n);
  a.advantage = at.Of<float>("advantage", advantage, n);
  Where::Run(a);
}

template <typename Where>
Tensor GatherStacksOn(const Tensor& arrays, const Tensor& shown,
                      const Tensor& index) {
  TORCH_CHECK(arrays.is_contiguous() && shown.dim() == 2,
              "flotilla: of arrays ", arrays.sizes(), " by ", arrays.strides(),
              ", steps show ", shown.sizes(),
              "; want arrays without gaps and [S, k]");
  const Addresses at(arrays);
  const int64_t S = shown.size(0), k = shown.size(1), M = index.numel();
  std::vector<int64_t> sizes = {M, k};
  for (int64_t i = 1; i < arrays.dim(); ++i) sizes.push_back(arrays.size(i));
  const Tensor stacks = New(arrays, sizes, arrays.scalar_type());
  const int64_t bytes = arrays.element_size() * arrays.stride(0);
  StacksArgs a;
  a.rows = M;
  a.stack = k;
  a.word_bytes = bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 1;
  a.words = bytes / a.word_bytes;
  a.arrays = arrays.data_ptr();
  a.shown = at.Of<int32_t>("shown", shown, S * k);
  a.index = at.Of<int32_t>("index", index, M);
  a.stacks = stacks.data_ptr();
  Where::Run(a);
  return stacks;
}

template <typename Where>
Tensor GatherRingOn(const Tensor& arrays, const Tensor& age,
                    const Tensor& place, const Tensor& slot,
                    const Tensor& finals, int64_t stack, int64_t offset) {
  const Addresses at(arrays);
  const int64_t M = place.numel(), F = slot.numel();
  TORCH_CHECK(arrays.is_contiguous() && arrays.dim() >= 2 &&
                  finals.dim() == 2 && F <= M,
              "flotilla: a ring of arrays ", arrays.sizes(), " by ",
              arrays.strides(), " with finals ", finals.sizes(), " and ", F,
              " slots of ", M, " places; want [N, B, ...] without gaps");
  const int64_t N = arrays.size(0), B = arrays.size(1);
  std::vector<int64_t> sizes = {M, stack};
  for (int64_t i = 2; i < arrays.dim(); ++i) sizes.push_back(arrays.size(i));
  const Tensor stacks = New(arrays, sizes, arrays.scalar_type());
  TORCH_CHECK(N > 0 && B > 0, "flotilla: a ring of no arrays");
  const auto bytes = static_cast<int64_t>(arrays.nbytes()) / (N * B);
  const int64_t all = bytes | offset | finals.size(1);
  RingArgs a;
  a.rows = M;
  a.ended = F;
  a.stack = stack;
  a.steps = static_cast<int32_t>(N);
  a.envs = static_cast<int32_t>(B);
  a.word_bytes = all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
  a.words = bytes / a.word_bytes;
  a.arrays = arrays.data_ptr();
  a.age = at.Of<uint8_t>("age", age, N * B);
  a.place = at.Of<int32_t>("place", place, M);
  a.slot = at.Of<int32_t>("slot", slot, F);
  a.finals = at.Of<uint8_t>("finals", finals, finals.numel());
  a.final_words = finals.size(1) / a.word_bytes;
  a.final_word = offset / a.word_bytes;
  a.stacks = stacks.data_ptr();
  Where::Run(a);
  return stacks;
}

// Where the nodes [2 L, 2] of a sum tree lie.
struct TreeAt {
  explicit TreeAt(const Tensor& tree) : leaves(tree.numel() / 4) {
    const Addresses at(tree);
    TORCH_CHECK(leaves > 0 && (leaves & (leaves - 1)) == 0,
                "flotilla: a tree of nodes ", tree.sizes(),
                ", want [2 L, 2] of a power of two");
    nodes = reinterpret_cast<SumNode*>(
        at.Of<double>("nodes", tree, 2 * leaves * 2));
  }

  const int64_t leaves;
  SumNode* nodes;
};

template <typename Where>
void MarkLeavesOn(const Tensor& nodes, const Tensor& largest,
                  const Tensor& leaf, const Tensor& mark) {
  const Addresses at(nodes);
  const TreeAt tree(nodes);
  MarkLeavesArgs a;
  a.leaves = tree.leaves;
  a.nodes = tree.nodes;
  a.largest = at.Of<double>("largest", largest, 1);
  a.count = leaf.numel();
  a.leaf = at.Of<int32_t>("leaf", leaf, a.count);
  a.mark = at.Of<int32_t>("mark", mark, a.count);
  Where::Run(a);
}

template <typename Where>
void SetLeafErrorsOn(const Tensor& nodes, const Tensor& largest,
                     const Tensor& leaf, const Tensor& error, double alpha) {
  const Addresses at(nodes);
  const TreeAt tree(nodes);
  const Tensor weight = New(nodes, {leaf.numel()}, at::kDouble);
  SetErrorsArgs a;
  a.leaves = tree.leaves;
  a.nodes = tree.nodes;
  a.largest = at.Of<double>("largest", largest, 1);
  a.count = leaf.numel();
  a.leaf = at.Of<int32_t>("leaf", leaf, a.count);
  a.error = at.Of<float>("error", error, a.count);
  a.alpha = alpha;
  a.weight = weight.data_ptr<double>();
  Where::Run(a);
}

template <typename Where>
std::tuple<Tensor, Tensor> FindLeavesOn(const Tensor& nodes, int64_t seed,
                                        int64_t place, double beta, int64_t n) {
  const TreeAt tree(nodes);
  const Tensor leaf = New(nodes, {n}, at::kInt);
  const Tensor importance = New(nodes, {n}, at::kFloat);
  FindLeavesArgs a;
  a.leaves = tree.leaves;
  a.nodes = tree.nodes;
  a.seed = static_cast<uint64_t>(seed);
  a.place = static_cast<uint64_t>(place);
  a.beta = beta;
  a.count = n;
  a.leaf = leaf.data_ptr<int32_t>();
  a.importance = importance.data_ptr<float>();
  Where::Run(a);
  return {leaf, importance};
}

template <typename Where>
Tensor ScalePixelsOn(const Tensor& pixels, double scale) {
  TORCH_CHECK(pixels.dim() == 4, "flotilla: pixels are ", pixels.sizes(),
              ", want [N, C, H, W]");
  const Addresses at(pixels);
  const int64_t N = pixels.size(0), C = pixels.size(1);
  const Tensor scaled =
      New(pixels, {N, pixels.size(2), pixels.size(3), C}, at::kFloat);
  PixelsArgs a;
  a.frames = N;
  a.channels = C;
  a.pixels = pixels.size(2) * pixels.size(3);
  a.scale = static_cast<float>(scale);
  a.from = at.Of<uint8_t>("pixels", pixels, pixels.numel());
  a.to = scaled.data_ptr<float>();
  Where::Run(a);
  return scaled.permute({0, 3, 1, 2});
}

// Numbers of an MLP of these widths that sees `observation`. Errors: throws, for what
// is wider or deeper than a kernel takes.
MlpLayers MlpOf(const Tensor& observation, at::IntArrayRef hidden,
                int64_t outputs, bool relu, bool share_trunk, int64_t log_std) {
  TORCH_CHECK(observation.dim() == 2, "flotilla: observation is ",
              observation.sizes(), ", want [R, D]");
  const int64_t D = observation.size(1);
  const auto within = [](int64_t n, int64_t most) {
    return n >= 1 && n <= most;
  };
  bool fits =
      within(static_cast<int64_t>(hidden.size()), MlpLayers::kMostHidden) &&
      within(D, MlpLayers::kMostObservations) &&
      within(outputs, MlpLayers::kWidest) &&
      (log_std == 0 || log_std == outputs);
  for (const int64_t n : hidden) fits = fits && within(n, MlpLayers::kWidest);
  TORCH_CHECK(fits, "flotilla: no MLP from ", D, " over ", hidden, " to ",
              outputs, " with ", log_std, " deviations");
  MlpLayers net;
  net.observations = static_cast<int>(D);
  for (const int64_t n : hidden) {
    net.hidden[net.hidden_count++] = static_cast<int>(n);
  }
  net.outputs = static_cast<int>(outputs);
  net.relu = relu;
  net.share_trunk = share_trunk;
  net.log_std = static_cast<int>(log_std);
  return net;
}

template <typename Where>
std::tuple<Tensor, Tensor, Tensor> MlpForwardOn(
    const Tensor& parameters, const Tensor& observation, at::IntArrayRef hidden,
    int64_t outputs, bool relu, bool share_trunk, int64_t log_std, bool keep) {
  const Addresses at(parameters);
  MlpForwardArgs a;
  a.net = MlpOf(observation, hidden, outputs, relu, share_trunk, log_std);
  const MlpLayer end = a.net.End();
  a.rows = observation.size(0);
  a.parameters = at.Of<float>("parameters", parameters, end.weight);
  a.observation =
      at.Of<float>("observation", observation, a.rows * a.net.observations);
  const Tensor policy = New(parameters, {a.rows, outputs}, at::kFloat);
  const Tensor value = New(parameters, {a.rows}, at::kFloat);
  const Tensor kept =
      New(parameters, {keep ? a.rows : 0, end.unit}, at::kFloat);
  a.policy = policy.data_ptr<float>();
  a.value = value.data_ptr<float>();
  a.units = end.unit;
  if (keep) a.kept = kept.data_ptr<float>();
  Where::Run(a);
  return {policy, value, kept};
}

template <typename Where>
void MlpBackwardOn(const Tensor& parameters, const Tensor& observation,
                   const Tensor& kept, const Tensor& policy_slope,
                   const Tensor& value_slope, const MaybeTensor& log_std_slope,
                   at::IntArrayRef hidden, int64_t outputs, bool relu,
                   bool share_trunk, int64_t log_std, const Tensor& gradient) {
  const Addresses at(parameters);
  MlpGradientArgs a;
  a.net = MlpOf(observation, hidden, outputs, relu, share_trunk, log_std);
  TORCH_CHECK(log_std_slope.has_value() || log_std == 0,
              "flotilla::mlp_backward: ", log_std,
              " deviations want a log_std_slope");
  const MlpLayer end = a.net.End();
  a.rows = observation.size(0);
  a.units = end.unit;
  a.parameter_count = end.weight;
  a.parameters = at.Of<float>("parameters", parameters, end.weight);
  a.observation =
      at.Of<float>("observation", observation, a.rows * a.net.observations);
  a.kept = at.Of<float>("kept", kept, a.rows * a.units);
  a.policy_slope = at.Of<float>("policy_slope", policy_slope, a.rows * outputs);
  a.value_slope = at.Of<float>("value_slope", value_slope, a.rows);
  a.log_std_slope =
      at.Of<float>("log_std_slope", log_std_slope, a.rows * log_std);
  a.gradient = at.Of<float>("gradient", gradient, end.weight);
  a.slices = MlpSlices(a);
  const Tensor slope = New(parameters, {a.rows, a.units}, at::kFloat);
  const Tensor parts = New(parameters, {a.slices, end.weight}, at::kFloat);
  a.slope = slope.data_ptr<float>();
  a.parts = parts.data_ptr<float>();
  Where::Run(a);
}

template <typename Where>
std::tuple<Tensor, Tensor, Tensor> SampleActionsOn(const Tensor& policy,
                                                   const MaybeTensor& log_std,
                                                   const MaybeTensor& mask,
                                                   const Tensor& first_logit,
                                                   const Tensor& stream) {
  const Addresses at(policy);
  const int64_t R = policy.size(0), O = policy.size(1);
  const int64_t K = first_logit.numel() - 1;
  const int64_t A = log_std.has_value() ? log_std->size(-1) : 0;
  SampleArgs a;
  a.rows = R;
  a.choices = K;
  a.logits = O - A;
  a.continuous = A;
  a.first_logit = at.Of<int32_t>("first_logit", first_logit, K + 1);
  a.policy = at.Of<float>("policy", policy, R * O);
  if (log_std.has_value()) {
    a.log_std_per_row = log_std->dim() > 1;
    a.log_std = at.Of<float>("log_std", log_std, a.log_std_per_row ? R * A : A);
  }
  a.mask = at.Of<uint8_t>("mask", mask, R * (O - A));
  a.stream = at.Of<int64_t>("stream", stream, 2);
  const Tensor discrete = New(policy, {R, K}, at::kLong);
  const Tensor action = New(policy, {R, A}, at::kFloat);
  const Tensor log_prob = New(policy, {R}, at::kFloat);
  a.discrete = discrete.data_ptr<int64_t>();
  a.action = action.data_ptr<float>();
  a.log_prob = log_prob.data_ptr<float>();
  Where::Run(a);
  return {discrete, action, log_prob};
}

template <typename Where>
Tensor ExploreActionsOn(const Tensor& value, const MaybeTensor& mask,
                        const Tensor& first_logit, const Tensor& stream,
                        const Tensor& epsilon) {
  const Addresses at(value);
  const int64_t R = value.size(0), L = value.size(1);
  const int64_t K = first_logit.numel() - 1;
  const Tensor discrete = New(value, {R, K}, at::kLong);
  ExploreArgs a;
  a.rows = R;
  a.choices = K;
  a.logits = L;
  a.first_logit = at.Of<int32_t>("first_logit", first_logit, K + 1);
  a.value = at.Of<float>("value", value, R * L);
  a.mask = at.Of<uint8_t>("mask", mask, R * L);
  a.stream = at.Of<int64_t>("stream", stream, 2);
  a.epsilon = at.Of<double>("epsilon", epsilon, 1);
  a.discrete = discrete.data_ptr<int64_t>();
  Where::Run(a);
  return discrete;
}

template <typename Where>
Tensor SquashedActionsOn(const MaybeTensor& mean, const MaybeTensor& log_std,
                         const Tensor& low, const Tensor& high,
                         const MaybeTensor& stream, int64_t rows) {
  TORCH_CHECK(
      mean.has_value() == log_std.has_value() &&
          (mean.has_value() || stream.has_value()),
      "flotilla::squashed_actions: a mean wants a log_std, and what has "
      "none a stream");
  const Addresses at(low);
  const int64_t A = low.numel();
  const Tensor action = New(low, {rows, A}, at::kFloat);
  SquashArgs a;
  a.rows = rows;
  a.values = A;
  a.mean = at.Of<float>("mean", mean, rows * A);
  a.log_std = at.Of<float>("log_std", log_std, rows * A);
  a.low = at.Of<float>("low", low, A);
  a.high = at.Of<float>("high", high, A);
  a.stream = at.Of<int64_t>("stream", stream, 2);
  a.action = action.data_ptr<float>();
  Where::Run(a);
  return action;
}

template <typename Where>
void NormalDrawsOn(const Tensor& to, int64_t seed, int64_t place) {
  const Addresses at(to);
  NormalsArgs a;
  a.count = to.numel();
  a.seed = static_cast<uint64_t>(seed);
  a.place = static_cast<uint64_t>(place);
  a.to = at.Of<float>("to", to, a.count);
  Where::Run(a);
}

template <typename Where>
void Implement(torch::Library* library) {
  library->impl("mlp_forward", TORCH_FN(MlpForwardOn<Where>));
  library->impl("mlp_backward", TORCH_FN(MlpBackwardOn<Where>));
  library->impl("ppo_loss", TORCH_FN(PpoLossOn<Where>));
  library->impl("advantage_scale", TORCH_FN(AdvantageScaleOn<Where>));
  library->impl("adam_step", TORCH_FN(AdamStepOn<Where>));
  library->impl("gae", TORCH_FN(GaeOn<Where>));
  library->impl("vtrace", TORCH_FN(VtraceOn<Where>));
  library->impl("gather_stacks", TORCH_FN(GatherStacksOn<Where>));
  library->impl("gather_ring", TORCH_FN(GatherRingOn<Where>));
  library->impl("mark_leaves", TORCH_FN(MarkLeavesOn<Where>));
  library->impl("set_leaf_errors", TORCH_FN(SetLeafErrorsOn<Where>));
  library->impl("find_leaves", TORCH_FN(FindLeavesOn<Where>));
  library->impl("scale_pixels", TORCH_FN(ScalePixelsOn<Where>));
  library->impl("sample_actions", TORCH_FN(SampleActionsOn<Where>));
  library->impl("explore_actions", TORCH_FN(ExploreActionsOn<Where>));
  library->impl("squashed_actions", TORCH_FN(SquashedActionsOn<Where>));
  library->impl("normal_draws", TORCH_FN(NormalDrawsOn<Where>));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_IMPLEMENT_H_
