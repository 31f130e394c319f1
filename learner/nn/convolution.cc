#include "learner/nn/convolution.h"

#include <glog/logging.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "learner/device/host.h"
#include "learner/kernels/convolution.h"

namespace flotilla {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kImages = 4;  // that are worth a thread
// Image by image all weights are read: they must stay in a core's own cache. Pong's
// DQN, with 128 and 512 channels, took a tenth longer than by conv2d.
constexpr int64_t kMostWeights = 64 << 10;

// [N, C, H, W] as [N, H, W, C], without a copy if its channels are last.
Tensor ChannelsLast(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).contiguous();
}

ConvolutionShape ShapeOf(const Tensor& x, const Tensor& weight,
                         int64_t stride) {
  return {.height = x.size(1),
          .width = x.size(2),
          .in = x.size(3),
          .kernel = weight.size(2),
          .stride = stride,
          .out = weight.size(0)};
}

// `x` [N, H, W, C].
Tensor RunForward(const ConvolutionShape& shape, const Tensor& x,
                  const Tensor& weight, const Tensor& bias) {
  const Tensor packed = at::empty({shape.weights()}, weight.options());
  PackConvolution(shape, Host<float>(weight), Host<float>(packed));
  Tensor y =
      at::empty({x.size(0), shape.out_height(), shape.out_width(), shape.out},
                x.options());
  at::parallel_for(0, x.size(0), kImages, [&](int64_t first, int64_t end) {
    ConvolutionForward(shape,
                       {.n = end - first,
                        .x = Host<float>(x) + first * shape.image(),
                        .packed = Host<float>(packed),
                        .bias = Host<float>(bias),
                        .y = Host<float>(y) + first * shape.out_image()});
  });
  return y;
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
    const Tensor &x = saved[0], &weight = saved[1], &y = saved[2];
    const ConvolutionShape shape =
        ShapeOf(x, weight, ctx->saved_data["stride"].toInt());
    // Of its own: the kernel takes the ReLU off in place.
    const Tensor from_y =
        grads[0].permute({0, 2, 3, 1}).clone(torch::MemoryFormat::Contiguous);
    const Tensor to_x = ctx->needs_input_grad(0) ? at::empty_like(x) : Tensor();
    // A share of the images a thread, and sums of its own.
    const int64_t N = x.size(0);
    const int64_t shares =
        std::clamp<int64_t>(at::get_num_threads(), 1, std::max<int64_t>(N, 1));
    const int64_t share = (N + shares - 1) / shares;
    const Tensor sums =
        at::zeros({shares, shape.weights() + shape.out}, x.options());
    at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t stop) {
      for (int64_t s = begin; s < stop; ++s) {
        const int64_t first = s * share;
        const int64_t n = std::min(share, N - first);
        if (n <= 0) continue;
        float* const sum = Host<float>(sums) + s * sums.size(1);
        ConvolutionBackward(
            shape,
            {.n = n,
             .x = Host<float>(x) + first * shape.image(),
             .weight = Host<float>(weight),
             .y = Host<float>(y) + first * shape.out_image(),
             .from_y = Host<float>(from_y) + first * shape.out_image(),
             .to_x = to_x.defined() ? Host<float>(to_x) + first * shape.image()
                                    : nullptr,
             .to_packed = sum,
             .to_bias = sum + shape.weights()});
      }
    });
    const Tensor sum = shares == 1 ? sums[0] : sums.sum(0);
    return {to_x.defined() ? to_x.permute({0, 3, 1, 2}) : Tensor(),
            sum.narrow(0, 0, shape.weights())
                .view({shape.kernel, shape.kernel, shape.in, shape.out})
                .permute({3, 2, 0, 1}),
            sum.narrow(0, shape.weights(), shape.out), Tensor()};
  }
};

}  // namespace

bool ConvolvesByKernel(const Tensor& x, const Tensor& weight) {
  const auto fits = [](int64_t channels) {
    return channels % kConvolutionWidth == 0;
  };
  return x.is_cpu() && x.scalar_type() == torch::kFloat32 && x.dim() == 4 &&
         weight.is_cpu() && weight.scalar_type() == torch::kFloat32 &&
         weight.dim() == 4 && weight.numel() <= kMostWeights &&
         weight.size(1) == x.size(1) && weight.size(2) == weight.size(3) &&
         weight.size(2) <= x.size(2) && weight.size(3) <= x.size(3) &&
         fits(weight.size(0)) && (!x.requires_grad() || fits(weight.size(1)));
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

}  // namespace flotilla
