#include "learner/nn/observation_encoder.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "learner/nn/actor_critic.h"
#include "learner/nn/q_network.h"

namespace flotilla {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

const std::string kVector =
    "observation { path: 'vec' dtype: FLOAT32 shape: 3 } ";
const std::string kImage =
    "observation { path: 'rgb' dtype: UINT8 shape: [40, 37, 3] } ";
const std::string kChoice =
    "observation { path: 'cell' dtype: INT64 shape: 3 "
    "              num_values_each: [4, 2, 5] } ";
const std::string kEmbed = "leaf { path: 'cell' encoder: EMBEDDING ";

// An encoder named "trunk" with random parameters.
struct Made {
  Made(const std::string& observation, const std::string& model = "") {
    v1::EnvSpec spec;
    CHECK(google::protobuf::TextFormat::ParseFromString(
        observation + "action { dtype: INT64 num_values: 4 }", &spec));
    CHECK(google::protobuf::TextFormat::ParseFromString(model, &config));
    spaces = DescribeSpaces(spec, config).value();
    plan = PlanEncoders(spaces, config).value();
    encoder = ObservationEncoder("trunk", spaces, plan, config.activation());
    parameters = FlatParameters(encoder.CountParameters(), torch::kCPU);
    encoder.Take(&parameters);
    torch::NoGradGuard no_grad;
    parameters.parameters.normal_(0, 0.2);
  }
  torch::Tensor Forward(const Batch& batch, bool activate_last = true) const {
    return encoder.Forward(batch, /*bf16=*/false, activate_last);
  }

  v1::ModelConfig config;
  Spaces spaces;
  EncoderPlan plan;
  ObservationEncoder encoder;
  FlatParameters parameters;
};

// "trunk.0.weight [64 3]"
std::vector<std::string> Names(const std::vector<NamedTensor>& named) {
  std::vector<std::string> names;
  for (const NamedTensor& t : named) {
    names.push_back(absl::StrCat(
        t.name, " [", absl::StrJoin(t.tensor.sizes().vec(), " "), "]"));
  }
  return names;
}

TEST(ObservationEncoderTest, OneLeafHasTheNamesItHasAlone) {
  const Made vector(kVector);
  EXPECT_THAT(Names(vector.parameters.named),
              ElementsAre("trunk.0.weight [64 3]", "trunk.0.bias [64]",
                          "trunk.2.weight [64 64]", "trunk.2.bias [64]"));
  EXPECT_EQ(vector.encoder.CountParameters(), 64 * 4 + 64 * 65);
  EXPECT_EQ(vector.encoder.features(), 64);
  EXPECT_FALSE(vector.encoder.relu());

  const std::vector<std::string> cnn = {
      "trunk.0.weight [2 3 8 8]", "trunk.0.bias [2]",
      "trunk.2.weight [3 2 4 4]", "trunk.2.bias [3]",
      "trunk.4.weight [4 3 3 3]", "trunk.4.bias [4]",
      "trunk.7.weight [9 4]",     "trunk.7.bias [9]"};
  const Made image(kImage, "conv_channels: [2, 3, 4] hidden: 9");
  EXPECT_THAT(Names(image.parameters.named), ElementsAreArray(cnn));
  EXPECT_EQ(image.encoder.CountParameters(), image.parameters.size());
  EXPECT_TRUE(image.encoder.relu());
  // A mask beside it is no company.
  const Made masked(kImage +
                        "observation { path: 's' dtype: UINT8 shape: 4 } "
                        "action_mask_path: 's' ",
                    "conv_channels: [2, 3, 4] hidden: 9");
  EXPECT_THAT(Names(masked.parameters.named), ElementsAreArray(cnn));

  const Made resnet(kImage, "encoder: RESNET hidden: 9");
  const std::vector<std::string> names = Names(resnet.parameters.named);
  ASSERT_EQ(names.size(), 2u * 16);
  EXPECT_EQ(names[0], "trunk.0.conv.weight [16 3 3 3]");
  EXPECT_EQ(names[12], "trunk.1.res_block0.conv0.weight [32 32 3 3]");
  EXPECT_EQ(names[30], "trunk.5.weight [9 800]");  // 32 of 5 x 5

  // Joined leaves are one.
  EXPECT_THAT(Names(Made(kVector + kChoice, "hidden: 7").parameters.named),
              ElementsAre("trunk.0.weight [7 14]", "trunk.0.bias [7]"));
}

TEST(ObservationEncoderTest, SeveralLeavesAreNamedByTheirPaths) {
  const Made embedded(kChoice, kEmbed + "} hidden: 7");
  EXPECT_THAT(Names(embedded.parameters.named),
              ElementsAre("trunk.leaf.cell.embedding.weight [11 64]",
                          "trunk.0.weight [7 192]", "trunk.0.bias [7]"));
  EXPECT_EQ(embedded.encoder.CountParameters(), 11 * 64 + 7 * 193);
  EXPECT_EQ(embedded.encoder.features(), 7);

  const Made all(kChoice +
                     "observation { path: 'goal/xy' dtype: FLOAT32 shape: 2 "
                     "              frame_stack: 3 } " +
                     kImage + kVector,
                 kEmbed +
                     "hidden: [6, 5] } leaf { path: 'goal/xy' hidden: [4, 8] } "
                     "conv_channels: [2, 3, 4] hidden: [7, 9]");
  EXPECT_THAT(
      Names(all.parameters.named),
      ElementsAre(
          "trunk.leaf.cell.embedding.weight [11 6]",
          "trunk.leaf.cell.0.weight [5 18]", "trunk.leaf.cell.0.bias [5]",
          "trunk.leaf.goal/xy.0.weight [4 6]", "trunk.leaf.goal/xy.0.bias [4]",
          "trunk.leaf.goal/xy.2.weight [8 4]", "trunk.leaf.goal/xy.2.bias [8]",
          "trunk.leaf.rgb.0.weight [2 3 8 8]", "trunk.leaf.rgb.0.bias [2]",
          "trunk.leaf.rgb.2.weight [3 2 4 4]", "trunk.leaf.rgb.2.bias [3]",
          "trunk.leaf.rgb.4.weight [4 3 3 3]", "trunk.leaf.rgb.4.bias [4]",
          "trunk.leaf.rgb.7.weight [512 4]", "trunk.leaf.rgb.7.bias [512]",
          // vec, cell, goal/xy, rgb
          "trunk.0.weight [7 528]", "trunk.0.bias [7]", "trunk.2.weight [9 7]",
          "trunk.2.bias [9]"));
  EXPECT_EQ(all.encoder.CountParameters(), all.parameters.size());
  EXPECT_EQ(all.encoder.features(), 9);
}

TEST(ObservationEncoderTest, NetworksHaveItsNamesAmongTheirOwn) {
  const Made made(kChoice + kVector, kEmbed + "} hidden: 7");
  const auto net =
      ActorCritic::Make(made.spaces, made.config, torch::kCPU).value();
  EXPECT_THAT(Names(net->Named()),
              ElementsAre("trunk.leaf.cell.embedding.weight [11 64]",
                          "trunk.0.weight [7 195]", "trunk.0.bias [7]",
                          "policy.weight [4 7]", "policy.bias [4]",
                          "value.weight [1 7]", "value.bias [1]"));
  EXPECT_EQ(net->num_parameters(), 11 * 64 + 7 * 196 + 5 * 8);
  const QNetwork q =
      QNetwork::Make(made.spaces, made.config, /*dueling=*/false, torch::kCPU)
          .value();
  EXPECT_THAT(Names(q.Named()),
              ElementsAre("encoder.leaf.cell.embedding.weight [11 64]",
                          "encoder.0.weight [7 195]", "encoder.0.bias [7]",
                          "q.0.weight [7 7]", "q.0.bias [7]",
                          "q.2.weight [4 7]", "q.2.bias [4]"));
}

// M random observations.
Batch RandomBatch(const Spaces& spaces, int64_t m) {
  Batch batch;
  for (const LeafSpec& leaf : spaces.observation) {
    const std::vector<int64_t> shape = BatchShape(leaf, m);
    if (leaf.dtype == v1::FLOAT32) {
      batch.leaf.push_back(torch::randn(shape));
    } else if (leaf.kind == LeafKind::kDiscrete) {
      batch.leaf.push_back(torch::randint(0, 1000, shape, torch::kInt64)
                               .remainder(torch::tensor(leaf.num_values)));
    } else {
      batch.leaf.push_back(torch::randint(0, 256, shape, torch::kUInt8));
    }
  }
  return batch;
}

using Values = std::vector<double>;

Values Numbers(const torch::Tensor& t) {
  const torch::Tensor flat =
      t.detach().to(torch::kFloat64).contiguous().flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

// The definitions, one number after the other, in float64.
class Slow {
 public:
  Slow(const FlatParameters& parameters, bool relu) : relu_(relu) {
    for (const NamedTensor& t : parameters.named) {
      sizes_[t.name] = t.tensor.sizes().vec();
      numbers_[t.name] = Numbers(t.tensor);
    }
  }

  Values Activated(Values x, bool relu) const {
    for (double& v : x) v = relu ? std::max(0.0, v) : std::tanh(v);
    return x;
  }

  Values Linear(const std::string& name, const Values& x) const {
    const Values& weight = numbers_.at(name + ".weight");
    Values y = numbers_.at(name + ".bias");
    EXPECT_EQ(weight.size(), x.size() * y.size()) << name;
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) {
        y[o] += weight[o * x.size() + i] * x[i];
      }
    }
    return y;
  }

  // NAME.0, NAME.2, ..., as many as there are, each activated.
  Values Mlp(const std::string& name, Values x) const {
    for (int i = 0; sizes_.count(absl::StrCat(name, ".", i, ".weight"));
         i += 2) {
      x = Activated(Linear(absl::StrCat(name, ".", i), x), relu_);
    }
    return x;
  }

  // Each element's embedding, from tables of `sizes` that lie end to end, then
  // the linear layers.
  Values Embedding(const std::string& name, const std::vector<int>& sizes,
                   const Values& x) const {
    const Values& table = numbers_.at(name + ".embedding.weight");
    const int64_t width = sizes_.at(name + ".embedding.weight")[1];
    Values y;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t element = i % sizes.size();  // the stack is outside
      const int64_t row =
          std::accumulate(sizes.begin(), sizes.begin() + element, 0) +
          static_cast<int64_t>(x[i]);
      y.insert(y.end(), table.begin() + row * width,
               table.begin() + (row + 1) * width);
    }
    return Mlp(name, y);
  }

  // [C, H, W] of numbers from 0 to 1.
  Values NatureCnn(const std::string& name, Values x, int64_t h,
                   int64_t w) const {
    int stride = 8;
    for (const char* layer : {".0", ".2", ".4"}) {
      stride /= 2;
      x = Activated(Convolve(name + layer, x, stride, &h, &w), true);
    }
    return Activated(Linear(name + ".7", x), true);
  }

 private:
  Values Convolve(const std::string& name, const Values& x, int64_t stride,
                  int64_t* h, int64_t* w) const {
    const Values& weight = numbers_.at(name + ".weight");
    const Values& bias = numbers_.at(name + ".bias");
    const std::vector<int64_t>& size = sizes_.at(name + ".weight");
    const int64_t k = size[2];
    const int64_t out_h = (*h - k) / stride + 1, out_w = (*w - k) / stride + 1;
    Values y;
    for (int64_t o = 0; o < size[0]; ++o) {
      for (int64_t r = 0; r < out_h; ++r) {
        for (int64_t c = 0; c < out_w; ++c) {
          double sum = bias[o];
          for (int64_t i = 0; i < size[1]; ++i) {
            for (int64_t a = 0; a < k; ++a) {
              for (int64_t b = 0; b < k; ++b) {
                sum += weight[((o * size[1] + i) * k + a) * k + b] *
                       x[(i * *h + r * stride + a) * *w + c * stride + b];
              }
            }
          }
          y.push_back(sum);
        }
      }
    }
    *h = out_h;
    *w = out_w;
    return y;
  }

  const bool relu_;
  std::map<std::string, std::vector<int64_t>> sizes_;
  std::map<std::string, Values> numbers_;
};

void ExpectNear(const torch::Tensor& got, const Values& want) {
  const Values numbers = Numbers(got);
  ASSERT_EQ(numbers.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(numbers[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
  }
}

TEST(ObservationEncoderTest, VectorsGoThroughAnMlpOldestFirst) {
  torch::manual_seed(1);
  for (const std::string activation : {"TANH", "RELU"}) {
    const Made made(
        "observation { path: 'vec' dtype: FLOAT32 shape: [3, 2] "
        "              frame_stack: 4 } ",
        "hidden: [9, 8] activation: " + activation);
    const Slow slow(made.parameters, activation == "RELU");
    EXPECT_EQ(made.encoder.relu(), activation == "RELU");
    const Batch batch = RandomBatch(made.spaces, 5);
    ASSERT_EQ(batch.leaf[0].sizes(), torch::IntArrayRef({5, 4, 6}));
    const torch::Tensor got = made.Forward(batch);
    const torch::Tensor plain = made.Forward(batch, /*activate_last=*/false);
    for (int64_t n = 0; n < 5; ++n) {
      const Values x = Numbers(batch.leaf[0][n]);
      ExpectNear(got[n], slow.Mlp("trunk", x));
      ExpectNear(plain[n], slow.Linear("trunk.2",
                                       slow.Activated(slow.Linear("trunk.0", x),
                                                      activation == "RELU")));
    }
  }
}

TEST(ObservationEncoderTest, EmbeddingsAreRowsOfTablesEndToEnd) {
  torch::manual_seed(2);
  const std::vector<int> sizes = {4, 2, 5};
  for (const int stack : {1, 3}) {
    for (const std::string hidden : {"6", "[6, 5]"}) {
      const Made made(kChoice, absl::StrCat(kEmbed, "hidden: ", hidden,
                                            " frame_stack: ", stack, "}"));
      const Slow slow(made.parameters, /*relu=*/false);
      const Batch batch = RandomBatch(made.spaces, 30);
      const torch::Tensor got = made.Forward(batch);
      for (int64_t n = 0; n < 30; ++n) {
        ExpectNear(got[n], slow.Mlp("trunk",
                                    slow.Embedding("trunk.leaf.cell", sizes,
                                                   Numbers(batch.leaf[0][n]))));
      }
    }
  }
}

// Numbers first and one-hot vectors after them, as spaces.h joins them; then an
// embedding, a stack with layers of its own and an image.
TEST(ObservationEncoderTest, FeaturesAreLaidEndToEndBeforeTheTrunk) {
  torch::manual_seed(3);
  const Made made(
      kChoice +
          "observation { path: 'goal' dtype: FLOAT32 shape: 2 "
          "              frame_stack: 3 } "
          "observation { path: 'mask' dtype: UINT8 shape: 4 } "
          "action_mask_path: 'mask' "
          "observation { path: 'one' dtype: INT64 num_values: 3 } " +
          kImage + kVector,
      kEmbed +
          "hidden: [6, 5] } leaf { path: 'goal' hidden: [4, 8] } "
          "conv_channels: [2, 3, 4] hidden: [7, 9]");
  ASSERT_TRUE(made.encoder.relu());  // of all, since there is an image
  const Slow slow(made.parameters, /*relu=*/true);
  Batch batch = RandomBatch(made.spaces, 6);
  const torch::Tensor got = made.Forward(batch);
  ASSERT_EQ(got.sizes(), torch::IntArrayRef({6, 9}));
  for (int64_t n = 0; n < 6; ++n) {
    Values x = Numbers(batch.leaf[0][n]);  // vec and one
    ASSERT_EQ(x.size(), 6u);
    const auto join = [&](const Values& more) {
      x.insert(x.end(), more.begin(), more.end());
    };
    join(slow.Embedding("trunk.leaf.cell", {4, 2, 5},
                        Numbers(batch.leaf[1][n])));
    join(slow.Mlp("trunk.leaf.goal", Numbers(batch.leaf[2][n])));
    Values pixels = Numbers(batch.leaf[3][n][0].permute({2, 0, 1}));
    for (double& p : pixels) p /= 255;
    join(slow.NatureCnn("trunk.leaf.rgb", pixels, 40, 37));
    ExpectNear(got[n], slow.Mlp("trunk", x));
  }
  // Nobody sees the mask.
  ASSERT_EQ(made.spaces.mask, 4);
  batch.leaf[4].fill_(0);
  EXPECT_TRUE(torch::equal(made.Forward(batch), got));
}

TEST(ObservationEncoderTest, OnlyWhatWasSeenOfATableHasAGradient) {
  torch::manual_seed(4);
  const Made made(kChoice, kEmbed + "hidden: 6 }");
  Batch batch;
  batch.leaf = {torch::tensor({{3, 0, 2}, {1, 0, 2}}, torch::kInt64)};
  made.Forward(batch).square().sum().backward();
  const torch::Tensor table = made.parameters.gradients.narrow(0, 0, 11 * 6);
  const Values gradient = Numbers(table.view({11, 6}).abs().sum(1));
  for (int row = 0; row < 11; ++row) {
    const bool seen = row == 1 || row == 3 || row == 4 || row == 8;
    EXPECT_EQ(gradient[row] > 0, seen) << row;
  }
}

TEST(ObservationEncoderTest, ChannelsMayComeLast) {
  for (const std::string dtype : {"UINT8", "FLOAT32"}) {
    for (const std::string encoder : {"NATURE_CNN", "RESNET"}) {
      for (const int stack : {1, 3}) {
        SCOPED_TRACE(absl::StrCat(dtype, " ", encoder, " ", stack));
        const auto make = [&](const std::string& shape) {
          torch::manual_seed(5);  // the same parameters
          return Made(absl::StrCat("observation { dtype: ", dtype, " shape: ",
                                   shape, " frame_stack: ", stack, " } "),
                      "hidden: 9 encoder: " + encoder);
        };
        const Made last = make("[40, 37, 3]"), first = make("[3, 40, 37]");
        ASSERT_TRUE(last.spaces.observation[0].channels_last);
        ASSERT_FALSE(first.spaces.observation[0].channels_last);
        ASSERT_TRUE(torch::equal(last.parameters.parameters,
                                 first.parameters.parameters));
        const Batch batch = RandomBatch(last.spaces, 4);
        Batch permuted;
        permuted.leaf = {batch.leaf[0].permute({0, 1, 4, 2, 3}).contiguous()};
        const torch::Tensor a = last.Forward(batch);
        EXPECT_TRUE(torch::allclose(a, first.Forward(permuted), 1e-4, 1e-5));
        EXPECT_GT(a.abs().max().item<float>(), 0);
      }
    }
  }
}

// One gray channel of k frames is k channels, whatever it is called.
TEST(ObservationEncoderTest, StackedFramesAreChannels) {
  torch::manual_seed(6);
  const Made gray(
      "observation { dtype: UINT8 shape: [40, 37] frame_stack: 3 } ",
      "hidden: 9");
  torch::manual_seed(6);
  const Made color("observation { dtype: UINT8 shape: [3, 40, 37] } ",
                   "hidden: 9");
  const Batch frames = RandomBatch(gray.spaces, 4);
  Batch channels;
  channels.leaf = {frames.leaf[0].unsqueeze(1)};
  EXPECT_TRUE(torch::equal(gray.Forward(frames), color.Forward(channels)));
}

TEST(ObservationEncoderTest, FloatsOfAnImageAreTakenAsTheyAre) {
  torch::manual_seed(7);
  const Made bytes(kImage, "hidden: 9");
  torch::manual_seed(7);
  const Made floats(
      "observation { path: 'rgb' dtype: FLOAT32 shape: [40, 37, 3] } ",
      "hidden: 9");
  const Batch batch = RandomBatch(bytes.spaces, 4);
  Batch scaled;
  scaled.leaf = {batch.leaf[0].to(torch::kFloat32) / 255};
  EXPECT_TRUE(torch::allclose(bytes.Forward(batch), floats.Forward(scaled),
                              1e-4, 1e-5));
}

}  // namespace
}  // namespace flotilla
