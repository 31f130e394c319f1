#ifndef FLOTILLA_LEARNER_KERNELS_FRAME_OPS_H_
#define FLOTILLA_LEARNER_KERNELS_FRAME_OPS_H_

#include <cstdint>
#include <span>

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// Rollout storage that keeps every frame once. Borrowed.
//
// A policy sees the newest k frames; step t's newest is frame t + k - 1, and
// the k - 1 frames from before the rollout lie ahead of it. For k = 4 and one
// row b:
//
//   frame   0   1   2 | 3   4   5   6   7   8
//   step    (before)  | 0   1   2   3   4   5
//   age     .   .   . | 3   3   3   0   1   2     an episode starts at step 3
//
// `age` counts the frames since the episode's reset frame, up to k - 1. A stack
// that would reach further back repeats the reset frame, so with the newest
// last
//
//   step 1  ->  1 2 3 4      step 3  ->  6 6 6 6      step 5  ->  6 6 7 8
//
// in frame numbers: slot j of k shows frame t + k - 1 - min(k - 1 - j, age).
struct FrameStorage {
  const uint8_t* frames = nullptr;  // [T + k - 1 or more, B, pixels]
  const uint8_t* age = nullptr;     // [T or more, B]
  int64_t rows = 0;                 // B
  int64_t pixels = 0;               // of one frame: 84 * 84
  int64_t stack = 4;                // k
};

// Gathers the stacks at `steps`, each t * B + b, into `out` [N, k, pixels],
// oldest frame first. Bound by memory, and by nothing else.
void StackFrames(const FrameStorage& storage, std::span<const int32_t> steps,
                 uint8_t* out);

// The same as float32, each pixel divided by 255 (rounded as a division is).
void StackFramesAsFloat(const FrameStorage& storage,
                        std::span<const int32_t> steps, float* out,
                        const KernelTable& kernels = BestKernels());

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_FRAME_OPS_H_
