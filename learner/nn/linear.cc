#include "learner/nn/linear.h"

#include <glog/logging.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "learner/device/host.h"
#include "learner/kernels/linear.h"
#include "learner/nn/convolution.h"

namespace flotilla {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Bfloat16* Halves(const Tensor& tensor) {
  return reinterpret_cast<Bfloat16*>(Host<at::BFloat16>(tensor));
}

LinearShape ShapeOf(const Tensor& x, int64_t out) {
  return {.n = x.size(0), .in = x.size(1), .out = out};
}

// Calls run(part) in as many parts of `width` as there are threads, of whole blocks.
template <typename Run>
void ForParts(int64_t width, Run run) {
  const int64_t blocks = (width + kLinearBlock - 1) / kLinearBlock;
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t end) {
    run(LinearPart{first * kLinearBlock, std::min(end * kLinearBlock, width)});
  });
}

Tensor RunForward(const Tensor& x, LinearWeights weights, const Tensor& bias,
                  bool relu) {
  const LinearShape shape = ShapeOf(x, bias.size(0));
  const Tensor y = at::empty({shape.n, shape.out}, bias.options());
  ForParts(shape.out, [&](LinearPart out) {
    LinearForward(shape, out, Halves(x), weights, Host<float>(bias), relu,
                  Host<float>(y));
  });
  return y;
}

Tensor PairsOf(const Tensor& rows) {
  const int64_t n = rows.size(0), width = rows.size(1);
  const Tensor pairs = at::empty({(n + 1) / 2, width, 2}, rows.options());
  PairRowsOf(n, width, Halves(rows), Halves(pairs));
  return pairs;
}

class Linear : public torch::autograd::Function<Linear> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, bool relu) {
    const Tensor rows = x.contiguous(), weights = weight.contiguous();
    const Tensor y = RunForward(rows, {.weight = Host<float>(weights)},
                                bias.contiguous(), relu);
    ctx->save_for_backward({rows, weights, relu ? y : Tensor()});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "LinearByKernel has no gradient of its gradient");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &y = saved[2];
    const LinearShape shape = ShapeOf(x, weight.size(0));
    Tensor from_y = grads[0].contiguous();
    if (y.defined()) {
      // Also of a NaN, which is not hidden.
      from_y = at::where(y <= 0, at::zeros({}, from_y.options()), from_y);
    }
    const Tensor half = from_y.to(torch::kBFloat16);
    const Tensor x_pairs = PairsOf(x), y_pairs = PairsOf(half);
    const Tensor to_weight = at::empty_like(weight);
    ForParts(shape.out, [&](LinearPart out) {
      LinearToWeight(shape, out, Halves(x_pairs), Halves(y_pairs),
                     Host<float>(to_weight));
    });
    Tensor to_x;
    if (ctx->needs_input_grad(0)) {
      to_x = at::empty_like(x);
      ForParts(shape.in, [&](LinearPart in) {
        LinearToX(shape, in, Halves(half), Host<float>(weight), Halves(to_x));
      });
    }
    return {to_x, to_weight, from_y.sum(0), Tensor()};
  }
};

}  // namespace

bool IsLinearByKernel(const Tensor& weight) {
  return KernelsMultiplyBfloat16() && weight.is_cpu() &&
         weight.scalar_type() == torch::kFloat32 && weight.dim() == 2 &&
         weight.size(0) % kLinearWidth == 0 &&
         weight.size(1) % kLinearWidth == 0;
}

Tensor LinearByKernel(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      bool relu) {
  CHECK(IsLinearByKernel(weight));
  CHECK_EQ(x.size(1), weight.size(1));
  CHECK_EQ(bias.numel(), weight.size(0));
  if (at::GradMode::is_enabled()) {
    return Linear::apply(x, weight, bias, relu);
  }
  const Tensor weights = weight.contiguous();
  return RunForward(x.contiguous(), {.weight = Host<float>(weights)},
                    bias.contiguous(), relu);
}

Tensor PackLinearWeight(const Tensor& weight) {
  CHECK(IsLinearByKernel(weight));
  const Tensor weights = weight.contiguous();
  const Tensor packed =
      at::empty({weight.numel()}, weight.options().dtype(torch::kBFloat16));
  PackLinear({.in = weight.size(1), .out = weight.size(0)},
             Host<float>(weights), Halves(packed));
  return packed;
}

Tensor LinearByPacked(const Tensor& x, const Tensor& packed, const Tensor& bias,
                      bool relu) {
  CHECK_EQ(packed.numel(), x.size(1) * bias.numel());
  return RunForward(x.contiguous(), {.packed = Halves(packed)},
                    bias.contiguous(), relu);
}

}  // namespace flotilla
