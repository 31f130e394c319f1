#ifndef FLOTILLA_LEARNER_DEVICE_HOST_H_
#define FLOTILLA_LEARNER_DEVICE_HOST_H_

#include <cstdint>

#include "learner/torch.h"

namespace flotilla {

// A tensor's memory, for loops and kernels that run on the host: the only way to
// it outside this folder. Dies, naming what came, if the tensor is on another
// device, not contiguous or of another type. Valid as long as the tensor's
// storage.
template <typename T>
T* Host(const torch::Tensor& tensor) {
  CHECK(tensor.is_cpu()) << "a tensor on " << tensor.device()
                         << " is read on the host";
  CHECK(tensor.is_contiguous())
      << "want contiguous memory, got strides " << tensor.strides();
  return tensor.data_ptr<T>();
}

// The same as bytes, of any type.
inline uint8_t* HostBytes(const torch::Tensor& tensor) {
  CHECK(tensor.is_cpu()) << "a tensor on " << tensor.device()
                         << " is read on the host";
  CHECK(tensor.is_contiguous())
      << "want contiguous memory, got strides " << tensor.strides();
  return static_cast<uint8_t*>(tensor.data_ptr());
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_DEVICE_HOST_H_
