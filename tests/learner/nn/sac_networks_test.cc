#include "learner/nn/sac_networks.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "learner/nn/squashed_policy.h"
#include "tests/testing/bounded_spaces.h"

namespace flotilla {
namespace {

v1::ModelConfig CleanRls() {
  v1::ModelConfig config;
  config.add_hidden(256);
  config.add_hidden(256);
  config.set_activation(v1::RELU);
  return config;
}

std::vector<std::string> Names(const FlatParameters& flat) {
  std::vector<std::string> names;
  for (const NamedTensor& t : flat.named) names.push_back(t.name);
  return names;
}

// An image beside a vector, and two action values.
Spaces MixedSpaces() {
  v1::EnvSpec spec;
  v1::Leaf* goal = spec.add_observation();
  goal->set_path("goal");
  goal->set_dtype(v1::FLOAT32);
  goal->add_shape(3);
  v1::Leaf* image = spec.add_observation();
  image->set_path("rgb");
  image->set_dtype(v1::UINT8);
  for (const int64_t d : {40, 40, 3}) image->add_shape(d);
  v1::Leaf* action = spec.add_action();
  action->set_dtype(v1::FLOAT32);
  action->add_shape(2);
  action->add_low(-1);
  action->add_high(1);
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

Batch RandomBatch(const Spaces& spaces, int64_t n) {
  Batch batch;
  for (const LeafSpec& leaf : spaces.observation) {
    const std::vector<int64_t> shape = BatchShape(leaf, n);
    batch.leaf.push_back(leaf.dtype == v1::UINT8
                             ? torch::randint(0, 256, shape, torch::kUInt8)
                             : torch::randn(shape));
  }
  return batch;
}

TEST(SacNetworksTest, ForAVectorLayersAreCleanRls) {
  const Spaces spaces = BoundedSpaces(3, {-2}, {2});
  const SacActor actor =
      SacActor::Make(spaces, CleanRls(), torch::kCPU).value();
  EXPECT_EQ(actor.Flat().size(), 4 * 256 + 257 * 256 + 2 * 257);
  EXPECT_EQ(Names(actor.Flat()),
            (std::vector<std::string>{
                "actor.0.weight", "actor.0.bias", "actor.2.weight",
                "actor.2.bias", "actor_mean.weight", "actor_mean.bias",
                "actor_logstd.weight", "actor_logstd.bias"}));
  const TwinCritics critics =
      TwinCritics::Make(spaces, CleanRls(), torch::kCPU).value();
  EXPECT_EQ(critics.Flat().size(), 2 * (5 * 256 + 257 * 256 + 257));
  const std::vector<std::string> names = Names(critics.Flat());
  EXPECT_EQ(names[0], "critic1.0.weight");
  EXPECT_EQ(names[5], "critic1_q.bias");
  EXPECT_EQ(names[6], "critic2.0.weight");
  // Observation first, then action, through relu.
  TwinCritics net = critics.Clone();
  net.Initialize(1);
  const torch::Tensor seen = torch::randn({7, 3}), action = torch::rand({7, 1});
  const auto at = [&](int i) { return net.Flat().named[i].tensor; };
  torch::Tensor x = torch::cat({seen, action}, 1);
  x = torch::relu(torch::linear(x, at(0), at(1)));
  x = torch::relu(torch::linear(x, at(2), at(3)));
  x = torch::linear(x, at(4), at(5)).squeeze(1);
  EXPECT_TRUE(torch::allclose(net.Forward({{seen}}, action)[0], x));
}

void ExpectLayout(const FlatParameters& flat, const MlpShape& shape) {
  const std::vector<ParameterBlock> blocks = ParameterLayout(shape);
  ASSERT_EQ(flat.named.size(), blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const torch::Tensor& tensor = flat.named[i].tensor;
    EXPECT_EQ(flat.named[i].name, blocks[i].name);
    EXPECT_EQ(tensor.sizes().vec(), blocks[i].shape);
    EXPECT_EQ(tensor.data_ptr<float>() - flat.parameters.data_ptr<float>(),
              blocks[i].offset);
  }
}

TEST(SacNetworksTest, LayoutAndNamesAreTheKernels) {
  const Spaces spaces = BoundedSpaces(3, {-2, 0}, {2, 1});
  for (const v1::Activation activation : {v1::RELU, v1::TANH}) {
    v1::ModelConfig config = CleanRls();
    config.set_activation(activation);
    const SacActor actor = SacActor::Make(spaces, config, torch::kCPU).value();
    const TwinCritics critics =
        TwinCritics::Make(spaces, config, torch::kCPU).value();
    const MlpShape shape = actor.KernelShape().value();
    ExpectLayout(actor.Flat(), shape);
    ExpectLayout(critics.Flat(), critics.KernelShape().value());
    EXPECT_EQ(shape.activation == Activation::kRelu, activation == v1::RELU);
  }
}

TEST(SacNetworksTest, KernelsTakeOneVector) {
  const v1::ModelConfig config;
  for (const Spaces& spaces :
       {MixedSpaces(), BoundedSpaces(3, {-1, -1}, {1, 1}, /*stack=*/4)}) {
    EXPECT_FALSE(SacActor::Make(spaces, config, torch::kCPU)
                     .value()
                     .KernelShape()
                     .has_value());
    EXPECT_FALSE(TwinCritics::Make(spaces, config, torch::kCPU)
                     .value()
                     .KernelShape()
                     .has_value());
  }
}

TEST(SacNetworksTest, LogStandardDeviationsStayWithinTheirBounds) {
  torch::manual_seed(1);
  const Spaces spaces = BoundedSpaces(3, {-2}, {2});
  SacActor actor = SacActor::Make(spaces, CleanRls(), torch::kCPU).value();
  actor.Initialize(1);
  const torch::Tensor some = actor.Forward({{torch::randn({9, 3})}}).log_std;
  EXPECT_GT(some.min().item<float>(), -3.5);  // about the middle, -1.5
  EXPECT_LT(some.max().item<float>(), 0.5);
  const torch::Tensor wild =
      actor.Forward({{torch::randn({500, 3}) * 1e4}}).log_std;
  EXPECT_GE(wild.min().item<float>(), -5);
  EXPECT_LE(wild.max().item<float>(), 2);
  EXPECT_GT(wild.max().item<float>() - wild.min().item<float>(), 6);
}

TEST(SacNetworksTest, SeedsDecideAndCriticsDiffer) {
  torch::manual_seed(1);
  const Spaces spaces = BoundedSpaces(3, {-2}, {2});
  TwinCritics net = TwinCritics::Make(spaces, CleanRls(), torch::kCPU).value();
  net.Initialize(1);
  const torch::Tensor first = net.Flat().parameters.clone();
  const auto [q1, q2] =
      net.Forward({{torch::randn({9, 3})}}, torch::randn({9, 1}));
  EXPECT_GT((q1 - q2).abs().min().item<float>(), 1e-5);
  net.Initialize(2);
  EXPECT_FALSE(torch::equal(first, net.Flat().parameters));
  net.Initialize(1);
  EXPECT_TRUE(torch::equal(first, net.Flat().parameters));
  const TwinCritics copy = net.Clone();
  net.Flat().parameters.zero_();
  EXPECT_TRUE(torch::equal(first, copy.Flat().parameters));
}

// Of several leaves, of one image, and of values to embed: the action counts, and
// gradients come back through it.
TEST(SacNetworksTest, AnyObservationTakesAnActionBesideIt) {
  v1::EnvSpec pixels = OneLeafSpec(v1::UINT8, {40, 40, 3});
  v1::Leaf* action = pixels.add_action();
  action->set_dtype(v1::FLOAT32);
  action->add_shape(2);
  action->add_low(-1);
  action->add_high(1);
  v1::ModelConfig config;
  config.add_hidden(16);
  torch::manual_seed(1);
  for (const Spaces& spaces :
       {MixedSpaces(), DescribeSpaces(pixels, config).value()}) {
    TwinCritics net = TwinCritics::Make(spaces, config, torch::kCPU).value();
    net.Initialize(1);
    SacActor actor = SacActor::Make(spaces, config, torch::kCPU).value();
    actor.Initialize(1);
    const Batch seen = RandomBatch(spaces, 4);
    const torch::Tensor mean = actor.Forward(seen).mean;
    EXPECT_EQ(mean.sizes(), (std::vector<int64_t>{4, 2}));
    const auto q = net.Forward(seen, mean);
    EXPECT_EQ(q[0].sizes(), (std::vector<int64_t>{4}));
    const auto other = net.Forward(seen, mean + 1);
    EXPECT_GT((q[0] - other[0]).abs().min().item<float>(), 1e-6);
    EXPECT_GT((q[1] - other[1]).abs().min().item<float>(), 1e-6);
    actor.Flat().gradients.zero_();
    (q[0] + q[1]).sum().backward();
    EXPECT_GT(actor.Flat().gradients.abs().max().item<float>(), 0);
  }
}

TEST(SacNetworksTest, AnEncoderThatDoesNotFitIsRefused) {
  v1::ModelConfig config;
  config.set_encoder(v1::NATURE_CNN);
  const Spaces spaces = BoundedSpaces(3, {-2}, {2});
  EXPECT_EQ(SacActor::Make(spaces, config, torch::kCPU).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TwinCritics::Make(spaces, config, torch::kCPU).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// ---- What acts

struct Acting {
  Acting()
      : spaces(BoundedSpaces(3, {-2}, {2})),
        actor(SacActor::Make(spaces, CleanRls(), torch::kCPU).value()),
        gaussian(SquashedGaussian::Make(spaces.action, torch::kCPU).value()) {
    actor.Initialize(1);
    torch::manual_seed(1);
    seen = torch::randn({kRows, 3});
  }

  std::vector<float> Decide(Policy* policy, bool greedy) const {
    std::vector<float> action(kRows), log_prob(kRows, 7), value(kRows, 7);
    Draws draws(4);
    const void* leaf = seen.data_ptr();
    policy->Decide({.leaf = &leaf, .rows = kRows}, greedy, &draws,
                   {.continuous = action.data(),
                    .log_prob = log_prob.data(),
                    .value = value.data()});
    EXPECT_EQ(log_prob, std::vector<float>(kRows, 0));
    EXPECT_EQ(value, std::vector<float>(kRows, 0));
    return action;
  }

  static constexpr int64_t kRows = 500;
  const Spaces spaces;
  SacActor actor;
  const SquashedGaussian gaussian;
  torch::Tensor seen;
};

TEST(SquashedPolicyTest, GreedyIsTheMeanEvenBeforeLearningStarts) {
  const Acting acting;
  SquashedPolicy policy(&acting.actor, acting.gaussian);
  const std::vector<float> greedy = acting.Decide(&policy, true);
  torch::NoGradGuard no_grad;
  const torch::Tensor mean = acting.actor.Forward({{acting.seen}}).mean;
  for (int64_t r = 0; r < Acting::kRows; ++r) {
    EXPECT_NEAR(greedy[r], 2 * std::tanh(mean[r][0].item<float>()), 1e-5);
  }
  policy.set_uniform(true);
  EXPECT_EQ(acting.Decide(&policy, true), greedy);
}

TEST(SquashedPolicyTest, DrawsFollowTheActorAndAreUniformWhenTold) {
  const Acting acting;
  SquashedPolicy policy(&acting.actor, acting.gaussian);
  const auto spread = [&] {
    double sum = 0;
    for (const float a : acting.Decide(&policy, false)) {
      EXPECT_LE(std::abs(a), 2);
      sum += double{a} * a;
    }
    return std::sqrt(sum / Acting::kRows);
  };
  torch::NoGradGuard no_grad;
  const SacActor::Output output = acting.actor.Forward({{acting.seen}});
  const torch::Tensor many =
      acting.gaussian
          .Draw(output.mean.repeat({100, 1}), output.log_std.repeat({100, 1}),
                torch::randn({100 * Acting::kRows, 1}))
          .action;
  EXPECT_NEAR(spread(), many.square().mean().sqrt().item<double>(), 0.1);
  policy.set_uniform(true);
  EXPECT_NEAR(spread(), 2 / std::sqrt(3), 0.1);
}

TEST(SquashedPolicyTest, AFrozenPolicyKeepsItsWeights) {
  const Acting acting;
  SquashedPolicy live(&acting.actor, acting.gaussian);
  const std::vector<float> before = acting.Decide(&live, false);
  const auto frozen =
      MakeFrozenSquashedPolicy(acting.actor, acting.gaussian, false);
  acting.actor.Flat().parameters.mul_(-1);
  EXPECT_EQ(acting.Decide(frozen.get(), false), before);
  EXPECT_NE(acting.Decide(&live, false), before);
}

}  // namespace
}  // namespace flotilla
