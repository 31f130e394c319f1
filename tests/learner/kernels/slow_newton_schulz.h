#ifndef FLOTILLA_TESTS_LEARNER_KERNELS_SLOW_NEWTON_SCHULZ_H_
#define FLOTILLA_TESTS_LEARNER_KERNELS_SLOW_NEWTON_SCHULZ_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace flotilla {

using Matrix = std::vector<std::vector<double>>;

inline Matrix Multiply(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size(), 0.0));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b[0].size(); ++j) {
      for (size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

inline Matrix Transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

// PufferLib's Newton-Schulz steps in float64: X = a X + (b A + c A A) X with
// A = X X^T, of an X that is no taller than wide. round(step, matrix) makes of a matrix
// what a product of that step takes it for.
template <typename Round>
Matrix SlowOrthogonalize(Matrix x, Round round_in) {
  if (x.size() > x[0].size()) {
    return Transposed(SlowOrthogonalize(Transposed(x), round_in));
  }
  constexpr double kSteps[5][3] = {{4.0848, -6.8946, 2.9270},
                                   {3.9505, -6.3029, 2.6377},
                                   {3.7418, -5.5913, 2.3037},
                                   {2.8769, -3.1427, 1.2046},
                                   {2.8366, -3.0525, 1.2012}};
  double squares = 0;
  for (const auto& row : x) {
    for (double v : row) squares += v * v;
  }
  const double norm = std::max(1e-7, std::sqrt(squares));
  for (auto& row : x) {
    for (double& v : row) v /= norm;
  }
  for (int step = 0; step < 5; ++step) {
    const auto& [a, b, c] = kSteps[step];
    const auto round = [&](const Matrix& m) { return round_in(step, m); };
    const Matrix operand = round(x);
    Matrix weights = Multiply(operand, Transposed(operand));
    const Matrix gram = round(weights);
    const Matrix squared = Multiply(gram, gram);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x.size(); ++j) {
        weights[i][j] = b * weights[i][j] + c * squared[i][j];
      }
    }
    const Matrix rest = Multiply(round(weights), operand);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[0].size(); ++j) {
        x[i][j] = a * x[i][j] + rest[i][j];
      }
    }
  }
  return x;
}

inline Matrix SlowOrthogonalize(const Matrix& x) {
  return SlowOrthogonalize(x, [](int, const Matrix& same) { return same; });
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_KERNELS_SLOW_NEWTON_SCHULZ_H_
