#include "learner/nn/q_network.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

QNetwork MakeNet(const Spaces& spaces, const v1::ModelConfig& config,
                 bool dueling = true) {
  QNetwork net = QNetwork::Make(spaces, config, dueling, torch::kCPU).value();
  net.Initialize(3);
  return net;
}

v1::ModelConfig CartPoleModel() {
  v1::ModelConfig config;
  for (int width : {128, 128, 64}) config.add_hidden(width);
  config.set_activation(v1::RELU);
  return config;
}

v1::ModelConfig PongModel() {
  v1::ModelConfig config;
  for (int width : {128, 128, 512}) config.add_conv_channels(width);
  config.add_hidden(512);
  return config;
}

TEST(QNetworkTest, ParameterCountsAreDiEngines) {
  EXPECT_EQ(MakeNet(AtariSpaces(6), PongModel()).Flat().size(), 14259975);
  // 4-128-128-64, then 64-64-2 and 64-64-1.
  EXPECT_EQ(MakeNet(VectorSpaces(4, 2), CartPoleModel()).Flat().size(), 33923);
  EXPECT_EQ(MakeNet(VectorSpaces(4, 2), CartPoleModel(), /*dueling=*/false)
                .Flat()
                .size(),
            33923 - 64 * 64 - 64 - 64 - 1);
}

TEST(QNetworkTest, ParametersAreViewsInTheirDocumentedOrder) {
  const QNetwork net = MakeNet(AtariSpaces(6), PongModel());
  const char* names[] = {"encoder.0",   "encoder.2",   "encoder.4", "encoder.7",
                         "advantage.0", "advantage.2", "value.0",   "value.2"};
  const auto named = net.Named();
  ASSERT_EQ(named.size(), 16);
  const float* next = net.Flat().parameters.data_ptr<float>();
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(named[i].name,
              std::string(names[i / 2]) + (i % 2 ? ".bias" : ".weight"));
    EXPECT_EQ(named[i].tensor.data_ptr<float>(), next);
    next += named[i].tensor.numel();
  }
  EXPECT_EQ(next - net.Flat().parameters.data_ptr<float>(), net.Flat().size());
  EXPECT_EQ(named[4].tensor.sizes(), (std::vector<int64_t>{512, 128, 3, 3}));
  EXPECT_EQ(named[6].tensor.sizes(), (std::vector<int64_t>{512, 25088}));
}

TEST(QNetworkTest, LayoutAndNamesAreTheKernels) {
  for (const bool dueling : {false, true}) {
    const QNetwork net = MakeNet(VectorSpaces(4, 2), CartPoleModel(), dueling);
    const auto blocks = ParameterLayout(net.KernelShape().value());
    const auto& named = net.Named();
    ASSERT_EQ(named.size(), blocks.size());
    const float* base = net.Flat().parameters.data_ptr<float>();
    for (size_t i = 0; i < named.size(); ++i) {
      EXPECT_EQ(named[i].name, blocks[i].name);
      EXPECT_EQ(named[i].tensor.sizes().vec(), blocks[i].shape);
      EXPECT_EQ(named[i].tensor.data_ptr<float>() - base, blocks[i].offset);
    }
  }
}

// Layer by layer in Torch's functions: ReLU after each convolution, none after
// the linear layer, one in each head (Wang et al. 2016, eq. 9).
TEST(QNetworkTest, FramesGoThroughDiEnginesLayers) {
  v1::ModelConfig config;
  for (int width : {4, 5, 6}) config.add_conv_channels(width);
  config.add_hidden(7);
  const QNetwork net = MakeNet(AtariSpaces(3), config);
  torch::manual_seed(1);
  const torch::Tensor frames =
      torch::randint(0, 256, {5, 4, 84, 84}, torch::kUInt8);
  torch::NoGradGuard no_grad;
  const auto p = net.Named();
  torch::Tensor x = frames.to(torch::kFloat32) / 255;
  x = torch::relu(torch::conv2d(x, p[0].tensor, p[1].tensor, 4));
  x = torch::relu(torch::conv2d(x, p[2].tensor, p[3].tensor, 2));
  x = torch::relu(torch::conv2d(x, p[4].tensor, p[5].tensor, 1));
  x = torch::linear(x.flatten(1), p[6].tensor, p[7].tensor);
  EXPECT_LT(x.min().item<float>(), 0);
  const auto head = [&](int i) {
    return torch::linear(
        torch::relu(torch::linear(x, p[i].tensor, p[i + 1].tensor)),
        p[i + 2].tensor, p[i + 3].tensor);
  };
  const torch::Tensor a = head(8), v = head(12);
  const torch::Tensor want = a - a.mean(1, true) + v;
  EXPECT_TRUE(torch::allclose(net.Forward({{frames}}), want, 1e-4, 1e-5));
  // The advantages cancel out: the mean over actions is the state's value.
  EXPECT_TRUE(
      torch::allclose(net.Forward({{frames}}).mean(1, true), v, 1e-4, 1e-5));
}

TEST(QNetworkTest, VectorsActivateEveryEncoderLayer) {
  const QNetwork net =
      MakeNet(VectorSpaces(4, 2), CartPoleModel(), /*dueling=*/false);
  const auto p = net.Named();
  torch::manual_seed(1);
  torch::NoGradGuard no_grad;
  const torch::Tensor seen = torch::randn({9, 4});
  torch::Tensor x = seen;
  for (int i = 0; i < 8; i += 2) {
    x = torch::relu(torch::linear(x, p[i].tensor, p[i + 1].tensor));
  }
  const torch::Tensor want = torch::linear(x, p[8].tensor, p[9].tensor);
  EXPECT_TRUE(torch::allclose(net.Forward({{seen}}), want, 1e-5, 1e-6));
}

TEST(QNetworkTest, WeightsStartAsTorchsDoAndFollowTheSeed) {
  QNetwork net = MakeNet(VectorSpaces(4, 2), CartPoleModel());
  for (const NamedTensor& t : net.Named()) {
    const int64_t inputs =
        t.name == "encoder.0.weight" || t.name == "encoder.0.bias" ? 4
        : t.name == "encoder.2.weight" || t.name == "encoder.2.bias" ||
                t.name == "encoder.4.weight" || t.name == "encoder.4.bias"
            ? 128
            : 64;
    const double bound = 1 / std::sqrt(inputs);
    EXPECT_LE(t.tensor.abs().max().item<double>(), bound) << t.name;
    if (t.tensor.numel() < 100) continue;
    // Uniform: the deviation is bound / sqrt(3).
    EXPECT_NEAR(t.tensor.std().item<double>(), bound / std::sqrt(3.0),
                0.15 * bound)
        << t.name;
  }
  const torch::Tensor first = net.Flat().parameters.clone();
  net.Initialize(4);
  EXPECT_FALSE(torch::equal(first, net.Flat().parameters));
  net.Initialize(3);
  EXPECT_TRUE(torch::equal(first, net.Flat().parameters));
}

TEST(QNetworkTest, ACloneHasWeightsOfItsOwn) {
  const QNetwork net = MakeNet(VectorSpaces(4, 2), CartPoleModel());
  const QNetwork copy = net.Clone();
  EXPECT_TRUE(torch::equal(net.Flat().parameters, copy.Flat().parameters));
  copy.Flat().parameters.add_(1);
  EXPECT_FALSE(torch::equal(net.Flat().parameters, copy.Flat().parameters));
}

TEST(QNetworkTest, ContinuousActionsAreRefused) {
  const auto net =
      QNetwork::Make(ContinuousSpaces(3, 1), {}, true, torch::kCPU);
  EXPECT_EQ(net.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace flotilla
