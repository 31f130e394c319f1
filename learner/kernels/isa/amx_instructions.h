#ifndef FLOTILLA_LEARNER_KERNELS_ISA_AMX_INSTRUCTIONS_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_AMX_INSTRUCTIONS_H_

#include <cstdint>

#include "learner/kernels/isa/amx_config.h"
#include "learner/kernels/lane.h"

#define FLOTILLA_HAS_TILES

// AMX: eight registers that are tiles of up to 16 rows of 64 bytes (Intel's Architectures
// Software Developer's Manual, volume 1, chapter 18). Written out: compilers' own
// functions for them do not say that a load reads memory (GCC 12). Included by
// kernels_amx.cc alone; tests have the same functions in plain C++.

namespace flotilla {
namespace {

FLOTILLA_INLINE void AmxConfigure(const AmxConfig& config) {
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
// A thread's registers are saved and restored with it until then.
FLOTILLA_INLINE void AmxRelease() { asm volatile("tilerelease" ::: "memory"); }

template <int kTile>
FLOTILLA_INLINE void AmxZero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// Rows `step` bytes apart.
template <int kTile>
FLOTILLA_INLINE void AmxLoad(const void* rows, int64_t step) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(step),
               "i"(kTile)
               : "memory");
}
template <int kTile>
FLOTILLA_INLINE void AmxStore(void* rows, int64_t step) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(step),
               "i"(kTile)
               : "memory");
}
// To floats `kSums` [M, N] adds the products of pairs of bfloat16, `kLeft` [M, K] and
// `kRight` [K, N]. Denormals count as 0.
template <int kSums, int kLeft, int kRight>
FLOTILLA_INLINE void AmxMultiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums),
               "i"(kLeft), "i"(kRight));
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_AMX_INSTRUCTIONS_H_
