#ifndef FLOTILLA_LEARNER_KERNELS_BFLOAT16_H_
#define FLOTILLA_LEARNER_KERNELS_BFLOAT16_H_

#include <cstdint>

namespace flotilla {

// The bits of a bfloat16: the upper half of a float32's.
using Bfloat16 = uint16_t;

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_KERNELS_BFLOAT16_H_
