#ifndef FLOTILLA_LEARNER_NN_GRADIENT_FACTORS_H_
#define FLOTILLA_LEARNER_NN_GRADIENT_FACTORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "learner/nn/flat_parameters.h"
#include "learner/torch.h"

namespace flotilla {

// The gradient of a linear layer's large weight as the rows that it is a product of,
//
//   gradient [out, in] = from_y^T x      over all ranks' rows, in the order of ranks
//
// which of few rows are less to write, to bring to other ranks and to read again than
// all of it is: each rank makes the product itself, a part at a time, where it is used
// (Xie et al. 2016, Lighter-Communication Distributed Machine Learning via Sufficient
// Factor Broadcasting).
//
//   Begin, a backward pass (FreshGradients), the other ranks' rows,
//   SumOfSquares and ForProduct
//
// Not thread-safe.
class GradientFactors {
 public:
  // Of net.leaf[leaf], [out, in], used once in a backward pass by LinearByKernel, for
  // `rows` numbers x [rows, in] of `dtype` on each rank.
  GradientFactors(const FlatParameters& net, size_t leaf, torch::Dtype dtype,
                  int64_t rows);

  // Whether it is less than the gradient itself, with so many ranks.
  bool Pays(int ranks) const;

  // Of this rank's rows one of the next two follows.
  void Begin(int rank, int ranks);
  // They are zeros. A backward pass that does not use the weight does so by itself.
  void SetNothing();
  // For a backward pass. `from_y` [rows, out], `x` [rows, in], both of the dtype.
  void Set(const torch::Tensor& x, const torch::Tensor& from_y);

  // One rank's rows, as contiguous views: [rows, in] and [rows, out].
  torch::Tensor x(int rank) const { return x_[rank]; }
  torch::Tensor from_y(int rank) const { return from_y_[rank]; }
  int64_t bytes() const;  // of one rank's

  // The weight's place among the parameters: [first, first + size).
  int64_t first() const { return first_; }
  int64_t size() const { return weight_.numel(); }
  const torch::Tensor& weight() const { return weight_; }

  // Of the gradient, by x x^T and from_y from_y^T in float32: not the same bits with
  // other threads; of a gradient that is far smaller than its rows less exact. Not finite
  // if a number of the gradient may not be, or a row's squares are beyond float32.
  double SumOfSquares() const;

  // Calls use(first, count, gradient) until it has had all numbers of the gradient,
  // float32 [count] from parameter `first` on: on Torch's threads, several at once.
  using Use =
      std::function<void(int64_t first, int64_t count, const float* gradient)>;
  void ForProduct(const Use& use) const;

 private:
  int64_t out() const { return weight_.size(0); }
  int64_t in() const { return weight_.size(1); }
  template <typename Number>
  void ForProductOf(const Use& use) const;

  const torch::Tensor weight_;  // [out, in]
  const int64_t first_;
  const torch::Dtype dtype_;
  const int64_t rows_;
  int rank_ = 0;
  torch::Tensor x_, from_y_;  // [ranks, rows, in], [ranks, rows, out]
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_GRADIENT_FACTORS_H_
