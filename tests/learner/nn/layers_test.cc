#include "learner/nn/layers.h"

#include <vector>

#include "gtest/gtest.h"

namespace flotilla {
namespace {

using torch::Tensor;

// Layers of these shapes, drawn.
struct Drawn {
  explicit Drawn(const std::vector<LayerSpec>& specs)
      : parameters(CountParameters(specs), torch::kCPU),
        layers(MakeLayers(specs, &parameters)) {
    Draw();
  }

  void Draw() {
    torch::NoGradGuard no_grad;
    parameters.parameters.copy_(torch::randn(parameters.parameters.sizes()) *
                                0.2);
  }

  FlatParameters parameters;
  std::vector<Layer> layers;
};

// What decides reads weights that were settled, what learns does not: from kernels of
// ours or Torch's, both are the same bits, and again of other weights.
void ExpectDecidesAsItLearns(Drawn* drawn, const Tensor& x, bool bf16) {
  const ForwardOptions options = {.relu = true, .bf16 = bf16};
  SettleOptions seen = {.pixels = x.scalar_type() == torch::kUInt8,
                        .bf16 = bf16};
  if (x.dim() == 4) {
    seen.height = x.size(2);
    seen.width = x.size(3);
  }
  for (int time = 0; time < 2; ++time) {
    const Tensor learning = Forward(drawn->layers, x, options);
    EXPECT_TRUE(learning.requires_grad());
    SettleLayers(seen, &drawn->layers);
    torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(Forward(drawn->layers, x, options), learning));
    drawn->Draw();
    // Until they are settled anew. In float32 that is what kernels take.
    if (!bf16) continue;
    EXPECT_TRUE(torch::equal(Forward(drawn->layers, x, options), learning));
  }
}

class LayersTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { torch::manual_seed(2); }
  static bool bf16() { return GetParam(); }
};

TEST_P(LayersTest, LinearLayersDecideAsTheyLearn) {
  Drawn drawn(PlanMlp("a", 64, {32, 16, 6}));
  ExpectDecidesAsItLearns(&drawn, torch::randn({9, 64}), bf16());
  Drawn wide(PlanMlp("a", 528, {512, 144, 6}));
  ExpectDecidesAsItLearns(&wide, torch::randn({9, 528}), bf16());
}

TEST_P(LayersTest, ConvolutionsDecideAsTheyLearn) {
  const Tensor seen = torch::randint(256, {5, 4, 12, 12}, torch::kUInt8);
  Drawn drawn({{"a.0", {16, 4, 4, 4}, 1, /*stride=*/2},
               {"a.2", {32, 16, 3, 3}, 1, /*stride=*/1},
               {"a.4", {1024, 32 * 3 * 3}, 1}});
  ExpectDecidesAsItLearns(&drawn, seen, bf16());
  // Of channels that a kernel of ours would take without a gradient alone.
  Drawn mixed({{"a.0", {8, 4, 4, 4}, 1, /*stride=*/2},
               {"a.2", {16, 8, 3, 3}, 1, /*stride=*/1},
               {"a.4", {16, 16 * 3 * 3}, 1}});
  ExpectDecidesAsItLearns(&mixed, seen, bf16());
  // Of channels that no kernel of ours takes.
  Drawn torchs({{"a.0", {6, 4, 4, 4}, 1, /*stride=*/2},
                {"a.2", {10, 6, 3, 3}, 1, /*stride=*/1},
                {"a.4", {7, 10 * 3 * 3}, 1}});
  ExpectDecidesAsItLearns(&torchs, seen, bf16());
}

TEST_P(LayersTest, AWholeNatureCnnDecidesAsItLearns) {
  Drawn drawn({{"a.0", {32, 4, 8, 8}, 1, /*stride=*/4},
               {"a.2", {64, 32, 4, 4}, 1, /*stride=*/2},
               {"a.4", {64, 64, 3, 3}, 1, /*stride=*/1},
               {"a.7", {512, 3136}, 1}});
  ExpectDecidesAsItLearns(
      &drawn, torch::randint(256, {3, 4, 84, 84}, torch::kUInt8), bf16());
}

INSTANTIATE_TEST_SUITE_P(Precision, LayersTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "bfloat16" : "float32";
                         });

}  // namespace
}  // namespace flotilla
