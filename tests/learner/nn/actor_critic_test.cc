#include "learner/nn/actor_critic.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/kernels/mlp_shape.h"
#include "learner/torch_nn.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

std::unique_ptr<ActorCritic> MakeNet(const Spaces& spaces,
                                     const v1::ModelConfig& config = {}) {
  return ActorCritic::Make(spaces, config, torch::kCPU).value();
}

TEST(ActorCriticTest, ParameterCountsAreCleanRls) {
  EXPECT_EQ(MakeNet(VectorSpaces(4, 2))->num_parameters(), 9155);
  EXPECT_EQ(MakeNet(AtariSpaces(4))->num_parameters(), 1686693);  // Breakout
  EXPECT_EQ(MakeNet(AtariSpaces(6))->num_parameters(), 1687719);  // Pong
}

TEST(ActorCriticTest, ResnetHasTheParametersOfThePaper) {
  v1::ModelConfig config;
  config.set_encoder(v1::RESNET);
  const auto net = MakeNet(AtariSpaces(4), config);
  // Espeholt et al. 2018, figure 3: 3 stages of 5 convolutions 3 x 3 with 16,
  // 32 and 32 channels on 4 frames, pooled from 84 to 42, 21 and 11.
  auto convolution = [](int64_t in, int64_t out) { return out * (9 * in + 1); };
  const int64_t convolutions = convolution(4, 16) + 4 * convolution(16, 16) +
                               convolution(16, 32) + 9 * convolution(32, 32);
  EXPECT_EQ(convolutions, 97744);
  const int64_t linear = 256 * (32 * 11 * 11 + 1);
  EXPECT_EQ(net->num_parameters(), convolutions + linear + 257 * (4 + 1));
  EXPECT_EQ(net->Named()[2].name, "trunk.0.res_block0.conv0.weight");
  EXPECT_EQ(net->Named()[30].name, "trunk.5.weight");
}

// torch.nn's modules put together as CleanRL's ppo_procgen.py does.
TEST(ActorCriticTest, ResnetIsTorchsModules) {
  v1::ModelConfig config;
  config.set_encoder(v1::RESNET);
  config.add_hidden(20);
  // Odd, and smaller than NATURE_CNN takes.
  const auto net = MakeNet(FrameSpaces(21, 14, 3), config);
  net->Initialize(1);
  torch::manual_seed(2);
  net->parameters().add_(0.02 * torch::randn_like(net->parameters()));
  std::map<std::string, torch::Tensor> weights;
  for (const NamedTensor& t : net->Named()) weights[t.name] = t.tensor;

  torch::NoGradGuard no_grad;
  auto convolve = [&](const std::string& name, const torch::Tensor& x) {
    const torch::Tensor& w = weights.at(name + ".weight");
    torch::nn::Conv2d module(
        torch::nn::Conv2dOptions(w.size(1), w.size(0), 3).padding(1));
    module->weight.copy_(w);
    module->bias.copy_(weights.at(name + ".bias"));
    return module(x);
  };
  const torch::Tensor frames =
      torch::randint(0, 256, {2, 4, 21, 14}, torch::kUInt8);
  torch::Tensor x = frames.to(torch::kFloat32) / 255.0;
  for (int stage = 0; stage < 3; ++stage) {
    const std::string at = "trunk." + std::to_string(stage);
    x = torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(
        1))(convolve(at + ".conv", x));
    for (const char* block : {".res_block0", ".res_block1"}) {
      torch::Tensor y = convolve(at + block + ".conv0", torch::relu(x));
      x = x + convolve(at + block + ".conv1", torch::relu(y));
    }
  }
  x = torch::relu(torch::linear(torch::relu(x.flatten(1)),
                                weights.at("trunk.5.weight"),
                                weights.at("trunk.5.bias")));
  const auto out = net->Forward({{frames}});
  EXPECT_TRUE(torch::allclose(
      out.policy,
      torch::linear(x, weights.at("policy.weight"), weights.at("policy.bias")),
      1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(
      out.value,
      torch::linear(x, weights.at("value.weight"), weights.at("value.bias"))
          .squeeze(1),
      1e-4, 1e-5));
}

// CleanRL's ppo_atari_lstm.py on four frames: 512 features, LSTM of 128.
TEST(ActorCriticTest, RecurrentLayersAreCleanRls) {
  v1::ModelConfig config;
  config.set_recurrent(v1::LSTM);
  EXPECT_EQ(MakeNet(AtariSpaces(4), config)->num_parameters(),
            1684128 + 4 * 128 * (512 + 128 + 2) + 129 * (4 + 1));
  const auto net = MakeNet(VectorSpaces(4, 2), config);
  EXPECT_EQ(net->state_size(), 2 * 128);
  net->Initialize(1);
  int seen = 0;
  for (const NamedTensor& t : net->Named()) {
    if (t.name.rfind("lstm.", 0) != 0) continue;
    ++seen;
    if (t.tensor.dim() == 1) {
      EXPECT_EQ(t.tensor.abs().max().item<float>(), 0) << t.name;
      continue;
    }
    // Orthogonal columns or rows of length 1.
    const torch::Tensor w =
        t.tensor.size(0) <= t.tensor.size(1) ? t.tensor : t.tensor.t();
    EXPECT_TRUE(
        torch::allclose(torch::mm(w, w.t()), torch::eye(w.size(0)), 1e-4, 1e-5))
        << t.name;
  }
  EXPECT_EQ(seen, 4);
  config.set_recurrent(v1::GRU);
  config.set_recurrent_layers(2);
  const auto gru = MakeNet(VectorSpaces(4, 2), config);
  EXPECT_EQ(gru->state_size(), 2 * 128);
  EXPECT_EQ(gru->Named()[4].name, "gru.weight_ih_l0");
  EXPECT_EQ(gru->Named()[8].name, "gru.weight_ih_l1");
  EXPECT_EQ(gru->Named()[8].tensor.sizes().vec(),
            (std::vector<int64_t>{3 * 128, 128}));
}

TEST(ActorCriticTest, LayoutAndNamesAreTheKernels) {
  for (bool continuous : {false, true}) {
    for (bool share : {false, true}) {
      v1::ModelConfig config;
      config.set_share_trunk(share);
      config.add_hidden(5);
      config.add_hidden(7);
      const Spaces spaces =
          continuous ? ContinuousSpaces(3, 2) : VectorSpaces(3, 2);
      const auto net = MakeNet(spaces, config);
      const auto blocks = ParameterLayout(net->KernelShape().value());
      const auto named = net->Named();
      ASSERT_EQ(named.size(), blocks.size());
      const float* base = net->parameters().data_ptr<float>();
      for (size_t i = 0; i < named.size(); ++i) {
        EXPECT_EQ(named[i].name, blocks[i].name);
        EXPECT_EQ(named[i].tensor.sizes().vec(), blocks[i].shape);
        EXPECT_EQ(named[i].tensor.data_ptr<float>() - base, blocks[i].offset);
      }
    }
  }
}

TEST(ActorCriticTest, WeightsStartOrthogonalWithCleanRlsGains) {
  const auto net = MakeNet(VectorSpaces(4, 2));
  net->Initialize(1);
  for (const NamedTensor& t : net->Named()) {
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
  const auto a = MakeNet(AtariSpaces(4)), b = MakeNet(AtariSpaces(4)),
             c = MakeNet(AtariSpaces(4));
  a->Initialize(3);
  b->Initialize(3);
  c->Initialize(4);
  EXPECT_TRUE(torch::equal(a->parameters(), b->parameters()));
  EXPECT_FALSE(torch::equal(a->parameters(), c->parameters()));
}

TEST(ActorCriticTest, GradientsLandInTheFlatBuffer) {
  const auto net = MakeNet(VectorSpaces(4, 2));
  net->Initialize(1);
  const auto out = net->Forward({{torch::ones({3, 4})}});
  (out.policy.sum() + out.value.sum()).backward();
  EXPECT_GT(net->gradients().abs().sum().item<float>(), 0);
  // The last block is the actor's output bias: three rows of ones.
  EXPECT_FLOAT_EQ(net->gradients()[-1].item<float>(), 3);
}

TEST(ActorCriticTest, ACloneHasWeightsOfItsOwn) {
  const auto net = MakeNet(VectorSpaces(4, 2));
  net->Initialize(1);
  const auto copy = net->Clone();
  const torch::Tensor before = copy->parameters().clone();
  net->parameters().add_(1);
  EXPECT_TRUE(torch::equal(copy->parameters(), before));
}

TEST(ActorCriticTest, AnEncoderThatDoesNotFitIsNamed) {
  v1::ModelConfig config;
  config.set_encoder(v1::NATURE_CNN);
  const auto made = ActorCritic::Make(VectorSpaces(4, 2), config, torch::kCPU);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()),
              testing::HasSubstr("NATURE_CNN"));
}

}  // namespace
}  // namespace flotilla
