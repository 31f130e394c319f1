#include "learner/nn/linear.h"

#include <glog/logging.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <mutex>

#include "learner/device/host.h"
#include "learner/kernels/linear.h"
#include "learner/nn/convolution.h"
#include "learner/nn/fresh_gradients.h"
#include "learner/nn/numbers.h"

namespace flotilla {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In float32 a library keeps as many in its caches as well, and for a few rows
// arranges nothing.
constexpr int64_t kLibrarysWeights = 1 << 18;

LinearShape ShapeOf(const Tensor& x, int64_t out) {
  return {.n = x.size(0), .in = x.size(1), .out = out};
}

// Calls run(part) in as many parts of `width` as there are threads, in multiples of
// `unit`.
template <typename Run>
void ForParts(int64_t width, int64_t unit, Run run) {
  const int64_t units = (width + unit - 1) / unit;
  at::parallel_for(0, units, 1, [&](int64_t first, int64_t end) {
    run(LinearPart{first * unit, std::min(end * unit, width)});
  });
}

// Calls run(first row, rows, part) likewise, with rows shared out too where threads
// outnumber blocks of `width`.
template <typename Run>
void ForRowsAndParts(int64_t n, int64_t width, Run run) {
  const int64_t blocks = (width + kLinearBlock - 1) / kLinearBlock;
  const int64_t shares = std::clamp<int64_t>(at::get_num_threads() / blocks, 1,
                                             std::max<int64_t>(n, 1));
  const int64_t share = (n + shares - 1) / shares;
  at::parallel_for(0, shares * blocks, 1, [&](int64_t begin, int64_t stop) {
    while (begin < stop) {
      const int64_t s = begin / blocks, end = std::min(stop, (s + 1) * blocks);
      const int64_t row = s * share, rows = std::min(share, n - row);
      const LinearPart part = {
          (begin - s * blocks) * kLinearBlock,
          std::min((end - s * blocks) * kLinearBlock, width)};
      if (rows > 0) run(row, rows, part);
      begin = end;
    }
  });
}

// `weight`, or `packed` if that is defined.
template <typename Number>
Tensor RunForward(const Tensor& x, const Tensor& weight, const Tensor& packed,
                  const Tensor& bias, bool relu) {
  const LinearShape shape = ShapeOf(x, bias.size(0));
  const Tensor y = at::empty({shape.n, shape.out}, bias.options());
  LinearWeights<Number> weights;
  if (packed.defined()) {
    weights.packed = Numbers<Number>(packed);
  } else {
    weights.weight = Host<float>(weight);
  }
  ForRowsAndParts(
      shape.n, shape.out, [&](int64_t row, int64_t rows, LinearPart out) {
        LinearShape some = shape;
        some.n = rows;
        LinearForward(some, out, Numbers<Number>(x) + row * shape.in, weights,
                      Host<float>(bias), relu,
                      Host<float>(y) + row * shape.out);
      });
  return y;
}

Tensor RunForward(const Tensor& x, const Tensor& weight, const Tensor& packed,
                  const Tensor& bias, bool relu) {
  const auto run =
      IsHalf(x.scalar_type()) ? RunForward<Bfloat16> : RunForward<float>;
  return run(x.contiguous(), weight, packed, bias.contiguous(), relu);
}

Tensor PairsOf(const Tensor& rows) {
  const int64_t n = rows.size(0), width = rows.size(1);
  const Tensor pairs = at::empty({(n + 1) / 2, width, 2}, rows.options());
  PairRowsOf(n, width, Numbers<Bfloat16>(rows), Numbers<Bfloat16>(pairs));
  return pairs;
}

// Of which threads without a block would have nothing to do.
int64_t UnitOf(int64_t width) {
  return width / kLinearBlock < at::get_num_threads() ? kLinearWidth
                                                      : kLinearBlock;
}

// Whether what comes to `weight` would just be its gradient, or be added to it.
bool IsAccumulated(const Tensor& weight) {
  namespace autograd = torch::autograd;
  if (!weight.is_leaf() || !autograd::impl::hooks(weight).empty() ||
      autograd::impl::post_acc_grad_hooks(weight) != nullptr) {
    return false;
  }
  // Who asks for some gradients (torch::autograd::grad) gets them, and nothing is added.
  const auto* asked = autograd::get_current_graph_task_exec_info();
  return asked != nullptr && asked->empty();
}

bool MayAddTo(const Tensor& gradient, const Tensor& weight) {
  return gradient.defined() && gradient.is_contiguous() &&
         gradient.scalar_type() == torch::kFloat32 && gradient.is_cpu() &&
         !gradient.requires_grad() && gradient.sizes() == weight.sizes();
}

void ToWeight(const LinearShape& shape, const Tensor& x, const Tensor& from_y,
              bool adds, const Tensor& to_weight) {
  if (IsHalf(x.scalar_type())) {
    const Tensor x_pairs = PairsOf(x), y_pairs = PairsOf(from_y);
    ForParts(shape.out, UnitOf(shape.out), [&](LinearPart out) {
      LinearToWeight(shape, out, Numbers<Bfloat16>(x_pairs),
                     Numbers<Bfloat16>(y_pairs), adds, Host<float>(to_weight));
    });
  } else {
    ForParts(shape.out, UnitOf(shape.out), [&](LinearPart out) {
      LinearToWeight(shape, out, Host<float>(x), Host<float>(from_y), adds,
                     Host<float>(to_weight));
    });
  }
}

// The gradient of `weight`, unless it went to weight.grad() by itself, or as what it is a
// product of to who awaits that, which spares passes over both.
Tensor GradientOf(const Tensor& weight, const LinearShape& shape,
                  const Tensor& x, const Tensor& from_y) {
  if (IsAccumulated(weight)) {
    // Two backward passes may share a weight; what Torch itself adds to it at the same
    // time, of another use of it, is not kept apart.
    static std::mutex& adding = *new std::mutex;
    const std::lock_guard lock(adding);
    if (auto* const factors = FreshGradients::TakeFactors(weight)) {
      factors->Set(x, from_y);
      return {};
    }
    Tensor gradient = weight.grad();
    const bool adds = gradient.defined();
    if (!adds) gradient = FreshGradients::Take(weight);
    if (MayAddTo(gradient, weight)) {
      ToWeight(shape, x, from_y, adds, gradient);
      return {};
    }
  }
  const Tensor gradient = at::empty_like(weight);
  ToWeight(shape, x, from_y, /*adds=*/false, gradient);
  return gradient;
}

template <typename Number>
void ToX(const LinearShape& shape, const Tensor& from_y, const Tensor& weight,
         const Tensor& to_x) {
  ForParts(shape.in, UnitOf(shape.in), [&](LinearPart in) {
    LinearToX(shape, in, Numbers<Number>(from_y), Host<float>(weight),
              Numbers<Number>(to_x));
  });
}

class Linear : public torch::autograd::Function<Linear> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, bool relu,
                        int64_t learned) {
    const Tensor rows = x.contiguous(), weights = weight.contiguous();
    const Tensor y = RunForward(rows, weights, /*packed=*/{}, bias, relu);
    // A view of what is returned would keep it, and what it comes from, for ever.
    ctx->save_for_backward({rows, weights, relu ? y : Tensor()});
    ctx->saved_data["learned"] = std::min(learned, x.size(0));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "LinearByKernel has no gradient of its gradient");
    const variable_list saved = ctx->get_saved_variables();
    const int64_t learned = ctx->saved_data["learned"].toInt();
    const Tensor x = saved[0].narrow(0, 0, learned);
    const Tensor &weight = saved[1], &y = saved[2];
    const LinearShape shape = ShapeOf(x, weight.size(0));
    Tensor from_y = grads[0].narrow(0, 0, learned).contiguous();
    if (y.defined()) {
      // Also of a NaN, which is not hidden.
      from_y = at::threshold_backward(from_y, y.narrow(0, 0, learned), 0);
    }
    const Tensor typed = from_y.to(x.scalar_type());
    Tensor to_x, to_weight, to_bias;
    if (ctx->needs_input_grad(1)) {
      to_weight = GradientOf(weight, shape, x, typed);
    }
    if (ctx->needs_input_grad(2)) to_bias = from_y.sum(0);
    if (ctx->needs_input_grad(0)) {
      to_x = GradientRoom(x, grads[0].size(0));
      const auto run = IsHalf(x.scalar_type()) ? ToX<Bfloat16> : ToX<float>;
      run(shape, typed, weight, to_x);
    }
    return {to_x, to_weight, to_bias, Tensor(), Tensor()};
  }
};

}  // namespace

bool IsLinearByKernel(const Tensor& weight, torch::Dtype dtype) {
  const bool fits = weight.is_cpu() &&
                    weight.scalar_type() == torch::kFloat32 &&
                    weight.dim() == 2 && weight.size(0) % kLinearWidth == 0 &&
                    weight.size(1) % kLinearWidth == 0;
  if (!fits) return false;
  return IsHalf(dtype)
             ? KernelsMultiplyBfloat16()
             : dtype == torch::kFloat32 && weight.numel() > kLibrarysWeights;
}

Tensor LinearByKernel(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      bool relu, int64_t learned) {
  CHECK(IsLinearByKernel(weight, x.scalar_type()));
  CHECK_EQ(x.size(1), weight.size(1));
  CHECK_EQ(bias.numel(), weight.size(0));
  if (at::GradMode::is_enabled()) {
    return Linear::apply(x, weight, bias, relu, learned);
  }
  return RunForward(x, weight.contiguous(), /*packed=*/{}, bias, relu);
}

Tensor PackLinearWeight(const Tensor& weight, torch::Dtype dtype) {
  CHECK(IsLinearByKernel(weight, dtype));
  const Tensor weights = weight.contiguous();
  const Tensor packed =
      at::empty({weight.numel()}, weight.options().dtype(dtype));
  const LinearShape shape = {.in = weight.size(1), .out = weight.size(0)};
  if (IsHalf(dtype)) {
    PackLinear(shape, Host<float>(weights), Numbers<Bfloat16>(packed));
  } else {
    PackLinear(shape, Host<float>(weights), Host<float>(packed));
  }
  return packed;
}

Tensor LinearByPacked(const Tensor& x, const Tensor& packed, const Tensor& bias,
                      bool relu) {
  CHECK_EQ(packed.numel(), x.size(1) * bias.numel());
  CHECK_EQ(packed.scalar_type(), x.scalar_type());
  return RunForward(x, /*weight=*/{}, packed, bias, relu);
}

}  // namespace flotilla
