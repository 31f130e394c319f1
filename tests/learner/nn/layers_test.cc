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

// What decides reads weights that were settled, if in bfloat16, what learns does not:
// from kernels of ours or Torch's, both are the same bits, and again of other weights.
void ExpectDecidesAsItLearns(Drawn* drawn, const Tensor& x, bool bf16 = true) {
  const ForwardOptions options = {.relu = true, .bf16 = bf16};
  for (int time = 0; time < 2; ++time) {
    const Tensor learning = Forward(drawn->layers, x, options);
    EXPECT_TRUE(learning.requires_grad());
    if (bf16) {
      SettleLayers(/*pixels=*/x.scalar_type() == torch::kUInt8, &drawn->layers);
    }
    torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(Forward(drawn->layers, x, options), learning));
    drawn->Draw();
    // Until they are settled anew.
    if (!bf16) continue;
    EXPECT_TRUE(torch::equal(Forward(drawn->layers, x, options), learning));
  }
}

TEST(LayersTest, LinearLayersDecideAsTheyLearn) {
  torch::manual_seed(1);
  Drawn drawn(PlanMlp("a", 64, {32, 16, 6}));
  ExpectDecidesAsItLearns(&drawn, torch::randn({9, 64}));
}

TEST(LayersTest, ConvolutionsDecideAsTheyLearn) {
  torch::manual_seed(2);
  Drawn drawn({{"a.0", {16, 4, 4, 4}, 1, /*stride=*/2},
               {"a.2", {32, 16, 3, 3}, 1, /*stride=*/1},
               {"a.4", {16, 32 * 3 * 3}, 1}});
  ExpectDecidesAsItLearns(&drawn,
                          torch::randint(256, {5, 4, 12, 12}, torch::kUInt8));
  // Of channels that a kernel of ours would take without a gradient alone.
  Drawn mixed({{"a.0", {8, 4, 4, 4}, 1, /*stride=*/2},
               {"a.2", {16, 8, 3, 3}, 1, /*stride=*/1},
               {"a.4", {16, 16 * 3 * 3}, 1}});
  ExpectDecidesAsItLearns(&mixed,
                          torch::randint(256, {5, 4, 12, 12}, torch::kUInt8));
  ExpectDecidesAsItLearns(
      &mixed, torch::randint(256, {5, 4, 12, 12}, torch::kUInt8), false);
  // Of channels that no kernel of ours takes.
  Drawn torchs({{"a.0", {6, 4, 4, 4}, 1, /*stride=*/2},
                {"a.2", {10, 6, 3, 3}, 1, /*stride=*/1},
                {"a.4", {7, 10 * 3 * 3}, 1}});
  ExpectDecidesAsItLearns(&torchs,
                          torch::randint(256, {5, 4, 12, 12}, torch::kUInt8));
}

}  // namespace
}  // namespace flotilla
