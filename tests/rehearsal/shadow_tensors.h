#ifndef FLOTILLA_TESTS_REHEARSAL_SHADOW_TENSORS_H_
#define FLOTILLA_TESTS_REHEARSAL_SHADOW_TENSORS_H_

#include "learner/torch.h"

namespace flotilla::rehearsal {

// The tensors of one operator's call, as the CPU kernel that runs it sees them:
// on the CPU, over the shadow of the device's memory.
//
// Not thread-safe: each call has one.
class ShadowTensors {
 public:
  // What the kernel takes for `tensor`: its shadow, or itself where it is
  // undefined or on the host. Tensors that share memory share its shadow.
  at::Tensor In(const at::Tensor& tensor);

  // After the kernel: gives device tensors the sizes and the memory that it
  // gave their shadows, as out= and resizing operators do.
  void AdoptChanges();

  // After AdoptChanges: the device tensor for what the kernel returned, which
  // is an argument, a view of one, or new.
  at::Tensor Out(const at::Tensor& tensor);

  bool has_device() const { return !tensors_.empty(); }

 private:
  struct TensorPair {
    at::Tensor device;
    at::Tensor shadow;
  };
  struct StoragePair {
    c10::Storage device;
    c10::Storage shadow;
  };

  const c10::Storage& ShadowOf(const c10::Storage& device);

  c10::SmallVector<TensorPair, 8> tensors_;
  c10::SmallVector<StoragePair, 8> storages_;
};

// A CPU tensor over the shadow of `device`'s memory.
at::Tensor Shadow(const at::Tensor& device);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_SHADOW_TENSORS_H_
