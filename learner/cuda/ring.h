#ifndef FLOTILLA_LEARNER_CUDA_RING_H_
#define FLOTILLA_LEARNER_CUDA_RING_H_

#include <cstdint>

#include "learner/cuda/block.h"
#include "learner/cuda/frames.h"

namespace flotilla {

// The stacks of k arrays that M places of a ring of N steps of B rows show
// (rollout/observation_store.h), or what followed them, copied by words of a size that
// divides an array. Pointers are the device's.
struct RingArgs {
  int64_t rows = 0;   // M
  int64_t ended = 0;  // F: the last of them may have a final observation
  int64_t stack = 1;  // k
  int32_t steps = 0;  // N
  int32_t envs = 0;   // B
  int64_t words = 0;  // of one array
  int word_bytes = 1;
  const void* arrays = nullptr;    // [N * B, words]
  const uint8_t* age = nullptr;    // [N * B]
  const int32_t* place = nullptr;  // [M]  (t mod N) * B + b
  // Of those that ended: the final observation that followed, or -1.
  const int32_t* slot = nullptr;  // [F]
  const void* finals = nullptr;   // rows of `final_words`
  int64_t final_words = 0;
  int64_t final_word = 0;  // where the array begins in one
  void* stacks = nullptr;  // [M, k, words]
};

namespace {

template <typename Word>
struct RingKernel {
  RingArgs a;

  FLOTILLA_INLINE void operator()(const Block& block) const {
    const Word* const arrays = static_cast<const Word*>(a.arrays);
    const Word* const finals = static_cast<const Word*>(a.finals);
    Word* const stacks = static_cast<Word*>(a.stacks);
    block.Each(a.rows * a.stack * a.words, [&](int64_t i) {
      const int64_t array = i / a.words, word = i - array * a.words;
      const int64_t m = array / a.stack;
      const int64_t ended = m - (a.rows - a.ended);
      const int32_t slot = ended < 0 ? -1 : a.slot[ended];
      // Steps ago; -1: what followed.
      const auto back = static_cast<int32_t>(
          a.stack - 1 - (array - m * a.stack) - (slot >= 0));
      stacks[i] = back < 0 ? finals[slot * a.final_words + a.final_word + word]
                           : arrays[ArrayOf(a.place[m], back) * a.words + word];
    });
  }

 private:
  // Of the place `back` steps ago, or of its episode's reset.
  FLOTILLA_INLINE int64_t ArrayOf(int32_t place, int32_t back) const {
    const int32_t age = a.age[place];
    const int32_t step = place / a.envs;
    int32_t then = step - (back < age ? back : age);
    if (then < 0) then += a.steps;
    return int64_t{then} * a.envs + (place - step * a.envs);
  }
};

template <typename Run>
void RunKernels(const RingArgs& args, Run run) {
  const int64_t blocks = BlocksFor(args.rows * args.stack * args.words);
  switch (args.word_bytes) {
    case 16:
      return run(RingKernel<SixteenBytes>{args}, blocks);
    case 4:
      return run(RingKernel<uint32_t>{args}, blocks);
    default:
      return run(RingKernel<uint8_t>{args}, blocks);
  }
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_RING_H_
