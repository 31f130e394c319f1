#include "learner/algo/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/slow_newton_schulz.h"

namespace flotilla {
namespace {

struct Net {
  explicit Net(const std::vector<std::vector<int64_t>>& shapes) {
    int64_t size = 0;
    for (const auto& shape : shapes) size += c10::multiply_integers(shape);
    flat.parameters = torch::randn({size});
    flat.gradient_message = torch::zeros({size + FlatParameters::kTail});
    flat.gradients = flat.gradient_message.narrow(0, 0, size);
    int64_t offset = 0;
    for (const auto& shape : shapes) {
      const int64_t n = c10::multiply_integers(shape);
      flat.named.push_back(
          {"p", flat.parameters.narrow(0, offset, n).view(shape)});
      offset += n;
    }
  }
  FlatParameters flat;
};

TEST(MuonTest, FollowsItsDefinitionInFloat64) {
  // Tall, wide, square, a convolution's, and vectors.
  const std::vector<std::vector<int64_t>> shapes = {
      {12, 5}, {12}, {3, 12}, {3}, {6, 6}, {8, 2, 3, 3}, {1, 7}};
  torch::manual_seed(3);
  Net net(shapes);
  const double momentum = 0.95, learning_rate = 0.015;
  const int64_t size = net.flat.size();
  std::vector<double> parameters(size), buffer(size, 0.0);
  for (int64_t i = 0; i < size; ++i) {
    parameters[i] = net.flat.parameters[i].item<float>();
  }
  torch::Tensor fast_buffer = torch::zeros({size});
  for (int step = 0; step < 8; ++step) {
    net.flat.gradients.normal_(0, 0.1);
    std::vector<double> u(size);
    for (int64_t i = 0; i < size; ++i) {
      const double g = net.flat.gradients[i].item<float>();
      buffer[i] = momentum * buffer[i] + g;
      u[i] = g + momentum * buffer[i];
    }
    int64_t offset = 0;
    for (const auto& shape : shapes) {
      const int64_t n = c10::multiply_integers(shape);
      if (shape.size() == 1) {
        for (int64_t i = offset; i < offset + n; ++i) {
          parameters[i] -= learning_rate * u[i];
        }
      } else {
        const int64_t rows = shape[0], columns = n / rows;
        Matrix matrix(rows, std::vector<double>(columns));
        for (int64_t i = 0; i < n; ++i) {
          matrix[i / columns][i % columns] = u[offset + i];
        }
        const Matrix done = SlowOrthogonalize(matrix);
        const double scale =
            std::sqrt(std::max(1.0, static_cast<double>(rows) / columns));
        for (int64_t i = 0; i < n; ++i) {
          parameters[offset + i] -=
              learning_rate * scale * done[i / columns][i % columns];
        }
      }
      offset += n;
    }
    MuonStep(net.flat, momentum, learning_rate, /*bfloat16=*/false,
             &fast_buffer);
  }
  for (int64_t i = 0; i < size; ++i) {
    ASSERT_NEAR(net.flat.parameters[i].item<float>(), parameters[i], 2e-5)
        << "parameter " << i;
  }
}

TEST(MuonTest, SingularValuesEndNearOne) {
  torch::manual_seed(3);
  for (const bool bfloat16 : {false, true}) {
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{64, 4}, {64, 64}, {2, 64}}) {
      const torch::Tensor values = torch::linalg_svdvals(
          Orthogonalize(torch::randn({rows, columns}) * 1e-3, bfloat16));
      EXPECT_LT(values.max().item<double>(), 1.3);
      // A square matrix has some next to 0, which take more steps.
      if (rows == columns) continue;
      EXPECT_GT(values.min().item<double>(), 0.7);
    }
  }
}

TEST(MuonTest, AZeroGradientMovesNothing) {
  Net net({{4, 3}, {4}});
  const torch::Tensor before = net.flat.parameters.clone();
  torch::Tensor buffer = torch::zeros({net.flat.size()});
  MuonStep(net.flat, 0.95, 0.1, /*bfloat16=*/false, &buffer);
  EXPECT_TRUE(torch::equal(net.flat.parameters, before));
}

}  // namespace
}  // namespace flotilla
