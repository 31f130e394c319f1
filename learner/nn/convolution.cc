#include "learner/nn/convolution.h"

#include <glog/logging.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "learner/device/host.h"
#include "learner/kernels/convolution.h"
#include "learner/kernels/pixels.h"
#include "learner/nn/numbers.h"
#include "services/base/precision.h"

namespace flotilla {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kImages = 4;  // that are worth a thread
// Weights, or up to four times as many sums of them (winograd_plan.h), are read for every
// few images: no more than a cache that cores share holds.
constexpr int64_t kMostWeights = 1 << 20;

// Whether images of `x`, [N, ...] contiguous, are turned here, several times as fast as
// Torch copies them.
bool IsTurnedHere(const Tensor& x) {
  return x.is_cpu() && x.dim() == 4 && x.is_contiguous() &&
         (x.scalar_type() == torch::kFloat32 || IsHalf(x.scalar_type()));
}

template <typename Number>
void TurnTo(const Tensor& x, int64_t rows, int64_t columns, const Tensor& out) {
  at::parallel_for(0, x.size(0), kImages, [&](int64_t first, int64_t end) {
    const int64_t at = first * rows * columns;
    TurnImages(end - first, rows, columns, Numbers<Number>(x) + at,
               Numbers<Number>(out) + at);
  });
}

// [N, rows, columns] as [N, columns, rows].
void TurnTo(const Tensor& x, int64_t rows, int64_t columns, const Tensor& out) {
  const auto turn = IsHalf(x.scalar_type()) ? TurnTo<Bfloat16> : TurnTo<float>;
  turn(x, rows, columns, out);
}

// [N, C, H, W] as [N, H, W, C], without a copy if its channels are last.
Tensor ChannelsLast(const Tensor& x) {
  const Tensor last = x.permute({0, 2, 3, 1});
  if (last.is_contiguous() || !IsTurnedHere(x)) return last.contiguous();
  const Tensor out = at::empty(last.sizes(), x.options());
  TurnTo(x, x.size(1), x.size(2) * x.size(3), out);
  return out;
}

// `last` as IsTurnedHere.
Tensor TurnChannelsFirst(const Tensor& x, const Tensor& last) {
  const Tensor out = at::empty(x.sizes(), x.options());
  TurnTo(last, x.size(2) * x.size(3), x.size(1), out);
  return out;
}

class TurnedImages : public torch::autograd::Function<TurnedImages> {
 public:
  static Tensor forward(AutogradContext*, const Tensor& x, const Tensor& last) {
    return TurnChannelsFirst(x, last);
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0], Tensor()};
  }
};

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

int64_t PackedSize(const ConvolutionShape& shape, torch::Dtype dtype) {
  return IsHalf(dtype) ? shape.weights() : PackedFloats(shape);
}

Tensor Pack(const ConvolutionShape& shape, const Tensor& weight,
            torch::Dtype dtype) {
  const Tensor packed =
      at::empty({PackedSize(shape, dtype)}, weight.options().dtype(dtype));
  if (IsHalf(dtype)) {
    PackConvolution(shape, Host<float>(weight), Numbers<Bfloat16>(packed));
  } else {
    PackConvolution(shape, Host<float>(weight), Host<float>(packed));
  }
  return packed;
}

template <typename Number>
void RunPacked(const ConvolutionShape& shape, const Tensor& x,
               const Tensor& packed, const Tensor& bias, const Tensor& y) {
  at::parallel_for(0, x.size(0), kImages, [&](int64_t first, int64_t end) {
    ConvolutionForward(
        shape, ConvolutionImages<Number>{
                   .n = end - first,
                   .x = Numbers<Number>(x) + first * shape.image(),
                   .packed = Numbers<Number>(packed),
                   .bias = Host<float>(bias),
                   .y = Numbers<Number>(y) + first * shape.out_image()});
  });
}

// `x` [N, H, W, C].
Tensor RunPacked(const ConvolutionShape& shape, const Tensor& x,
                 const Tensor& packed, const Tensor& bias) {
  CHECK_EQ(packed.numel(), PackedSize(shape, x.scalar_type()));
  const Tensor y =
      at::empty({x.size(0), shape.out_height(), shape.out_width(), shape.out},
                x.options());
  const auto run =
      IsHalf(x.scalar_type()) ? RunPacked<Bfloat16> : RunPacked<float>;
  run(shape, x, packed, bias, y);
  return y;
}

Tensor RunForward(const ConvolutionShape& shape, const Tensor& x,
                  const Tensor& weight, const Tensor& bias) {
  return RunPacked(shape, x, Pack(shape, weight, x.scalar_type()), bias);
}

// Of `from_y`, for `x` if `to_x` is a tensor, and for what is
// added to `sums` [shares, weights and biases]: a share of the images a thread.
template <typename Number>
void RunBackward(const ConvolutionShape& shape, const variable_list& saved,
                 const Tensor& from_y, const Tensor& to_x, const Tensor& sums) {
  const Tensor &x = saved[0], &weight = saved[1], &y = saved[2];
  const Tensor from_sum = at::empty_like(from_y);
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
                              .from_sum = out(from_sum),
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
                        int64_t stride, int64_t learned) {
    const Tensor images = ChannelsLast(x), weights = weight.contiguous();
    const Tensor y = RunForward(ShapeOf(images, weight, stride), images,
                                weights, bias.contiguous());
    ctx->save_for_backward({images, weights, y});
    ctx->saved_data["learned"] = std::min(learned, x.size(0));
    ctx->saved_data["stride"] = stride;
    return y.permute({0, 3, 1, 2});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "ConvolveRelu has no gradient of its gradient");
    variable_list saved = ctx->get_saved_variables();
    const int64_t learned = ctx->saved_data["learned"].toInt();
    saved[0] = saved[0].narrow(0, 0, learned);
    saved[2] = saved[2].narrow(0, 0, learned);
    const Tensor &x = saved[0], &weight = saved[1];
    const ConvolutionShape shape =
        ShapeOf(x, weight, ctx->saved_data["stride"].toInt());
    const Tensor from_y = ChannelsLast(grads[0].narrow(0, 0, learned));
    const Tensor to_x =
        ctx->needs_input_grad(0) ? GradientRoom(x, grads[0].size(0)) : Tensor();
    const int64_t shares = std::clamp<int64_t>(at::get_num_threads(), 1,
                                               std::max<int64_t>(x.size(0), 1));
    const Tensor sums =
        at::zeros({shares, shape.weights() + shape.out}, weight.options());
    const auto run =
        IsHalf(x.scalar_type()) ? RunBackward<Bfloat16> : RunBackward<float>;
    run(shape, saved, from_y, to_x, sums);
    const Tensor sum = shares == 1 ? sums[0] : sums.sum(0);
    const Tensor to_weight = at::empty_like(weight);
    UnpackConvolution(shape, Host<float>(sum), Host<float>(to_weight));
    return {to_x.defined() ? to_x.permute({0, 3, 1, 2}) : Tensor(), to_weight,
            sum.narrow(0, shape.weights(), shape.out), Tensor(), Tensor()};
  }
};

}  // namespace

bool KernelsMultiplyBfloat16() {
  static const bool do_so = [] {
    const KernelTable& best = BestKernels();
    return best.has_tiles ||
           (best.multiplies_bfloat16 && ArithmeticOfCpu().full_avx512_bf16);
  }();
  return do_so;
}

bool ConvolvesByKernel(const Tensor& x, const Tensor& weight) {
  return x.is_cpu() && x.dim() == 4 &&
         IsConvolutionByKernel(weight, x.scalar_type()) &&
         weight.size(1) == x.size(1) && weight.size(2) <= x.size(2) &&
         weight.size(3) <= x.size(3) &&
         (!x.requires_grad() || Fits(weight.size(1)));
}

bool IsConvolutionByKernel(const Tensor& weight, torch::Dtype dtype) {
  if (!IsWeight(weight)) return false;
  return IsHalf(dtype) ? KernelsMultiplyBfloat16() && weight.size(1) % 2 == 0
                       : dtype == torch::kFloat32;
}

Tensor ConvolveRelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                    int64_t stride, int64_t learned) {
  CHECK(ConvolvesByKernel(x, weight));
  CHECK_EQ(bias.numel(), weight.size(0));
  if (at::GradMode::is_enabled()) {
    return Convolution::apply(x, weight, bias, stride, learned);
  }
  const Tensor images = ChannelsLast(x);
  return RunForward(ShapeOf(images, weight, stride), images,
                    weight.contiguous(), bias.contiguous())
      .permute({0, 3, 1, 2});
}

Tensor ChannelsFirst(const Tensor& x) {
  if (x.is_contiguous() || x.dim() != 4) return x.contiguous();
  const Tensor last = x.detach().permute({0, 2, 3, 1});
  if (!IsTurnedHere(last)) return x.contiguous();
  return at::GradMode::is_enabled() && x.requires_grad()
             ? TurnedImages::apply(x, last)
             : TurnChannelsFirst(x, last);
}

Tensor PackConvolutionWeight(const Tensor& weight, int64_t height,
                             int64_t width, int64_t stride,
                             torch::Dtype dtype) {
  CHECK(IsConvolutionByKernel(weight, dtype));
  const ConvolutionShape shape = {.height = height,
                                  .width = width,
                                  .in = weight.size(1),
                                  .kernel = weight.size(2),
                                  .stride = stride,
                                  .out = weight.size(0)};
  return Pack(shape, weight.contiguous(), dtype);
}

Tensor ConvolveReluByPacked(const Tensor& x, const Tensor& packed,
                            const Tensor& bias, int64_t kernel,
                            int64_t stride) {
  const Tensor images = ChannelsLast(x);
  const ConvolutionShape shape = ShapeOf(images, kernel, stride, bias.numel());
  return RunPacked(shape, images, packed, bias.contiguous())
      .permute({0, 3, 1, 2});
}

}  // namespace flotilla
