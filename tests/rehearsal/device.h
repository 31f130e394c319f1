#ifndef FLOTILLA_TESTS_REHEARSAL_DEVICE_H_
#define FLOTILLA_TESTS_REHEARSAL_DEVICE_H_

#include <cstdint>

#include "learner/torch.h"

namespace flotilla::rehearsal {

// A device to rehearse on: what a GPU would refuse, miss or wait for shows on a
// machine that has none.
//
// No host thread can touch its memory: whoever reads or writes an address of it
// dies by SIGSEGV, and stderr says why. Its operators are the CPU's, with the CPU's results (those
// of fused LSTM and GRU cells within rounding), and its generator draws what
// the CPU's draws from the same seed. counters.h says what it was asked to do,
// no_host_wait.h forbids waiting for it, strict.h makes copies late.
//
// Kernels run at once, on the thread that launches them, but only streams, events and
// waits order them: stream_order.h finds what runs in order here by chance. graph.h
// records operators as a CUDA graph does.
//
// Nothing here is a measure of speed.
//
// For test programs only: flotilla-learner-rehearsal is the learner with it.
// Once registered it is the process's accelerator for good and owns pinned
// memory, so a program that registers it uses no CUDA.
// torch::nn::Module::to() does not know it: make modules and tensors on it.

// Call it before the first tensor is made on the device. Idempotent and
// thread-safe.
void Register();

// torch::Device(torch::kPrivateUse1, 0); its name is "rehearsal:0".
torch::Device Device();

// Bytes of its memory that tensors hold, rounded up to blocks. Thread-safe.
int64_t LiveBytes();

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_DEVICE_H_
