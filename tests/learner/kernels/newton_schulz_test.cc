#include "learner/kernels/newton_schulz.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/bfloat16_numbers.h"
#include "tests/learner/kernels/emulated_amx.h"
#include "tests/learner/kernels/every_kernel_test.h"
#include "tests/learner/kernels/slow_newton_schulz.h"

namespace flotilla {
namespace {

// Rows and columns: tall, wide and square, of whole vectors and not; native_breakout's.
constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {12, 5},  {5, 12},  {6, 6},     {1, 7},     {7, 1},
    {1, 128}, {3, 128}, {128, 118}, {118, 128}, {64, 33}};

class NewtonSchulzTest : public EveryKernelTest {
 protected:
  std::vector<float> Run(int64_t rows, int64_t columns,
                         const std::vector<float>& matrix) const {
    std::vector<float> out(matrix.size(), NAN);
    OrthogonalizeByTiles(rows, columns, matrix.data(), out.data(), kernels());
    return out;
  }
};

std::vector<const KernelTable*> ByTiles() {
  std::vector<const KernelTable*> kernels = {&EmulatedAmx()};
  for (const KernelTable* each : RunnableKernels()) {
    if (each->has_tiles) kernels.push_back(each);
  }
  return kernels;
}

Matrix Doubles(int64_t rows, const std::vector<float>& flat) {
  const auto columns = static_cast<int64_t>(flat.size()) / rows;
  Matrix matrix;
  for (int64_t i = 0; i < rows; ++i) {
    matrix.emplace_back(flat.begin() + i * columns,
                        flat.begin() + (i + 1) * columns);
  }
  return matrix;
}

// Operands from step `first` on.
struct InBfloat16 {
  int first = 2;
  Matrix operator()(int step, Matrix matrix) const;
};
Matrix InBfloat16::operator()(int step, Matrix matrix) const {
  if (step < first) return matrix;
  for (auto& row : matrix) {
    for (double& v : row) v = Rounded(static_cast<float>(v));
  }
  return matrix;
}

void ExpectNear(const Matrix& expected, const std::vector<float>& flat,
                double tolerance) {
  const size_t columns = expected[0].size();
  for (size_t i = 0; i < flat.size(); ++i) {
    ASSERT_NEAR(flat[i], expected[i / columns][i % columns], tolerance)
        << "row " << i / columns << ", column " << i % columns;
  }
}

TEST_P(NewtonSchulzTest, EqualsItsDefinition) {
  for (const auto& [rows, columns] : kShapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    const std::vector<float> matrix = Draw(rows * columns, 3, 8);
    // A number near the middle of two may be rounded to the other.
    ExpectNear(SlowOrthogonalize(Doubles(rows, matrix), InBfloat16()),
               Run(rows, columns, matrix), 0.02);
  }
}

// Of a matrix as large as a network's, as many steps as it says are in float32.
TEST_P(NewtonSchulzTest, RoundsFromTheThirdStepOn) {
  const std::vector<float> matrix = Draw(128 * 118, 3, 8);
  const std::vector<float> out = Run(128, 118, matrix);
  const auto distance = [&](int first) {
    const Matrix slow =
        SlowOrthogonalize(Doubles(128, matrix), InBfloat16{first});
    double squares = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const double off = out[i] - slow[i / 118][i % 118];
      squares += off * off;
    }
    return std::sqrt(squares);
  };
  // Numbers near the middle of two come out otherwise, and what follows them.
  const double two = distance(2);
  for (const int other : {0, 1, 3, 5}) {
    EXPECT_LT(1.2 * two, distance(other)) << other << " steps in float32";
  }
}

TEST_P(NewtonSchulzTest, MakesNothingOfNothing) {
  const std::vector<float> zeros(3 * 20, 0.0f);
  EXPECT_EQ(Run(3, 20, zeros), zeros);
  EXPECT_EQ(Run(20, 3, zeros), zeros);
}

INSTANTIATE_TEST_SUITE_P(InstructionSet, NewtonSchulzTest,
                         testing::ValuesIn(ByTiles()), NameOfKernels);

}  // namespace
}  // namespace flotilla
