#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "learner/kernels/convolution.h"
#include "learner/kernels/isa/aligned_floats.h"
#include "learner/kernels/linear.h"

// GFLOP/s of one core, the best of many calls: a batch of images through each layer
// of Mnih et al. 2015 and of a network as wide as DI-engine's, forward, and back to
// weights and images, in float32 and bfloat16, by each instruction set of this machine.
//
// usage: flotilla_layer_kernels_bench [IMAGES]   (128)

namespace flotilla {
namespace {

constexpr ConvolutionShape kLayers[] = {
    {.height = 84, .width = 84, .in = 4, .kernel = 8, .stride = 4, .out = 32},
    {.height = 20, .width = 20, .in = 32, .kernel = 4, .stride = 2, .out = 64},
    {.height = 9, .width = 9, .in = 64, .kernel = 3, .stride = 1, .out = 64},
    {.height = 20,
     .width = 20,
     .in = 128,
     .kernel = 4,
     .stride = 2,
     .out = 128},
    {.height = 9, .width = 9, .in = 128, .kernel = 3, .stride = 1, .out = 512},
};
constexpr int64_t kLinear[] = {3136, 25088};  // to 512

// Where a cache line begins, as LibTorch's memory does: rows that lie across lines cost
// twice as much to load.
template <typename Number>
class Aligned {
 public:
  explicit Aligned(int64_t size, Number fill = {})
      : size_(size),
        memory_(MakeAlignedFloats(
            (size * static_cast<int64_t>(sizeof(Number)) + 3) / 4)) {
    std::fill(data(), data() + size, fill);
  }
  Number* data() const { return reinterpret_cast<Number*>(memory_.get()); }
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  AlignedFloats memory_;
};

double BestSeconds(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(150);
  while (Clock::now() < end) {
    const Clock::time_point begin = Clock::now();
    run();
    best = std::min(
        best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

template <typename Number>
void Measure(const KernelTable& kernels, const ConvolutionShape& shape,
             int64_t n, std::string_view type) {
  const Number one = static_cast<Number>(sizeof(Number) == 2 ? 0x3f80 : 1);
  Aligned<Number> x(n * shape.image(), one), y(n * shape.out_image(), one);
  Aligned<Number> from_y(y.size(), one), to_x(x.size());
  Aligned<Number> packed(sizeof(Number) == 4 ? PackedFloats(shape)
                                             : shape.weights());
  Aligned<float> weight(shape.weights(), 0.01f), bias(shape.out);
  Aligned<float> to_packed(shape.weights()), to_bias(shape.out);
  const auto forward = [&] {
    PackConvolution(shape, weight.data(), packed.data(), kernels);
    ConvolutionForward(shape,
                       ConvolutionImages<Number>{.n = n,
                                                 .x = x.data(),
                                                 .packed = packed.data(),
                                                 .bias = bias.data(),
                                                 .y = y.data()},
                       kernels);
  };
  const auto backward = [&](Number* images) {
    ConvolutionBackward(shape,
                        ConvolutionBack<Number>{.n = n,
                                                .x = x.data(),
                                                .weight = weight.data(),
                                                .y = y.data(),
                                                .from_y = from_y.data(),
                                                .from_sum = from_y.data(),
                                                .to_x = images,
                                                .to_packed = to_packed.data(),
                                                .to_bias = to_bias.data()},
                        kernels);
  };
  const double flop =
      2e-9 * static_cast<double>(n * shape.out_height() * shape.out_width()) *
      static_cast<double>(shape.weights());
  const double seconds = BestSeconds(forward);
  const double to_weights = BestSeconds([&] { backward(nullptr); });
  std::printf("%-15s %s  %3lld channels to %3lld: forward %6.1f  weights %6.1f",
              kernels.name, type.data(), static_cast<long long>(shape.in),
              static_cast<long long>(shape.out), flop / seconds,
              flop / to_weights);
  if (shape.in % kConvolutionWidth == 0) {
    const double both = BestSeconds([&] { backward(to_x.data()); });
    std::printf("  images %6.1f", flop / (both - to_weights));
  }
  std::printf("\n");
}

template <typename Number>
void MeasureLinear(const KernelTable& kernels, int64_t n, int64_t in,
                   std::string_view type) {
  const LinearShape shape = {.n = n, .in = in, .out = 512};
  const Number one = static_cast<Number>(sizeof(Number) == 2 ? 0x3f80 : 1);
  Aligned<Number> x(n * in, one), from_y(n * shape.out, one);
  Aligned<Number> to_x(x.size());
  Aligned<Number> x_pairs((n + 1) * in), y_pairs((n + 1) * shape.out);
  Aligned<float> weight(in * shape.out, 0.01f), bias(shape.out);
  Aligned<float> y(from_y.size()), to_weight(weight.size());
  const double flop = 2e-9 * static_cast<double>(n * in * shape.out);
  const double forward = BestSeconds([&] {
    LinearForward(shape, {0, shape.out}, x.data(), {.weight = weight.data()},
                  bias.data(),
                  /*relu=*/true, y.data(), kernels);
  });
  const double weights = BestSeconds([&] {
    if constexpr (sizeof(Number) == 2) {
      PairRowsOf(n, in, x.data(), x_pairs.data(), kernels);
      PairRowsOf(n, shape.out, from_y.data(), y_pairs.data(), kernels);
      LinearToWeight(shape, {0, shape.out}, x_pairs.data(), y_pairs.data(),
                     /*adds=*/true, to_weight.data(), kernels);
    } else {
      LinearToWeight(shape, {0, shape.out}, x.data(), from_y.data(),
                     /*adds=*/true, to_weight.data(), kernels);
    }
  });
  const double images = BestSeconds([&] {
    LinearToX(shape, {0, in}, from_y.data(), weight.data(), to_x.data(),
              kernels);
  });
  std::printf(
      "%-15s %s  %5lld to 512: forward %6.1f  weights %6.1f  images %6.1f\n",
      kernels.name, type.data(), static_cast<long long>(in), flop / forward,
      flop / weights, flop / images);
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoi(argv[1]) : 128;
  if (n < 1) {
    std::fprintf(stderr, "usage: %s [IMAGES]\n", argv[0]);
    return 2;
  }
  for (const flotilla::KernelTable* kernels : flotilla::RunnableKernels()) {
    for (const flotilla::ConvolutionShape& shape : flotilla::kLayers) {
      flotilla::Measure<float>(*kernels, shape, n, "float32 ");
      flotilla::Measure<flotilla::Bfloat16>(*kernels, shape, n, "bfloat16");
    }
    for (const int64_t in : flotilla::kLinear) {
      flotilla::MeasureLinear<float>(*kernels, n, in, "float32 ");
      flotilla::MeasureLinear<flotilla::Bfloat16>(*kernels, n, in, "bfloat16");
    }
  }
}
