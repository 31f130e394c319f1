#ifndef FLOTILLA_LEARNER_KERNELS_ISA_KERNEL_TABLE_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_KERNEL_TABLE_H_

#include <cstdint>
#include <vector>

#include "learner/kernels/adam_update.h"
#include "learner/kernels/bfloat16.h"
#include "learner/kernels/isa/mlp_plan.h"
#include "learner/kernels/ppo_loss.h"

namespace flotilla {

template <typename Number>
struct ConvolutionBack;
template <typename Number>
struct ConvolutionImages;
struct ActionRange;
struct ConvolutionScratch;
struct ConvolutionShape;
struct GaeInput;
struct LinearPart;
struct LinearShape;
template <typename Number>
struct LinearWeights;
struct LstmStep;
struct LstmStepBack;
struct NewtonSchulzPlan;
struct QSamples;
struct QSums;
struct SacSamples;
struct SacSums;
struct VtraceInput;

// The kernels, compiled for one instruction set. One source (kernels.h beside
// this file) is compiled for several, and the machine at hand chooses: a binary
// built here runs, and is fast, elsewhere. Results are the same bits on every
// machine that runs the same set, and differ by rounding between sets.
//
// The classes one folder up are the interface; they say what each does.
struct KernelTable {
  // "amx-bf16", "x86-64-v4-bf16" (AVX-512 with avx512_bf16), "x86-64-v4", "x86-64-v3"
  // (AVX2), "base"
  const char* name;
  bool multiplies_bfloat16;  // by an instruction
  bool has_tiles = false;    // products of bfloat16 are by AMX

  void (*pack)(const MlpPlan& plan, const float* parameters, float* workspace);
  void (*forward)(const MlpPlan& plan, float* workspace,
                  const float* observations, int64_t rows, float* policy,
                  float* value);
  void (*decide_discrete)(const MlpPlan& plan, float* workspace,
                          const float* observations, const uint8_t* mask,
                          int64_t rows, const float* uniforms, int64_t* action,
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

  // See sac_gradient.h. `critics` and `targets` are of one shape.
  SacSums (*sac_critics)(PlannedMlp actor, PlannedMlp targets,
                         PlannedMlp critics, const SacSamples& samples,
                         const ActionRange& range, float alpha,
                         float* gradient);
  SacSums (*sac_policy)(PlannedMlp actor, PlannedMlp critics,
                        const SacSamples& samples, const ActionRange& range,
                        float alpha, float* gradient);

  double (*sum_of_squares)(const float* values, int64_t size);
  void (*adam)(const AdamFactors& factors, const float* gradient, int64_t size,
               float* parameters, float* first_moment, float* second_moment);

  // See newton_schulz.h; `room` is plan.room() floats. Null without tiles.
  void (*orthogonalize_bfloat16)(const NewtonSchulzPlan& plan,
                                 const float* matrix, float* room,
                                 float* out) = nullptr;

  void (*gae)(const GaeInput& input, float* advantage, float* returns);
  void (*vtrace)(const VtraceInput& input, float* target, float* advantage);

  // See lstm.h.
  void (*lstm_pack)(const float* weight_hh, int64_t width, float* packed);
  void (*lstm_forward)(const LstmStep& step);
  void (*lstm_backward)(const LstmStepBack& step);

  // See convolution.h; `turned` is weights as [kernel, out, kernel, in], of
  // bfloat16 [kernel, out / 2, kernel, in, 2], or as winograd_pack_turned makes it; `room` and
  // `scratch` are as winograd_plan.h and convolution_plan.h say.
  void (*convolution_pack)(const ConvolutionShape& shape, const float* weight,
                           float* packed);
  void (*convolution_unpack)(const ConvolutionShape& shape, const float* packed,
                             float* weight);
  void (*convolution_turn)(const ConvolutionShape& shape, const float* weight,
                           float* turned);
  void (*convolution_forward)(const ConvolutionShape& shape,
                              const ConvolutionImages<float>& images,
                              float* room);
  void (*convolution_backward)(const ConvolutionShape& shape,
                               const ConvolutionBack<float>& images,
                               const float* turned, ConvolutionScratch*);
  void (*convolution_forward_bfloat16)(
      const ConvolutionShape& shape, const ConvolutionImages<Bfloat16>& images);
  void (*convolution_backward_bfloat16)(const ConvolutionShape& shape,
                                        const ConvolutionBack<Bfloat16>& images,
                                        const Bfloat16* turned,
                                        ConvolutionScratch* scratch);
  // Of an IsWinograd: [kernel, kernel, in, out] to what the forward's products are
  // with, and what convolution_turn makes of it to what the gradient's of images are with.
  void (*winograd_pack)(const ConvolutionShape& shape, const float* packed,
                        float* sums);
  void (*winograd_pack_turned)(const ConvolutionShape& shape,
                               const float* turned, float* sums);
  // [2 rows, columns] to [rows, columns, 2], columns a multiple of 16.
  void (*pair_rows)(int64_t rows, int64_t columns, const float* in,
                    int64_t step, Bfloat16* out);

  // [size, 2] of an image of `size` numbers and the next, or none.
  void (*pair_images)(int64_t size, bool next, const Bfloat16* image,
                      Bfloat16* out);

  // See linear.h; `block`, `strip` and `sums` are room for kLinearBlock columns (a
  // strip's of n rows to weights, of kShortLinearDepth rows to x), `panels` for the part of from_y,
  // of bfloat16 PanelRows of pairs of it, and of kLinearBlock columns.
  void (*linear_pack)(const LinearShape& shape, const float* weight,
                      float* packed);
  void (*linear_forward)(const LinearShape& shape, LinearPart out,
                         const float* x, LinearWeights<float> weights,
                         const float* bias, bool relu, float* y, float* block);
  void (*linear_to_weight)(const LinearShape& shape, LinearPart out,
                           const float* x, const float* from_y, bool adds,
                           float* to_weight, float* panels, float* strip);
  void (*linear_to_x)(const LinearShape& shape, LinearPart in,
                      const float* from_y, const float* weight, float* to_x,
                      float* strip);
  void (*linear_pack_bfloat16)(const LinearShape& shape, const float* weight,
                               Bfloat16* packed);
  void (*linear_forward_bfloat16)(const LinearShape& shape, LinearPart out,
                                  const Bfloat16* x,
                                  LinearWeights<Bfloat16> weights,
                                  const float* bias, bool relu, float* y,
                                  Bfloat16* block);
  void (*linear_to_weight_bfloat16)(const LinearShape& shape, LinearPart out,
                                    const Bfloat16* x_pairs,
                                    const Bfloat16* from_y_pairs, bool adds,
                                    float* to_weight, Bfloat16* panels);
  void (*linear_to_x_bfloat16)(const LinearShape& shape, LinearPart in,
                               const Bfloat16* from_y, const float* weight,
                               Bfloat16* to_x, Bfloat16* block, float* sums);

  // One frame's pixels, one image; see pixels.h.
  void (*turn)(int64_t rows, int64_t columns, const float* image, float* out);
  void (*pixels_to_float)(const uint8_t* frame, int64_t channels,
                          int64_t pixels, float scale, float* out);
  void (*pixels_to_bfloat16)(const uint8_t* frame, int64_t channels,
                             int64_t pixels, uint16_t* out);

  // The vectorised functions under all of the above, for tests.
  void (*tanh)(const float* x, int64_t size, float* out);
  void (*exp)(const float* x, int64_t size, float* out);
  void (*log)(const float* x, int64_t size, float* out);
};

// Those of this name; the fastest this machine can run for null, "" and a name that it
// does not run, which is warned of.
const KernelTable& KernelsNamed(const char* name);

// Those that the environment variable FLOTILLA_KERNELS names, or the fastest: an older
// set makes the same bits as on an older machine. Chosen once. Learners of one run want
// the same: Adam rounds otherwise in another, and Muon in bfloat16 by tiles alone.
const KernelTable& BestKernels();

// All that this machine can run, fastest first.
std::vector<const KernelTable*> RunnableKernels();

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_KERNEL_TABLE_H_
