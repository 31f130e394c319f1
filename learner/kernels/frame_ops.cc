#include "learner/kernels/frame_ops.h"

#include <algorithm>
#include <cstring>

namespace flotilla {
namespace {

// Calls `copy(frame, slot)` for every frame of every stack, in order of output.
template <typename Function>
void ForEachFrame(const FrameStorage& storage, std::span<const int32_t> steps,
                  Function copy) {
  const int64_t k = storage.stack;
  int64_t slot = 0;
  for (const int32_t step : steps) {
    const int64_t row = step % storage.rows;
    const int64_t newest = step / storage.rows + k - 1;
    const int64_t age = storage.age[step];
    for (int64_t back = k - 1; back >= 0; --back, ++slot) {
      const int64_t frame = newest - std::min(back, age);
      copy(storage.frames + (frame * storage.rows + row) * storage.pixels,
           slot);
    }
  }
}

}  // namespace

void StackFrames(const FrameStorage& storage, std::span<const int32_t> steps,
                 uint8_t* out) {
  ForEachFrame(storage, steps, [&](const uint8_t* frame, int64_t slot) {
    std::memcpy(out + slot * storage.pixels, frame, storage.pixels);
  });
}

void StackFramesAsFloat(const FrameStorage& storage,
                        std::span<const int32_t> steps, float* out,
                        const KernelTable& kernels) {
  ForEachFrame(storage, steps, [&](const uint8_t* frame, int64_t slot) {
    kernels.bytes_to_unit(frame, storage.pixels, out + slot * storage.pixels);
  });
}

}  // namespace flotilla
