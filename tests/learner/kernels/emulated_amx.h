#ifndef FLOTILLA_TESTS_LEARNER_KERNELS_EMULATED_AMX_H_
#define FLOTILLA_TESTS_LEARNER_KERNELS_EMULATED_AMX_H_

#include "learner/kernels/isa/kernel_table.h"

namespace flotilla {

// The kernels that are by AMX (isa/amx.h), with its instructions written in C++ as Intel's
// manual says what they do: so they are tested on a CPU without it too. What an
// instruction would refuse ends the program.
const KernelTable& EmulatedAmx();

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_KERNELS_EMULATED_AMX_H_
