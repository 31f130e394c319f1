#ifndef FLOTILLA_TESTS_REHEARSAL_GENERATOR_H_
#define FLOTILLA_TESTS_REHEARSAL_GENERATOR_H_

#include "learner/torch.h"

namespace flotilla::rehearsal {

// Generators of the device: each draws what a CPU generator of its seed would.

at::Generator MakeGenerator();

// What operators draw from that are given none. torch::manual_seed seeds it.
const at::Generator& DefaultGenerator();

// The CPU generator within `generator`, which is one of the device's.
at::Generator CpuGenerator(const at::Generator& generator);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_GENERATOR_H_
