#include "learner/nn/actor_critic.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/nn/mlp_shape_of.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

ActorCritic MakeNet(const Spaces& spaces, const v1::ModelConfig& config = {}) {
  return ActorCritic::Make(spaces, config, torch::kCPU).value();
}

TEST(ActorCriticTest, ParameterCountsAreCleanRls) {
  EXPECT_EQ(MakeNet(VectorSpaces(4, 2)).num_parameters(), 9155);
  EXPECT_EQ(MakeNet(AtariSpaces(4)).num_parameters(), 1686693);  // Breakout
  EXPECT_EQ(MakeNet(AtariSpaces(6)).num_parameters(), 1687719);  // Pong
}

TEST(ActorCriticTest, LayoutAndNamesAreTheKernels) {
  for (bool continuous : {false, true}) {
    for (bool share : {false, true}) {
      v1::ModelConfig config;
      config.set_share_trunk(share);
      config.add_hidden(5);
      config.add_hidden(7);
      Spaces spaces = VectorSpaces(3, 2);
      spaces.continuous = continuous;
      const ActorCritic net = MakeNet(spaces, config);
      const auto blocks = ParameterLayout(MlpShapeOf(net).value());
      const auto named = net.Named();
      ASSERT_EQ(named.size(), blocks.size());
      const float* base = net.parameters().data_ptr<float>();
      for (size_t i = 0; i < named.size(); ++i) {
        EXPECT_EQ(named[i].name, blocks[i].name);
        EXPECT_EQ(named[i].tensor.sizes().vec(), blocks[i].shape);
        EXPECT_EQ(named[i].tensor.data_ptr<float>() - base, blocks[i].offset);
      }
    }
  }
}

TEST(ActorCriticTest, WeightsStartOrthogonalWithCleanRlsGains) {
  ActorCritic net = MakeNet(VectorSpaces(4, 2));
  net.Initialize(1);
  for (const NamedTensor& t : net.Named()) {
    if (t.tensor.dim() == 1) {
      EXPECT_EQ(t.tensor.abs().max().item<float>(), 0) << t.name;
      continue;
    }
    const double gain = t.name == "actor.4.weight"    ? 0.01
                        : t.name == "critic.4.weight" ? 1.0
                                                      : std::sqrt(2.0);
    // Rows (or columns, whichever are fewer) are orthogonal and of length gain.
    const torch::Tensor w =
        t.tensor.size(0) <= t.tensor.size(1) ? t.tensor : t.tensor.t();
    const torch::Tensor want = torch::eye(w.size(0)) * gain * gain;
    EXPECT_TRUE(torch::allclose(torch::mm(w, w.t()), want, 1e-4, 1e-5))
        << t.name;
  }
}

TEST(ActorCriticTest, TheSameSeedGivesTheSameWeights) {
  ActorCritic a = MakeNet(AtariSpaces(4)), b = MakeNet(AtariSpaces(4)),
              c = MakeNet(AtariSpaces(4));
  a.Initialize(3);
  b.Initialize(3);
  c.Initialize(4);
  EXPECT_TRUE(torch::equal(a.parameters(), b.parameters()));
  EXPECT_FALSE(torch::equal(a.parameters(), c.parameters()));
}

TEST(ActorCriticTest, GradientsLandInTheFlatBuffer) {
  ActorCritic net = MakeNet(VectorSpaces(4, 2));
  net.Initialize(1);
  const auto out = net.Forward(torch::ones({3, 4}));
  (out.policy.sum() + out.value.sum()).backward();
  EXPECT_GT(net.gradients().abs().sum().item<float>(), 0);
  // The last block is the actor's output bias: three rows of ones.
  EXPECT_FLOAT_EQ(net.gradients()[-1].item<float>(), 3);
}

TEST(ActorCriticTest, ACloneHasWeightsOfItsOwn) {
  ActorCritic net = MakeNet(VectorSpaces(4, 2));
  net.Initialize(1);
  const ActorCritic copy = net.Clone();
  const torch::Tensor before = copy.parameters().clone();
  net.parameters().add_(1);
  EXPECT_TRUE(torch::equal(copy.parameters(), before));
}

TEST(ActorCriticTest, AnEncoderThatDoesNotFitIsNamed) {
  v1::ModelConfig config;
  config.set_encoder(v1::NATURE_CNN);
  const auto net = ActorCritic::Make(VectorSpaces(4, 2), config, torch::kCPU);
  EXPECT_EQ(net.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(net.status().message()),
              testing::HasSubstr("NATURE_CNN"));
}

}  // namespace
}  // namespace flotilla
