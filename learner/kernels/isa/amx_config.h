#ifndef FLOTILLA_LEARNER_KERNELS_ISA_AMX_CONFIG_H_
#define FLOTILLA_LEARNER_KERNELS_ISA_AMX_CONFIG_H_

#include <cstdint>

namespace flotilla {

// What LDTILECFG reads: the size of each register.
struct alignas(64) AmxConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(AmxConfig) == 64);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_ISA_AMX_CONFIG_H_
