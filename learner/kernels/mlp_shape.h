#ifndef FLOTILLA_LEARNER_KERNELS_MLP_SHAPE_H_
#define FLOTILLA_LEARNER_KERNELS_MLP_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace flotilla {

enum class Activation { kTanh, kRelu };

// What is on top of the hidden layers of an MLP.
enum class MlpOutput {
  kActorCritic,
  kQ,
  kDuelingQ,
  kSquashedGaussian,
  kTwinCritics
};

// An MLP actor-critic, with policy and value apart or on one trunk:
//
//   observation -> critic hidden -> value
//   observation -> actor hidden  -> policy
//
//                                +-> value
//   observation -> trunk hidden -+
//                                +-> policy
//
// The policy is a categorical over `actions` logits, or one for each of several
// choices, or, if `continuous`, a Gaussian over `actions` dimensions whose log standard deviation is a
// parameter of its own and does not depend on the state.
//
// Or a Q network, all ReLU, whose heads have a layer of their own, as wide as the
// last hidden one (QNetwork in learner/nn):
//
//   observation -> hidden -> hidden of q -> Q
//
//                         +-> hidden of advantage -> advantage A -+
//   observation -> hidden +                                       +-> Q
//                         +-> hidden of value     -> value V     -+
//
// where Q = A - mean(A) + V (dueling, Wang et al. 2016).
//
// Or one of soft actor-critic's (SacActor and TwinCritics in learner/nn), of which the
// critics see D observations and then the action's values:
//
//                          +-> means
//   observation -> hidden -+
//                          +-> log standard deviations, before they are bounded
//
//   observation, action -> hidden of critic 1 -> Q1
//   observation, action -> hidden of critic 2 -> Q2
struct MlpShape {
  int observations = 0;     // D, at least 1
  std::vector<int> hidden;  // widths; at least one layer
  Activation activation = Activation::kTanh;
  bool share_trunk = false;
  int actions = 0;  // A, at least 1
  bool continuous = false;
  // But for an actor-critic `share_trunk` says nothing, and `continuous` is false.
  // Of twin critics `actions` is 1: each has one output.
  MlpOutput output = MlpOutput::kActorCritic;
  // Of an actor-critic with several choices, how many values each has; their logits
  // lie end to end, `actions` in all. Empty: one choice.
  std::vector<int> choices = {};
  // Of an actor-critic: hidden layers multiply what is rounded to bfloat16, and sum in
  // float32. Weights, what is between layers and the heads are float32.
  bool bfloat16 = false;

  // K of discrete actions.
  int choice_count() const {
    return choices.empty() ? 1 : static_cast<int>(choices.size());
  }
};

// One parameter tensor inside the flat buffer.
struct ParameterBlock {
  std::string name;
  int64_t offset = 0;          // of its first float
  std::vector<int64_t> shape;  // [out, in] of a weight, row-major, or [n]

  int64_t size() const;
};

// Where each tensor of a network lies in its one float32 buffer, end to end and
// in this order; weights are [out, in] as torch.nn.Linear keeps them:
//
//   apart    actor_logstd (continuous only)
//            critic.0.weight  critic.0.bias  critic.2.weight ...
//            actor.0.weight   actor.0.bias   actor.2.weight ...
//   shared   actor_logstd (continuous only)
//            trunk.0.weight   trunk.0.bias   trunk.2.weight ...
//            policy.weight  policy.bias  value.weight  value.bias
//   Q        encoder.0.weight  encoder.0.bias  encoder.2.weight ...
//            q.0.weight  q.0.bias  q.2.weight  q.2.bias
//   dueling  likewise with advantage.0 to advantage.2.bias, then value.0 to
//            value.2.bias, for q
//   squashed actor.0.weight  actor.0.bias  actor.2.weight ...
//            actor_mean.weight  actor_mean.bias
//            actor_logstd.weight  actor_logstd.bias
//   critics  critic1.0.weight  critic1.0.bias  critic1.2.weight ...
//            critic1_q.weight  critic1_q.bias  critic2.0.weight ...
//
// The names are those of CleanRL's agents (odd numbers are the activations),
// with actor_mean for actor where actions are continuous.
std::vector<ParameterBlock> ParameterLayout(const MlpShape& shape);

// Floats in the buffer: 9155 for D = 4, hidden {64, 64}, A = 2.
int64_t ParameterCount(const MlpShape& shape);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_MLP_SHAPE_H_
