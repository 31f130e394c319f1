#include "tests/rehearsal/recurrent_cells.h"

#include <vector>

namespace flotilla::rehearsal {
namespace {

at::Tensor WithBias(const at::Tensor& gates,
                    const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

at::Tensor SigmoidSlope(const at::Tensor& y) { return y * (1 - y); }
at::Tensor TanhSlope(const at::Tensor& y) { return 1 - y * y; }

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates,
    const at::Tensor& cx, const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  const std::vector<at::Tensor> gates =
      WithBias(WithBias(input_gates + hidden_gates, input_bias), hidden_bias)
          .chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid();
  const at::Tensor forget = gates[1].sigmoid();
  const at::Tensor cell = gates[2].tanh();
  const at::Tensor out = gates[3].sigmoid();
  const at::Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCellBackward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  const std::vector<at::Tensor> gates = workspace.chunk(4, 1);
  const at::Tensor& in = gates[0];
  const at::Tensor& forget = gates[1];
  const at::Tensor& cell = gates[2];
  const at::Tensor& out = gates[3];
  const at::Tensor tanh_cy = cy.tanh();
  at::Tensor grad_c =
      grad_cy && grad_cy->defined() ? *grad_cy : at::zeros_like(cy);
  at::Tensor grad_out = at::zeros_like(out);
  if (grad_hy && grad_hy->defined()) {
    grad_out = *grad_hy * tanh_cy * SigmoidSlope(out);
    grad_c = grad_c + *grad_hy * out * TanhSlope(tanh_cy);
  }
  const at::Tensor grad_gates = at::cat(
      {grad_c * cell * SigmoidSlope(in), grad_c * cx * SigmoidSlope(forget),
       grad_c * in * TanhSlope(cell), grad_out},
      1);
  return {grad_gates, grad_c * forget,
          has_bias ? grad_gates.sum(0) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> GruCell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates,
    const at::Tensor& hx, const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  const std::vector<at::Tensor> input =
      WithBias(input_gates, input_bias).chunk(3, 1);
  const std::vector<at::Tensor> hidden =
      WithBias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = (hidden[0] + input[0]).sigmoid();
  const at::Tensor keep = (hidden[1] + input[1]).sigmoid();
  const at::Tensor proposed = (input[2] + hidden[2] * reset).tanh();
  return {(hx - proposed) * keep + proposed,
          at::cat({reset, keep, proposed, hx, hidden[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
GruCellBackward(const at::Tensor& grad_hy, const at::Tensor& workspace,
                bool has_bias) {
  const std::vector<at::Tensor> saved = workspace.chunk(5, 1);
  const at::Tensor& reset = saved[0];
  const at::Tensor& keep = saved[1];
  const at::Tensor& proposed = saved[2];
  const at::Tensor& hx = saved[3];
  const at::Tensor& hidden = saved[4];
  const at::Tensor grad_keep = grad_hy * (hx - proposed) * SigmoidSlope(keep);
  const at::Tensor grad_proposed = grad_hy * (1 - keep) * TanhSlope(proposed);
  const at::Tensor grad_reset = grad_proposed * hidden * SigmoidSlope(reset);
  const at::Tensor input = at::cat({grad_reset, grad_keep, grad_proposed}, 1);
  const at::Tensor of_hidden =
      at::cat({grad_reset, grad_keep, grad_proposed * reset}, 1);
  return {input, of_hidden, grad_hy * keep,
          has_bias ? input.sum(0) : at::Tensor(),
          has_bias ? of_hidden.sum(0) : at::Tensor()};
}

}  // namespace flotilla::rehearsal
