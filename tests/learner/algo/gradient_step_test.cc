#include "learner/algo/gradient_step.h"

#include <limits>

#include "gtest/gtest.h"
#include "learner/collective/solo_collective.h"
#include "learner/nn/actor_critic.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

ActorCritic MakeNet() {
  ActorCritic net =
      ActorCritic::Make(VectorSpaces(4, 2), v1::ModelConfig(), torch::kCPU)
          .value();
  net.Initialize(1);
  return net;
}

TEST(GradientStepTest, IsTorchsClipAndAdam) {
  ActorCritic net = MakeNet();
  v1::OptimizerConfig config;
  GradientStep step(net.Flat(), config);
  torch::Tensor twin = net.parameters().clone().set_requires_grad(true);
  torch::optim::Adam adam({twin},
                          torch::optim::AdamOptions(config.learning_rate())
                              .eps(config.epsilon())
                              .betas({config.beta1(), config.beta2()}));
  SoloCollective alone;
  torch::manual_seed(8);
  for (int i = 0; i < 20; ++i) {
    const double samples = 128;
    const torch::Tensor sum =
        torch::randn_like(twin) * samples * (i + 1) * 0.01;
    net.gradients().copy_(sum);
    const auto result = step.Apply(&alone, samples, 0, config.learning_rate());
    ASSERT_TRUE(result.ok());
    twin.mutable_grad() = sum / samples;
    const double norm =
        torch::nn::utils::clip_grad_norm_({twin}, config.max_grad_norm());
    adam.step();
    EXPECT_NEAR(result->grad_norm, norm, 1e-4 * norm);
    torch::NoGradGuard no_grad;
    EXPECT_LT((net.parameters() - twin).abs().max().item<double>(), 1e-6)
        << "step " << i;
  }
}

TEST(GradientStepTest, AGradientThatIsNotFiniteChangesNothing) {
  ActorCritic net = MakeNet();
  GradientStep step(net.Flat(), v1::OptimizerConfig());
  SoloCollective alone;
  const torch::Tensor before = net.parameters().clone();
  net.gradients().fill_(1);
  net.gradients()[17] = std::numeric_limits<float>::quiet_NaN();
  const auto result = step.Apply(&alone, 1, 0, 1e-3);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(torch::equal(net.parameters(), before));
  EXPECT_EQ(step.State()[2].tensor.item<int64_t>(), 0);
}

TEST(GradientStepTest, NoSamplesAnywhereChangesNothing) {
  ActorCritic net = MakeNet();
  GradientStep step(net.Flat(), v1::OptimizerConfig());
  SoloCollective alone;
  const torch::Tensor before = net.parameters().clone();
  net.gradients().fill_(1);
  ASSERT_TRUE(step.Apply(&alone, 0, 0, 1e-3).ok());
  EXPECT_TRUE(torch::equal(net.parameters(), before));
}

}  // namespace
}  // namespace flotilla
