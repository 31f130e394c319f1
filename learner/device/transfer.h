#ifndef FLOTILLA_LEARNER_DEVICE_TRANSFER_H_
#define FLOTILLA_LEARNER_DEVICE_TRANSFER_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "learner/torch.h"

// Between the host and the device that learns. Whatever goes there goes through
// pinned memory on the current stream, and the host does not wait; what comes back
// is waited for, once for all that comes together. On a CPU nothing moves: what is
// returned is what was given.
//
//   torch::Tensor rows = Staging({n, 4}, torch::kFloat32, device);
//   ...                                          // write all of `rows`
//   torch::Tensor there = ToDevice(rows, device);
//   torch::Tensor loss = ToHost(Loss(there));    // the host waits here
//
// Thread-safe. Errors: throw c10::Error where Torch does, as when there is no
// memory.

namespace flotilla {

// Uninitialised memory of the host for what is to go to `device`, [sizes]; pinned,
// if that is no CPU. Torch keeps what was freed for the next one, and gives none
// away again before an event says that its copy is over.
torch::Tensor Staging(const std::vector<int64_t>& sizes, torch::Dtype dtype,
                      torch::Device device);

// `host` on `device`. Pinned memory is read where it lies and later: it must not
// change before the host has waited for something that was computed from it. All
// other memory may change at once. What lies on `device` already stays.
torch::Tensor ToDevice(const torch::Tensor& host, torch::Device device);

// Copies `host` over `there`, of the same shape and on a device, as ToDevice does.
void CopyToDevice(const torch::Tensor& host, torch::Tensor there);

// host.index_select(0, index) on `device`; `index` is [M] int32 or int64, where
// `host` is: what lies on `device` already is gathered there.
torch::Tensor RowsToDevice(const torch::Tensor& host,
                           const torch::Tensor& index, torch::Device device);

// `tensor` on the host, contiguous. Blocks until it is there.
torch::Tensor ToHost(const torch::Tensor& tensor);

// Puts that in the place of each of `tensors`, which lie on one device; undefined
// ones stay so. Blocks until all are there: one wait.
void ToHost(std::initializer_list<torch::Tensor*> tensors);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_DEVICE_TRANSFER_H_
