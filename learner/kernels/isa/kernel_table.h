#ifndef FLOTILLA_LEARNER_KERNELS_ISA_KERNEL_TABLE_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_KERNEL_TABLE_H_

#include <cstdint>
#include <vector>

#include "learner/kernels/adam_update.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/ppo_loss.h"

namespace flotilla {

struct ConvolutionBack;
struct ConvolutionImages;
struct ConvolutionShape;
struct GaeInput;
struct LstmStep;
struct LstmStepBack;
struct QSamples;
struct QSums;
struct VtraceInput;

// The kernels, compiled for one instruction set. One source (kernels.h beside
// this file) is compiled for several, and the machine at hand chooses: a binary
// built here runs, and is fast, elsewhere. Results are the same bits on every
// machine that runs the same set, and differ by rounding between sets.
//
// The classes one folder up are the interface; they say what each does.
struct KernelTable {
  const char* name;  // "x86-64-v4" (AVX-512), "x86-64-v3" (AVX2), "base"

  void (*pack)(const MlpPlan& plan, const float* parameters, float* workspace);
  void (*forward)(const MlpPlan& plan, float* workspace,
                  const float* observations, int64_t rows, float* policy,
                  float* value);
  void (*decide_discrete)(const MlpPlan& plan, float* workspace,
                          const float* observations, int64_t rows,
                          const float* uniforms, int64_t* action,
                          float* log_prob, float* value);
  void (*decide_continuous)(const MlpPlan& plan, float* workspace,
                            const float* observations, int64_t rows,
                            const float* normals, float* action,
                            float* log_prob, float* value);
  PpoSums (*ppo_gradient)(const MlpPlan& plan, float* workspace,
                          const PpoSamples& samples, const int32_t* rows,
                          int64_t row_count, const PpoLoss& loss,
                          bool accumulate, float* gradient);

  // See mlp_q.h.
  void (*q_values)(const MlpPlan& plan, float* workspace,
                   const float* observations, int64_t rows, float* q);
  QSums (*q_gradient)(const MlpPlan& plan, float* workspace,
                      const QSamples& samples, bool huber, float* error,
                      float* gradient);

  double (*sum_of_squares)(const float* values, int64_t size);
  void (*adam)(const AdamFactors& factors, const float* gradient, int64_t size,
               float* parameters, float* first_moment, float* second_moment);

  void (*gae)(const GaeInput& input, float* advantage, float* returns);
  void (*vtrace)(const VtraceInput& input, float* target, float* advantage);

  // See lstm.h.
  void (*lstm_pack)(const float* weight_hh, int64_t width, float* packed);
  void (*lstm_forward)(const LstmStep& step);
  void (*lstm_backward)(const LstmStepBack& step);

  // See convolution.h; `turned` is weights as [kernel, out, kernel, in].
  void (*convolution_pack)(const ConvolutionShape& shape, const float* weight,
                           float* packed);
  void (*convolution_forward)(const ConvolutionShape& shape,
                              const ConvolutionImages& images);
  void (*convolution_backward)(const ConvolutionShape& shape,
                               const ConvolutionBack& images,
                               const float* turned);

  // One frame's pixels; see pixels.h.
  void (*pixels_to_float)(const uint8_t* frame, int64_t channels,
                          int64_t pixels, float scale, float* out);
  void (*pixels_to_bfloat16)(const uint8_t* frame, int64_t channels,
                             int64_t pixels, uint16_t* out);

  // The vectorised functions under all of the above, for tests.
  void (*tanh)(const float* x, int64_t size, float* out);
  void (*exp)(const float* x, int64_t size, float* out);
  void (*log)(const float* x, int64_t size, float* out);
};

// The fastest this machine can run. Chosen once.
const KernelTable& BestKernels();

// All that this machine can run, fastest first.
std::vector<const KernelTable*> RunnableKernels();

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_KERNEL_TABLE_H_
