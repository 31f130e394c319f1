#ifndef FLOTILLA_TESTS_REHEARSAL_RECURRENT_CELLS_H_
#define FLOTILLA_TESTS_REHEARSAL_RECURRENT_CELLS_H_

#include <optional>
#include <tuple>

#include "learner/torch.h"

namespace flotilla::rehearsal {

// Torch's fused recurrent cells for CPU tensors: B rows, S numbers of state.
// All float; `workspace` is what the backward pass needs.

// aten::_thnn_fused_lstm_cell: gates [B, 4 S], cx [B, S] -> hy, cy [B, S],
// workspace [B, 4 S].
std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates,
    const at::Tensor& cx, const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);

// aten::_thnn_fused_lstm_cell_backward_impl: -> gradients of the gates
// [B, 4 S], of cx [B, S], and of a bias [4 S] if there is one.
std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCellBackward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias);

// aten::_thnn_fused_gru_cell: gates [B, 3 S], hx [B, S] -> hy [B, S],
// workspace [B, 5 S].
std::tuple<at::Tensor, at::Tensor> GruCell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates,
    const at::Tensor& hx, const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);

// aten::_thnn_fused_gru_cell_backward: -> gradients of the input's and the
// hidden gates [B, 3 S], of hx [B, S], and of their biases [3 S] if there are.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
GruCellBackward(const at::Tensor& grad_hy, const at::Tensor& workspace,
                bool has_bias);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_RECURRENT_CELLS_H_
