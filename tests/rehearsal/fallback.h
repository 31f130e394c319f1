#ifndef FLOTILLA_TESTS_REHEARSAL_FALLBACK_H_
#define FLOTILLA_TESTS_REHEARSAL_FALLBACK_H_

#include "learner/torch.h"

namespace flotilla::rehearsal {

// Any operator, by the CPU's kernel, on the shadows of its tensors. Counts a
// launch or a view, and a wait where a GPU's kernel has one.
//
// Errors: throws c10::Error, as CUDA does, if a tensor with dimensions is on
// the host; indices may be, and are a blocking copy then.
void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_FALLBACK_H_
