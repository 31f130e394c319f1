#include "learner/kernels/lstm.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"

namespace flotilla {
namespace {

constexpr int64_t kRows = 3;
// Below a vector, one, several, and several and a rest, for every width of them.
constexpr int64_t kWidths[] = {1, 5, 16, 64, 77};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Cell {
  double h, c;
};

// torch.nn.LSTM's equations for one output, from the sums of its four gates.
Cell Step(const double (&sum)[4], double c) {
  const double after =
      Sigmoid(sum[1]) * c + Sigmoid(sum[0]) * std::tanh(sum[2]);
  return {Sigmoid(sum[3]) * std::tanh(after), after};
}

class LstmTest : public EveryKernelTest {
 protected:
  void Make(int64_t width) {
    H = width;
    sums = Draw(kRows * 4 * H, 2, 1);
    c_before = Draw(kRows * H, 1, 2);
    gates = sums;
    tanh_c.assign(kRows * H, 0);
    output = tanh_c;
    next.assign(kRows * 2 * H, 0);
  }

  void Forward(const float* next_keep) {
    LstmForward({.rows = kRows,
                 .width = H,
                 .gates = gates.data(),
                 .c_before = c_before.data(),
                 .tanh_c = tanh_c.data(),
                 .output = output.data(),
                 .next_keep = next_keep,
                 .next_h = next.data(),
                 .next_c = next.data() + H,
                 .next_row = 2 * H},
                kernels());
  }

  double Sum(int64_t b, int64_t gate, int64_t j) const {
    return sums[(b * 4 + gate) * H + j];
  }

  int64_t H = 0;
  std::vector<float> sums, gates, c_before, tanh_c, output, next;
};

TEST_P(LstmTest, StepsAsTheEquationsSay) {
  const float keep[kRows] = {1, 0, 1};
  for (const int64_t width : kWidths) {
    for (const float* next_keep : {keep, static_cast<const float*>(nullptr)}) {
      Make(width);
      Forward(next_keep);
      for (int64_t b = 0; b < kRows; ++b) {
        const double kept = next_keep == nullptr ? 1 : next_keep[b];
        for (int64_t j = 0; j < H; ++j) {
          const double sum[4] = {Sum(b, 0, j), Sum(b, 1, j), Sum(b, 2, j),
                                 Sum(b, 3, j)};
          const Cell want = Step(sum, c_before[b * H + j]);
          ASSERT_NEAR(output[b * H + j], want.h, 1e-6) << H << ", " << j;
          ASSERT_NEAR(tanh_c[b * H + j], std::tanh(want.c), 1e-6);
          ASSERT_NEAR(next[b * 2 * H + j], kept * want.h, 1e-6);
          ASSERT_NEAR(next[b * 2 * H + H + j], kept * want.c, 2e-6);
        }
      }
    }
  }
}

TEST_P(LstmTest, SaturatesAndHandsOnNaN) {
  Make(16);
  const float values[] = {-1e30f, -200, 200, 1e30f};
  for (int64_t j = 0; j < 4; ++j) {
    for (int gate = 0; gate < 4; ++gate) gates[gate * H + j] = values[j];
  }
  gates[4 * H] = std::numeric_limits<float>::quiet_NaN();
  Forward(nullptr);
  for (int64_t j = 0; j < 4; ++j) {
    const float want = values[j] < 0 ? 0 : 1;
    for (const int gate : {0, 1, 3}) {
      EXPECT_NEAR(gates[gate * H + j], want, 1e-6) << values[j];
    }
  }
  EXPECT_TRUE(std::isnan(output[H]));
  EXPECT_FALSE(std::isnan(output[H + 1]));
}

TEST_P(LstmTest, GradientsAreTheFiniteDifferences) {
  const float keep[kRows] = {1, 0, 1}, next_keep[kRows] = {0, 1, 1};
  for (const int64_t width : kWidths) {
    for (const float* carried :
         {next_keep, static_cast<const float*>(nullptr)}) {
      Make(width);
      Forward(nullptr);
      const std::vector<float> from_output = Draw(kRows * H, 1, 3);
      const std::vector<float> from_h = Draw(kRows * H, 1, 4);
      const std::vector<float> from_c = Draw(kRows * H, 1, 5);
      std::vector<float> onto_c = from_c, gradient(kRows * 4 * H);
      LstmBackward({.rows = kRows,
                    .width = H,
                    .gates = gates.data(),
                    .c_before = c_before.data(),
                    .tanh_c = tanh_c.data(),
                    .from_output = from_output.data(),
                    .keep = keep,
                    .from_h = from_h.data(),
                    .next_keep = carried,
                    .from_c = onto_c.data(),
                    .gate_gradient = gradient.data()},
                   kernels());
      for (int64_t b = 0; b < kRows; ++b) {
        for (int64_t j = 0; j < H; ++j) {
          const int64_t at = b * H + j;
          const double dh = from_output[at] +
                            (carried == nullptr ? 0 : carried[b]) * from_h[at];
          // d (dh h' + from_c c') / d each of what the step began with.
          double from[5] = {Sum(b, 0, j), Sum(b, 1, j), Sum(b, 2, j),
                            Sum(b, 3, j), c_before[at]};
          const auto slope = [&](int which) {
            constexpr double kStep = 1e-5;
            const double was = from[which];
            double loss[2];
            for (const int side : {0, 1}) {
              from[which] = was + (side == 0 ? -kStep : kStep);
              const Cell after =
                  Step({from[0], from[1], from[2], from[3]}, from[4]);
              loss[side] = dh * after.h + from_c[at] * after.c;
            }
            from[which] = was;
            return (loss[1] - loss[0]) / (2 * kStep);
          };
          for (int gate = 0; gate < 4; ++gate) {
            ASSERT_NEAR(gradient[(b * 4 + gate) * H + j], slope(gate), 5e-6)
                << H << ", " << j << ", gate " << gate;
          }
          ASSERT_NEAR(onto_c[at], keep[b] * slope(4), 5e-6);
        }
      }
    }
  }
}

// Nor does the width's rest, which goes another way.
TEST_P(LstmTest, ARowKnowsNothingOfItsNeighbours) {
  Make(77);
  Forward(nullptr);
  const std::vector<float> together = output;
  std::vector<float> alone(sums.begin() + 4 * H, sums.begin() + 8 * H);
  std::vector<float> h(H), t(H), state(2 * H);
  LstmForward({.rows = 1,
               .width = H,
               .gates = alone.data(),
               .c_before = c_before.data() + H,
               .tanh_c = t.data(),
               .output = h.data(),
               .next_h = state.data(),
               .next_c = state.data() + H,
               .next_row = 2 * H},
              kernels());
  for (int64_t j = 0; j < H; ++j) EXPECT_EQ(h[j], together[H + j]);
}

// Of the widths that kernels multiply by, on both ways.
TEST_P(LstmTest, ProductsAreTheSlowLoops) {
  const float keep[kRows] = {1, 1, 1};
  for (const int64_t width : {16, 48, 128}) {
    Make(width);
    const std::vector<float> weight = Draw(4 * H * H, 0.2f, 6);
    const std::vector<float> h = Draw(kRows * H, 1, 7);
    std::vector<float> packed(4 * H * H);
    PackLstm(weight.data(), H, packed.data(), kernels());
    // What the step makes of sums that are whole.
    for (int64_t b = 0; b < kRows; ++b) {
      for (int64_t g = 0; g < 4 * H; ++g) {
        double sum = sums[b * 4 * H + g];
        for (int64_t k = 0; k < H; ++k) {
          sum += static_cast<double>(weight[g * H + k]) * h[b * H + k];
        }
        gates[b * 4 * H + g] = static_cast<float>(sum);
      }
    }
    Forward(nullptr);
    const std::vector<float> want = output;
    gates = sums;
    LstmForward({.rows = kRows,
                 .width = H,
                 .gates = gates.data(),
                 .recurrent = packed.data(),
                 .h_before = h.data(),
                 .c_before = c_before.data(),
                 .tanh_c = tanh_c.data(),
                 .output = output.data(),
                 .next_h = next.data(),
                 .next_c = next.data() + H,
                 .next_row = 2 * H},
                kernels());
    for (int64_t i = 0; i < kRows * H; ++i) {
      ASSERT_NEAR(output[i], want[i], 3e-6) << H << ", " << i;
    }

    std::vector<float> from_c = Draw(kRows * H, 1, 8), gradient(kRows * 4 * H);
    std::vector<float> carried = Draw(kRows * H, 1, 9);
    LstmBackward({.rows = kRows,
                  .width = H,
                  .gates = gates.data(),
                  .c_before = c_before.data(),
                  .tanh_c = tanh_c.data(),
                  .from_output = want.data(),
                  .keep = keep,
                  .from_h = carried.data(),
                  .next_keep = keep,
                  .from_c = from_c.data(),
                  .weight_hh = weight.data(),
                  .to_h = carried.data(),
                  .gate_gradient = gradient.data()},
                 kernels());
    for (int64_t b = 0; b < kRows; ++b) {
      for (int64_t k = 0; k < H; ++k) {
        double sum = 0;
        for (int64_t g = 0; g < 4 * H; ++g) {
          sum +=
              static_cast<double>(gradient[b * 4 * H + g]) * weight[g * H + k];
        }
        ASSERT_NEAR(carried[b * H + k], sum, 1e-5) << H << ", " << k;
      }
    }
  }
}

FLOTILLA_FOR_EVERY_KERNEL(LstmTest);

}  // namespace
}  // namespace flotilla
