#include "learner/nn/gradient_factors.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "learner/device/host.h"
#include "learner/kernels/isa/aligned_floats.h"
#include "learner/kernels/linear.h"
#include "learner/nn/linear.h"
#include "learner/nn/numbers.h"

namespace flotilla {
namespace {

using torch::Tensor;

// Of the gradient, in bytes, that rows of all ranks may take: each rank multiplies all
// of them, which takes longer the more there are.
constexpr double kMostOfGradient = 0.25;
constexpr int64_t kMostRows = 128;

// Numbers in of a part: with kLinearBlock out a second-level cache keeps them, and the
// optimizer reads and writes whole pages.
constexpr int64_t kPartWidth = 1024;

int64_t PlaceOf(const FlatParameters& net, size_t leaf) {
  int64_t first = 0;
  for (size_t i = 0; i < leaf; ++i) first += net.leaf[i].numel();
  return first;
}

// Columns [first, first + width) of `rows` rows, as LinearToWeight takes them.
template <typename Number>
void TakeColumns(const Tensor& all, int64_t rows, int64_t first, int64_t width,
                 Number* columns, Number* pairs) {
  const int64_t step = all.size(-1);
  const Number* const from = Numbers<Number>(all) + first;
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(columns + i * width, from + i * step, width * sizeof(Number));
  }
  if constexpr (std::is_same_v<Number, Bfloat16>) {
    PairRowsOf(rows, width, columns, pairs);
  }
}

}  // namespace

GradientFactors::GradientFactors(const FlatParameters& net, size_t leaf,
                                 torch::Dtype dtype, int64_t rows)
    : weight_(net.leaf.at(leaf)),
      first_(PlaceOf(net, leaf)),
      dtype_(dtype),
      rows_(rows) {
  CHECK(IsLinearByKernel(weight_, dtype));
}

bool GradientFactors::Pays(int ranks) const {
  return ranks * rows_ <= kMostRows &&
         static_cast<double>(ranks * bytes()) <=
             kMostOfGradient * sizeof(float) * static_cast<double>(size());
}

int64_t GradientFactors::bytes() const {
  return rows_ * (in() + out()) *
         static_cast<int64_t>(c10::elementSize(dtype_));
}

void GradientFactors::Begin(int rank, int ranks) {
  rank_ = rank;
  if (!x_.defined() || x_.size(0) != ranks) {
    x_ = torch::empty({ranks, rows_, in()}, dtype_);
    from_y_ = torch::empty({ranks, rows_, out()}, dtype_);
  }
}

void GradientFactors::SetNothing() {
  x(rank_).zero_();
  from_y(rank_).zero_();
}

void GradientFactors::Set(const Tensor& x, const Tensor& from_y) {
  CHECK_EQ(x.scalar_type(), dtype_);
  CHECK_EQ(x.sizes(), this->x(rank_).sizes());
  CHECK_EQ(from_y.sizes(), this->from_y(rank_).sizes());
  this->x(rank_).copy_(x);
  this->from_y(rank_).copy_(from_y);
}

double GradientFactors::SumOfSquares() const {
  torch::NoGradGuard no_grad;
  const auto products = [](const Tensor& rows) {
    const Tensor all = rows.flatten(0, 1).to(torch::kFloat32);
    const Tensor sums =
        IsLinearByKernel(all, torch::kFloat32)
            ? LinearByKernel(all, all, torch::zeros({all.size(0)}), false)
            : torch::mm(all, all.t());
    return sums.to(torch::kFloat64);
  };
  const Tensor x = products(x_), from_y = products(from_y_);
  const double sum = (x * from_y).sum().item<double>();
  // No sum of the product's, of however few of its rows, is larger.
  const double most =
      (x.diagonal() * from_y.diagonal()).sqrt().sum().item<double>();
  if (!(most <= std::numeric_limits<float>::max())) {
    return std::isnan(most) ? most : std::numeric_limits<double>::infinity();
  }
  return sum < 0 ? 0 : sum;  // by rounding
}

void GradientFactors::ForProduct(const Use& use) const {
  if (IsHalf(dtype_)) {
    ForProductOf<Bfloat16>(use);
  } else {
    ForProductOf<float>(use);
  }
}

template <typename Number>
void GradientFactors::ForProductOf(const Use& use) const {
  constexpr bool kPairs = std::is_same_v<Number, Bfloat16>;
  const int64_t rows = x_.size(0) * rows_, paired = (rows + 1) / 2 * 2;
  const auto room = [&](int64_t width) {
    return std::vector<Number>(paired * width);
  };
  std::vector<std::vector<Number>> from_y;  // of each block of numbers out
  std::vector<Number> columns = room(kLinearBlock);
  for (int64_t o = 0; o < out(); o += kLinearBlock) {
    const int64_t height = std::min(kLinearBlock, out() - o);
    from_y.push_back(room(height));
    TakeColumns(from_y_, rows, o, height,
                kPairs ? columns.data() : from_y.back().data(),
                from_y.back().data());
  }
  const int64_t blocks = std::ssize(from_y);
  const int64_t parts = (in() + kPartWidth - 1) / kPartWidth;
  at::parallel_for(0, parts * blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<Number> some = room(kPartWidth);
    std::vector<Number> pairs = room(kPairs ? kPartWidth : 0);
    const AlignedFloats product = MakeAlignedFloats(kLinearBlock * kPartWidth);
    int64_t taken = -1;  // the part
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i / blocks, block = i % blocks;
      const int64_t c = part * kPartWidth, o = block * kLinearBlock;
      const int64_t width = std::min(kPartWidth, in() - c);
      const int64_t height = std::min(kLinearBlock, out() - o);
      if (part != taken) {
        TakeColumns(x_, rows, c, width, some.data(), pairs.data());
      }
      taken = part;
      LinearToWeight({.n = rows, .in = width, .out = height}, {0, height},
                     kPairs ? pairs.data() : some.data(), from_y[block].data(),
                     /*adds=*/false, product.get());
      for (int64_t r = 0; r < height; ++r) {
        use(first_ + (o + r) * in() + c, width, product.get() + r * width);
      }
    }
  });
}

}  // namespace flotilla
