#ifndef FLOTILLA_LEARNER_KERNELS_ISA_KERNELS_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_KERNELS_H_

#include "learner/kernels/isa/convolution.h"
#include "learner/kernels/isa/decide.h"
#include "learner/kernels/isa/flat.h"
#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/isa/linear.h"
#include "learner/kernels/isa/lstm.h"
#include "learner/kernels/isa/pixels.h"
#include "learner/kernels/isa/ppo.h"
#include "learner/kernels/isa/q.h"
#include "learner/kernels/isa/sac.h"
#include "learner/kernels/isa/vtrace.h"

// All kernels, for the instruction set the including file is compiled with.
// Included by kernels_*.cc alone; see vec.h.

namespace flotilla {
namespace {

constexpr KernelTable MakeKernelTable(const char* name) {
  return {
      .name = name,
      .multiplies_bfloat16 = kMultipliesBfloat16,
      .pack = Pack,
      .forward = Forward,
      .decide_discrete = DecideDiscrete,
      .decide_continuous = DecideContinuous,
      .ppo_gradient = PpoGradientOf,
      .q_values = QValues,
      .q_gradient = QGradientOf,
      .sac_critics = SacCriticsOf,
      .sac_policy = SacPolicyOf,
      .sum_of_squares = SumOfSquares,
      .adam = Adam,
      .gae = Gae,
      .vtrace = VtraceOf,
      .lstm_pack = LstmPack,
      .lstm_forward = LstmForwardOf,
      .lstm_backward = LstmBackwardOf,
      .convolution_pack = ConvolutionPack,
      .convolution_unpack = ConvolutionUnpack,
      .convolution_turn = ConvolutionTurn,
      .convolution_forward = ConvolutionForwardOf,
      .convolution_backward = ConvolutionBackwardOf,
      .convolution_forward_bfloat16 = ConvolutionForwardOf,
      .convolution_backward_bfloat16 = ConvolutionBackwardOf,
      .winograd_pack = WinogradPack,
      .winograd_pack_turned = WinogradPackTurned,
      .pair_rows = PairRows,
      .pair_images = PairImagesOf,
      .linear_pack = LinearPackOf<float>,
      .linear_forward = LinearForwardOf,
      .linear_to_weight = LinearToWeightOf,
      .linear_to_x = LinearToXOf,
      .linear_pack_bfloat16 = LinearPackOf<Pair>,
      .linear_forward_bfloat16 = LinearForwardOf,
      .linear_to_weight_bfloat16 = LinearToWeightOf,
      .linear_to_x_bfloat16 = LinearToXOf,
      .turn = TurnOf,
      .pixels_to_float = PixelsToFloatOf,
      .pixels_to_bfloat16 = PixelsToBfloat16Of,
      .tanh = Map<Tanh>,
      .exp = Map<Exp>,
      .log = Map<Log>,
  };
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_KERNELS_H_
