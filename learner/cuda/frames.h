#ifndef FLOTILLA_LEARNER_CUDA_FRAMES_H_
#define FLOTILLA_LEARNER_CUDA_FRAMES_H_

#include <cstdint>

#include "learner/cuda/block.h"

namespace flotilla {

// The stacks of k arrays that M steps of a rollout with S show, copied by words of a
// size that divides an array. Pointers are the device's.
struct StacksArgs {
  int64_t rows = 0;                // M
  int64_t stack = 1;               // k
  int64_t words = 0;               // of one array
  int word_bytes = 1;              // 1, 4 or 16
  const void* arrays = nullptr;    // [N, words]
  const int32_t* shown = nullptr;  // [S, k] among N
  const int32_t* index = nullptr;  // [M] among S
  void* stacks = nullptr;          // [M, k, words]
};

// Pixels uint8 [N, C, P] as a convolution takes them, times `scale`: float32
// [N, P, C]. Pointers are the device's.
struct PixelsArgs {
  int64_t frames = 0;    // N
  int64_t channels = 0;  // C
  int64_t pixels = 0;    // P
  float scale = 1;
  const uint8_t* from = nullptr;
  float* to = nullptr;
};

namespace {

struct alignas(16) SixteenBytes {
  uint64_t half[2];
};

template <typename Word>
struct StacksKernel {
  StacksArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    const Word* const arrays = static_cast<const Word*>(a.arrays);
    Word* const stacks = static_cast<Word*>(a.stacks);
    block.Each(a.rows * a.stack * a.words, [&](int64_t i) {
      const int64_t word = i % a.words, place = i / a.words;
      const int64_t step = a.index[place / a.stack];
      const int64_t array = a.shown[step * a.stack + place % a.stack];
      stacks[i] = arrays[array * a.words + word];
    });
  }
};

// A pixel's channels are neighbours where they are written; where they are read,
// those of neighbouring threads are.
struct PixelsKernel {
  PixelsArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    block.Each(a.frames * a.pixels, [&](int64_t i) {
      const int64_t n = i / a.pixels, p = i % a.pixels;
      const uint8_t* const from = a.from + n * a.channels * a.pixels + p;
      for (int64_t c = 0; c < a.channels; ++c) {
        a.to[i * a.channels + c] =
            static_cast<float>(from[c * a.pixels]) * a.scale;
      }
    });
  }
};

template <typename Run>
void RunKernels(const StacksArgs& args, Run run) {
  const int64_t blocks = BlocksFor(args.rows * args.stack * args.words);
  switch (args.word_bytes) {
    case 16:
      return run(StacksKernel<SixteenBytes>{args}, blocks);
    case 4:
      return run(StacksKernel<uint32_t>{args}, blocks);
    default:
      return run(StacksKernel<uint8_t>{args}, blocks);
  }
}

template <typename Run>
void RunKernels(const PixelsArgs& args, Run run) {
  run(PixelsKernel{args}, BlocksFor(args.frames * args.pixels));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_FRAMES_H_
