#include "learner/nn/convolution.h"

#include <glog/logging.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <type_traits>

#include "learner/device/host.h"
#include "learner/kernels/convolution.h"
#include "learner/nn/numbers.h"
#include "services/base/precision.h"

namespace flotilla {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kImages = 4;  // that are worth a thread
// Weights, or up to four times as many sums of them, are read for every few images: no
// more than a cache that cores share holds.
constexpr int64_t kMostWeights = 1 << 20;

// [N, C, H, W] as [N, H, W, C], without a copy if its channels are last.
Tensor ChannelsLast(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).contiguous();
}

ConvolutionShape ShapeOf(const Tensor& x, int64_t kernel, int64_t stride,
                         int64_t out) {
  return {.height = x.size(1),
          .width = x.size(2),
          .in = x.size(3),
          .kernel = kernel,
          .stride = stride,
          .out = out};
}

ConvolutionShape ShapeOf(const Tensor& x, const Tensor& weight,
                         int64_t stride) {
  return ShapeOf(x, weight.size(2), stride, weight.size(0));
}

bool Fits(int64_t channels) { return channels % kConvolutionWidth == 0; }

// Whether kernels take it for some images.
bool IsWeight(const Tensor& weight) {
  return weight.is_cpu() && weight.scalar_type() == torch::kFloat32 &&
         weight.dim() == 4 && weight.size(2) == weight.size(3) &&
         weight.numel() <= kMostWeights && Fits(weight.size(0));
}

template <typename Number>
Tensor Pack(const ConvolutionShape& shape, const Tensor& weight,
            torch::Dtype dtype) {
  const bool half = std::is_same_v<Number, Bfloat16>;
  const Tensor packed =
      at::empty({half ? shape.weights() : PackedFloats(shape)},
                weight.options().dtype(dtype));
  PackConvolution(shape, Host<float>(weight), Numbers<Number>(packed));
  return packed;
}

// `x` [N, H, W, C].
template <typename Number>
Tensor RunPacked(const ConvolutionShape& shape, const Tensor& x,
                 const Tensor& packed, const Tensor& bias) {
  Tensor y =
      at::empty({x.size(0), shape.out_height(), shape.out_width(), shape.out},
                x.options());
  at::parallel_for(0, x.size(0), kImages, [&](int64_t first, int64_t end) {
    ConvolutionForward(
        shape, ConvolutionImages<Number>{
                   .n = end - first,
                   .x = Numbers<Number>(x) + first * shape.image(),
                   .packed = Numbers<Number>(packed),
                   .bias = Host<float>(bias),
                   .y = Numbers<Number>(y) + first * shape.out_image()});
  });
  return y;
}

Tensor RunForward(const ConvolutionShape& shape, const Tensor& x,
                  const Tensor& weight, const Tensor& bias) {
  const torch::Dtype dtype = x.scalar_type();
  return dtype == torch::kBFloat16
             ? RunPacked<Bfloat16>(shape, x,
                                   Pack<Bfloat16>(shape, weight, dtype), bias)
             : RunPacked<float>(shape, x, Pack<float>(shape, weight, dtype),
                                bias);
}

// Of `from_y`, which it changes, for `x` if `to_x` is a tensor, and for what is
// added to `sums` [shares, weights and biases]: a share of the images a thread.
template <typename Number>
void RunBackward(const ConvolutionShape& shape, const variable_list& saved,
                 const Tensor& from_y, const Tensor& to_x, const Tensor& sums) {
  const Tensor &x = saved[0], &weight = saved[1], &y = saved[2];
  const int64_t N = x.size(0), shares = sums.size(0);
  const int64_t share = (N + shares - 1) / shares;
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t stop) {
    for (int64_t s = begin; s < stop; ++s) {
      const int64_t first = s * share;
      const int64_t n = std::min(share, N - first);
      if (n <= 0) continue;
      const auto images = [&](const Tensor& of) {
        return Numbers<Number>(of) + first * shape.image();
      };
      const auto out = [&](const Tensor& of) {
        return Numbers<Number>(of) + first * shape.out_image();
      };
      float* const sum = Host<float>(sums) + s * sums.size(1);
      ConvolutionBackward(shape,
                          ConvolutionBack<Number>{
                              .n = n,
                              .x = images(x),
                              .weight = Host<float>(weight),
                              .y = out(y),
                              .from_y = out(from_y),
                              .to_x = to_x.defined() ? images(to_x) : nullptr,
                              .to_packed = sum,
                              .to_bias = sum + shape.weights()});
    }
  });
}

class Convolution : public torch::autograd::Function<Convolution> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x,
                        const Tensor& weight, const Tensor& bias,
                        int64_t stride) {
    const Tensor images = ChannelsLast(x), weights = weight.contiguous();
    const Tensor y = RunForward(ShapeOf(images, weight, stride), images,
                                weights, bias.contiguous());
    ctx->save_for_backward({images, weights, y});
    ctx->saved_data["stride"] = stride;
    return y.permute({0, 3, 1, 2});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "ConvolveRelu has no gradient of its gradient");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const ConvolutionShape shape =
        ShapeOf(x, weight, ctx->saved_data["stride"].toInt());
    // Of its own: the kernel takes the ReLU off in place.
    const Tensor from_y =
        grads[0].permute({0, 2, 3, 1}).clone(torch::MemoryFormat::Contiguous);
    const Tensor to_x = ctx->needs_input_grad(0) ? at::empty_like(x) : Tensor();
    const int64_t shares = std::clamp<int64_t>(at::get_num_threads(), 1,
                                               std::max<int64_t>(x.size(0), 1));
    const Tensor sums =
        at::zeros({shares, shape.weights() + shape.out}, weight.options());
    const auto run = x.scalar_type() == torch::kBFloat16 ? RunBackward<Bfloat16>
                                                         : RunBackward<float>;
    run(shape, saved, from_y, to_x, sums);
    const Tensor sum = shares == 1 ? sums[0] : sums.sum(0);
    const Tensor to_weight = at::empty_like(weight);
    UnpackConvolution(shape, Host<float>(sum), Host<float>(to_weight));
    return {to_x.defined() ? to_x.permute({0, 3, 1, 2}) : Tensor(), to_weight,
            sum.narrow(0, shape.weights(), shape.out), Tensor()};
  }
};

}  // namespace

bool KernelsMultiplyBfloat16() {
  static const bool do_so = [] {
    const Arithmetic cpu = ArithmeticOfCpu();
    return BestKernels().multiplies_bfloat16 && cpu.full_avx512_bf16 &&
           !cpu.amx_bf16;
  }();
  return do_so;
}

bool ConvolvesByKernel(const Tensor& x, const Tensor& weight) {
  const bool half = x.scalar_type() == torch::kBFloat16;
  return x.is_cpu() && x.dim() == 4 &&
         (half ? IsBfloat16Convolution(weight)
               : x.scalar_type() == torch::kFloat32 && IsWeight(weight)) &&
         weight.size(1) == x.size(1) && weight.size(2) <= x.size(2) &&
         weight.size(3) <= x.size(3) &&
         (!x.requires_grad() || Fits(weight.size(1)));
}

bool IsBfloat16Convolution(const Tensor& weight) {
  return KernelsMultiplyBfloat16() && IsWeight(weight) &&
         weight.size(1) % 2 == 0;
}

Tensor ConvolveRelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                    int64_t stride) {
  CHECK(ConvolvesByKernel(x, weight));
  CHECK_EQ(bias.numel(), weight.size(0));
  if (at::GradMode::is_enabled()) {
    return Convolution::apply(x, weight, bias, stride);
  }
  const Tensor images = ChannelsLast(x);
  return RunForward(ShapeOf(images, weight, stride), images,
                    weight.contiguous(), bias.contiguous())
      .permute({0, 3, 1, 2});
}

Tensor PackConvolutionWeight(const Tensor& weight) {
  CHECK(IsBfloat16Convolution(weight));
  const ConvolutionShape shape = {
      .in = weight.size(1), .kernel = weight.size(2), .out = weight.size(0)};
  return Pack<Bfloat16>(shape, weight.contiguous(), torch::kBFloat16);
}

Tensor ConvolveReluByPacked(const Tensor& x, const Tensor& packed,
                            const Tensor& bias, int64_t kernel,
                            int64_t stride) {
  const Tensor images = ChannelsLast(x);
  const ConvolutionShape shape = ShapeOf(images, kernel, stride, bias.numel());
  CHECK_EQ(packed.numel(), shape.weights());
  return RunPacked<Bfloat16>(shape, images, packed, bias.contiguous())
      .permute({0, 3, 1, 2});
}

}  // namespace flotilla
