#ifndef FLOTILLA_TESTS_REHEARSAL_ALLOCATORS_H_
#define FLOTILLA_TESTS_REHEARSAL_ALLOCATORS_H_

#include "learner/torch.h"

namespace flotilla::rehearsal {

// Makes them Torch's. Once a process.
void RegisterAllocators();

// What the device's tensors are made of: pointers are device addresses.
c10::Allocator* DeviceAllocator();

// Host memory that copies need not wait for.
c10::Allocator* PinnedAllocator();

// Whether `address` lies in a block of PinnedAllocator(). Thread-safe.
bool IsPinned(const void* address);

// While one lives, a CPU kernel of this thread works for the device: what it
// allocates on the CPU is shadow memory, which the device can adopt.
class KernelScope {
 public:
  KernelScope();
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;
};

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_ALLOCATORS_H_
