#include "learner/nn/recurrent.h"

#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "learner/device/host.h"
#include "learner/kernels/lstm.h"

namespace flotilla {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls `run(first, rows)` for shares of B independent sequences, each on a
// thread of its own for all T steps: to join threads at every small product
// takes longer than the product.
template <typename Run>
void ForSequences(const Tensor& input, const Run& run) {
  const int64_t T = input.size(0), B = input.size(1);
  if (T == 1 || !input.is_cpu()) return run(0, B);
  const int64_t threads = at::get_num_threads();
  at::parallel_for(0, B, (B + threads - 1) / threads,
                   [&](int64_t first, int64_t end) {
                     at::NoGradGuard no_grad;
                     run(first, end - first);
                   });
}

// Views of every step of rows [first, first + rows), made in one call.
std::vector<Tensor> Steps(const Tensor& all, int64_t first, int64_t rows) {
  return all.narrow(1, first, rows).unbind(0);
}

// What a forward pass leaves for the backward one.
struct Trace {
  Tensor gates;     // [T, B, G, H]  activated
  Tensor h_before;  // [T, B, H]  what the step started from: forgotten or not
  Tensor extra;     // [T, B, H]  LSTM: c_before; GRU: W_hn h + b_hn
  Tensor tanh_c;    // [T, B, H]  LSTM only
  Tensor output;    // [T, B, H]
  Tensor state;     // [B, S]
};

Trace MakeTrace(int64_t gates, const Tensor& input, const Tensor& weight_ih,
                const Tensor& bias, const Tensor& state, int64_t H) {
  const int64_t T = input.size(0), B = input.size(1);
  Trace trace;
  // The input's part of every step, in one product.
  trace.gates = at::addmm(bias, input.flatten(0, 1), weight_ih.t())
                    .view({T, B, gates, H});
  trace.h_before = at::empty({T, B, H}, input.options());
  trace.extra = at::empty_like(trace.h_before);
  trace.output = at::empty_like(trace.h_before);
  trace.state = state.clone();
  return trace;
}

// On a CPU an LSTM's steps are a kernel each, but for widths whose products are
// Torch's.
bool StepsByKernel(const Tensor& input) {
  return input.is_cpu() && input.scalar_type() == torch::kFloat32;
}
// For one step of a wide layer Torch's threads are worth more than to arrange the
// weights once for all steps.
bool MultipliesByKernel(int64_t steps, int64_t width) {
  return width % kLstmWidth == 0 && (steps > 1 || width <= 256);
}

// W_hh^T [H, 4 H], in memory of its own if kernels multiply by it.
Tensor PackRecurrent(int64_t steps, const Tensor& weight_hh) {
  const int64_t H = weight_hh.size(1);
  if (!MultipliesByKernel(steps, H)) return weight_hh.t();
  Tensor packed = at::empty({H, 4 * H}, weight_hh.options());
  PackLstm(Host<float>(weight_hh), H, Host<float>(packed));
  return packed;
}

void LstmSequencesForward(const Tensor& recurrent, const Tensor& keep,
                          int64_t first, int64_t rows, const Trace& trace) {
  const int64_t T = keep.size(0), B = keep.size(1), H = recurrent.size(0);
  const bool multiply = MultipliesByKernel(T, H);
  const Tensor last = trace.state.narrow(0, first, rows);
  std::vector<Tensor> gates, befores;
  if (!multiply) {
    gates = Steps(trace.gates.flatten(2), first, rows);
    befores = Steps(trace.h_before, first, rows);
  }
  Tensor h_before = trace.h_before[0].narrow(0, first, rows);
  Tensor c_before = trace.extra[0].narrow(0, first, rows);
  const Tensor kept = keep[0].narrow(0, first, rows);
  at::mul_out(h_before, last.narrow(1, 0, H), kept);
  at::mul_out(c_before, last.narrow(1, H, H), kept);
  for (int64_t t = 0; t < T; ++t) {
    if (!multiply) gates[t].addmm_(befores[t], recurrent);
    const int64_t row = t * B + first, next = row + B;
    const bool ends = t + 1 == T;
    float* const state = Host<float>(trace.state) + first * 2 * H;
    LstmForward(
        {.rows = rows,
         .width = H,
         .gates = Host<float>(trace.gates) + row * 4 * H,
         .recurrent = multiply ? Host<float>(recurrent) : nullptr,
         .h_before = Host<float>(trace.h_before) + row * H,
         .c_before = Host<float>(trace.extra) + row * H,
         .tanh_c = Host<float>(trace.tanh_c) + row * H,
         .output = Host<float>(trace.output) + row * H,
         .next_keep = ends ? nullptr : Host<float>(keep) + next,
         .next_h = ends ? state : Host<float>(trace.h_before) + next * H,
         .next_c = ends ? state + H : Host<float>(trace.extra) + next * H,
         .next_row = ends ? 2 * H : H});
  }
}

// i, f, o = sigmoid; g = tanh; c' = f c + i g; h' = o tanh(c').
Trace RunLstm(const RecurrentWeights& w, const Tensor& input,
              const Tensor& state, const Tensor& keep) {
  const int64_t T = input.size(0), H = w.weight_hh.size(1);
  Trace trace =
      MakeTrace(4, input, w.weight_ih, w.bias_ih + w.bias_hh, state, H);
  trace.tanh_c = at::empty_like(trace.output);
  if (StepsByKernel(input)) {
    const Tensor recurrent = PackRecurrent(T, w.weight_hh);
    const Tensor keeps = keep.contiguous();
    ForSequences(input, [&](int64_t first, int64_t rows) {
      LstmSequencesForward(recurrent, keeps, first, rows, trace);
    });
    return trace;
  }
  const Tensor recurrent = w.weight_hh.t();
  ForSequences(input, [&](int64_t first, int64_t rows) {
    const Tensor last = trace.state.narrow(0, first, rows);
    Tensor h = last.narrow(1, 0, H), c = last.narrow(1, H, H);
    const auto keeps = Steps(keep, first, rows),
               gates = Steps(trace.gates, first, rows),
               befores = Steps(trace.h_before, first, rows),
               c_befores = Steps(trace.extra, first, rows),
               tanhs = Steps(trace.tanh_c, first, rows),
               outputs = Steps(trace.output, first, rows);
    for (int64_t t = 0; t < T; ++t) {
      Tensor h_before = befores[t], c_before = c_befores[t];
      Tensor tanh_c = tanhs[t], output = outputs[t];
      at::mul_out(h_before, h, keeps[t]);
      at::mul_out(c_before, c, keeps[t]);
      gates[t].view({rows, 4 * H}).addmm_(h_before, recurrent);
      gates[t].narrow(1, 0, 2).sigmoid_();
      const Tensor i = gates[t].select(1, 0), f = gates[t].select(1, 1);
      const Tensor g = gates[t].select(1, 2).tanh_();
      const Tensor o = gates[t].select(1, 3).sigmoid_();
      at::mul_out(c, f, c_before).addcmul_(i, g);
      at::tanh_out(tanh_c, c);
      h = at::mul_out(output, o, tanh_c);
    }
    last.narrow(1, 0, H).copy_(h);
  });
  return trace;
}

// r, z = sigmoid; n = tanh(x_n + r (W_hn h + b_hn)); h' = (1 - z) n + z h.
Trace RunGru(const RecurrentWeights& w, const Tensor& input,
             const Tensor& state, const Tensor& keep) {
  const int64_t T = input.size(0), H = w.weight_hh.size(1);
  Trace trace = MakeTrace(3, input, w.weight_ih, w.bias_ih, state, H);
  const Tensor recurrent = w.weight_hh.t();
  ForSequences(input, [&](int64_t first, int64_t rows) {
    const Tensor last = trace.state.narrow(0, first, rows);
    Tensor h = last;
    Tensor from_h = at::empty({rows, 3 * H}, input.options());
    const Tensor from_h_gates = from_h.view({rows, 3, H});
    const auto keeps = Steps(keep, first, rows),
               gates = Steps(trace.gates, first, rows),
               befores = Steps(trace.h_before, first, rows),
               extras = Steps(trace.extra, first, rows),
               outputs = Steps(trace.output, first, rows);
    for (int64_t t = 0; t < T; ++t) {
      Tensor h_before = befores[t], output = outputs[t], extra = extras[t];
      at::mul_out(h_before, h, keeps[t]);
      at::addmm_out(from_h, w.bias_hh, h_before, recurrent);
      gates[t].narrow(1, 0, 2).add_(from_h_gates.narrow(1, 0, 2)).sigmoid_();
      const Tensor r = gates[t].select(1, 0), z = gates[t].select(1, 1);
      extra.copy_(from_h_gates.select(1, 2));
      const Tensor n = gates[t].select(1, 2).addcmul_(r, extra).tanh_();
      h = at::lerp_out(output, n, h_before, z);
    }
    last.copy_(h);
  });
  return trace;
}

// Gradients of input and weights from those of the gates before activation: of
// the part that comes from the input, and of the part that comes from h.
variable_list Gradients(const Tensor& from_input, const Tensor& from_h,
                        const Tensor& input, const Tensor& h_before,
                        const Tensor& weight_ih) {
  return {at::mm(from_input, weight_ih).view(input.sizes()),
          at::mm(from_input.t(), input.flatten(0, 1)),
          at::mm(from_h.t(), h_before.flatten(0, 1)),
          from_input.sum(0),
          from_h.sum(0),
          Tensor(),
          Tensor()};
}

// Fills `gradient` [T, B, 4, H], of the gates' sums, for rows [first, first +
// rows). `trace` lacks output and state.
void LstmSequencesBackward(const Tensor& weight_hh, const Tensor& keep,
                           const Tensor& from_output, const Trace& trace,
                           int64_t first, int64_t rows,
                           const Tensor& gradient) {
  const int64_t T = keep.size(0), B = keep.size(1), H = weight_hh.size(1);
  const bool multiply = MultipliesByKernel(T, H);
  std::vector<Tensor> dgates;
  if (!multiply) dgates = Steps(gradient.flatten(2), first, rows);
  Tensor from_h = at::empty({rows, H}, gradient.options());
  const Tensor from_c = at::zeros_like(from_h);
  for (int64_t t = T - 1; t >= 0; --t) {
    const int64_t row = t * B + first;
    const float* const kept = Host<float>(keep) + row;
    LstmBackward(
        {.rows = rows,
         .width = H,
         .gates = Host<float>(trace.gates) + row * 4 * H,
         .c_before = Host<float>(trace.extra) + row * H,
         .tanh_c = Host<float>(trace.tanh_c) + row * H,
         .from_output = Host<float>(from_output) + row * H,
         .keep = kept,
         .from_h = Host<float>(from_h),
         .next_keep = t + 1 == T ? nullptr : kept + B,
         .from_c = Host<float>(from_c),
         .weight_hh = multiply && t > 0 ? Host<float>(weight_hh) : nullptr,
         .to_h = Host<float>(from_h),
         .gate_gradient = Host<float>(gradient) + row * 4 * H});
    if (t > 0 && !multiply) at::mm_out(from_h, dgates[t], weight_hh);
  }
}

class Lstm : public torch::autograd::Function<Lstm> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input,
                        const Tensor& weight_ih, const Tensor& weight_hh,
                        const Tensor& bias_ih, const Tensor& bias_hh,
                        const Tensor& state, const Tensor& keep) {
    Trace trace =
        RunLstm({weight_ih, weight_hh, bias_ih, bias_hh}, input, state, keep);
    ctx->save_for_backward({input, weight_ih, weight_hh, keep, trace.gates,
                            trace.h_before, trace.extra, trace.tanh_c});
    return trace.output;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &input = saved[0], &weight_ih = saved[1],
                 &weight_hh = saved[2], &keep = saved[3], &c_before = saved[6],
                 &tanh_c = saved[7];
    const int64_t T = input.size(0), B = input.size(1), H = weight_hh.size(1);
    const Tensor gradient = at::empty({T, B, 4, H}, input.options());
    const Tensor flat = gradient.view({T * B, 4 * H});
    if (StepsByKernel(input)) {
      Trace trace;
      trace.gates = saved[4];
      trace.extra = c_before;
      trace.tanh_c = tanh_c;
      const Tensor keeps = keep.contiguous(), douts = grads[0].contiguous();
      ForSequences(input, [&](int64_t first, int64_t rows) {
        LstmSequencesBackward(weight_hh, keeps, douts, trace, first, rows,
                              gradient);
      });
      return Gradients(flat, flat, input, saved[5], weight_ih);
    }
    const Tensor i = saved[4].select(2, 0), f = saved[4].select(2, 1),
                 g = saved[4].select(2, 2), o = saved[4].select(2, 3);
    // d gate / d (its share of dc or dh), for all steps at once.
    const Tensor factor = at::stack({g * i * (1 - i), c_before * f * (1 - f),
                                     i * (1 - g * g), tanh_c * o * (1 - o)},
                                    2);
    const Tensor into_c = o * (1 - tanh_c * tanh_c);
    const Tensor forget = f * keep;
    ForSequences(input, [&](int64_t first, int64_t rows) {
      const auto dgates = Steps(gradient, first, rows),
                 factors = Steps(factor, first, rows),
                 into_cs = Steps(into_c, first, rows),
                 forgets = Steps(forget, first, rows),
                 keeps = Steps(keep, first, rows),
                 douts = Steps(grads[0], first, rows);
      Tensor dh = at::zeros({rows, H}, input.options());
      const Tensor dc = at::zeros_like(dh);
      for (int64_t t = T - 1; t >= 0; --t) {
        dh.add_(douts[t]);
        dc.addcmul_(dh, into_cs[t]);
        Tensor from_c = dgates[t].narrow(1, 0, 3);
        Tensor from_h = dgates[t].select(1, 3);
        at::mul_out(from_c, dc.unsqueeze(1), factors[t].narrow(1, 0, 3));
        at::mul_out(from_h, dh, factors[t].select(1, 3));
        dc.mul_(forgets[t]);
        at::mm_out(dh, dgates[t].view({rows, 4 * H}), weight_hh).mul_(keeps[t]);
      }
    });
    return Gradients(flat, flat, input, saved[5], weight_ih);
  }
};

class Gru : public torch::autograd::Function<Gru> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input,
                        const Tensor& weight_ih, const Tensor& weight_hh,
                        const Tensor& bias_ih, const Tensor& bias_hh,
                        const Tensor& state, const Tensor& keep) {
    Trace trace =
        RunGru({weight_ih, weight_hh, bias_ih, bias_hh}, input, state, keep);
    ctx->save_for_backward({input, weight_ih, weight_hh, keep, trace.gates,
                            trace.h_before, trace.extra});
    return trace.output;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &input = saved[0], &weight_ih = saved[1],
                 &weight_hh = saved[2], &keep = saved[3], &h_before = saved[5];
    const int64_t T = input.size(0), B = input.size(1), H = weight_hh.size(1);
    const Tensor r = saved[4].select(2, 0), z = saved[4].select(2, 1),
                 n = saved[4].select(2, 2);
    const Tensor into_n = (1 - z) * (1 - n * n);
    const Tensor factor = at::stack({into_n * saved[6] * r * (1 - r),
                                     (h_before - n) * z * (1 - z), into_n * r},
                                    2);
    const Tensor gradient = at::empty({T, B, 3, H}, input.options());
    const Tensor dhs = at::empty({T, B, H}, input.options());
    ForSequences(input, [&](int64_t first, int64_t rows) {
      const auto dgates = Steps(gradient, first, rows),
                 factors = Steps(factor, first, rows),
                 keeps = Steps(keep, first, rows),
                 douts = Steps(grads[0], first, rows),
                 zs = Steps(z, first, rows), dh_steps = Steps(dhs, first, rows);
      Tensor carried = at::zeros({rows, H}, input.options());
      for (int64_t t = T - 1; t >= 0; --t) {
        Tensor dh = dh_steps[t], dgate = dgates[t];
        at::add_out(dh, carried, douts[t]);
        at::mul_out(dgate, dh.unsqueeze(1), factors[t]);
        at::mul_out(carried, dh, zs[t]);
        carried.addmm_(dgate.view({rows, 3 * H}), weight_hh).mul_(keeps[t]);
      }
    });
    // The new gate's input part is not multiplied by r.
    const Tensor from_input = gradient.clone();
    from_input.select(2, 2).copy_(dhs * into_n);
    return Gradients(from_input.view({T * B, 3 * H}),
                     gradient.view({T * B, 3 * H}), input, h_before, weight_ih);
  }
};

}  // namespace

int64_t RecurrentGates(v1::RecurrentCell cell) {
  return cell == v1::LSTM ? 4 : 3;
}

int64_t RecurrentPlanes(v1::RecurrentCell cell) {
  return cell == v1::LSTM ? 2 : 1;
}

RecurrentOutput RunRecurrent(v1::RecurrentCell cell, const RecurrentWeights& w,
                             const Tensor& input, const Tensor& state,
                             const Tensor& keep) {
  if (!at::GradMode::is_enabled()) {
    const Trace trace = cell == v1::LSTM ? RunLstm(w, input, state, keep)
                                         : RunGru(w, input, state, keep);
    return {trace.output, trace.state};
  }
  const Tensor output = cell == v1::LSTM
                            ? Lstm::apply(input, w.weight_ih, w.weight_hh,
                                          w.bias_ih, w.bias_hh, state, keep)
                            : Gru::apply(input, w.weight_ih, w.weight_hh,
                                         w.bias_ih, w.bias_hh, state, keep);
  return {output, Tensor()};
}

}  // namespace flotilla
