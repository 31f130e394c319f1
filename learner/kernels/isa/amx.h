#ifndef FLOTILLA_LEARNER_KERNELS_ISA_AMX_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_AMX_H_

#include "learner/kernels/isa/amx_convolution.h"
#include "learner/kernels/isa/amx_linear.h"
#include "learner/kernels/isa/decide.h"
#include "learner/kernels/isa/kernel_table.h"
#include "learner/kernels/isa/newton_schulz.h"
#include "learner/kernels/isa/ppo.h"

// Kernels whose products of bfloat16 are by tiles. Included by kernels_amx.cc, and by a
// test that has tiles of its own.

namespace flotilla {
namespace {

// The rest is `kernels`'. What is packed here is as wide as this file's vectors, which are
// not `kernels`' where tiles are emulated.
FLOTILLA_INLINE KernelTable ByAmx(const char* name, KernelTable kernels) {
  kernels.name = name;
  kernels.has_tiles = true;
  kernels.forward = Forward;
  kernels.decide_discrete = DecideDiscrete;
  kernels.decide_continuous = DecideContinuous;
  kernels.ppo_gradient = PpoGradientOf;
  kernels.orthogonalize_bfloat16 = OrthogonalizeOf;
  kernels.convolution_forward_bfloat16 = ConvolutionForwardByAmx;
  kernels.convolution_backward_bfloat16 = ConvolutionBackwardByAmx;
  kernels.linear_pack_bfloat16 = LinearPackOf<Pair>;
  kernels.linear_forward_bfloat16 = LinearForwardByAmx;
  kernels.linear_to_weight_bfloat16 = LinearToWeightByAmx;
  kernels.linear_to_x_bfloat16 = LinearToXByAmx;
  return kernels;
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_AMX_H_
