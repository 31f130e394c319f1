#include "learner/device/transfer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace flotilla {
namespace {

// Until what was asked of the device's current stream so far is done.
void WaitFor(torch::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  c10::Event done(device.type());
  done.record(guard.getStream(device));
  done.synchronize();
}

}  // namespace

torch::Tensor Staging(const std::vector<int64_t>& sizes, torch::Dtype dtype,
                      torch::Device device) {
  return torch::empty(sizes, torch::TensorOptions().dtype(dtype).pinned_memory(
                                 !device.is_cpu()));
}

torch::Tensor ToDevice(const torch::Tensor& host, torch::Device device) {
  if (device.is_cpu() || !host.is_cpu()) return host.to(device);
  // Torch would make memory of its own, which is not pinned, of what has gaps.
  if (host.is_contiguous() && host.is_pinned()) {
    return host.to(device, /*non_blocking=*/true);
  }
  const torch::Tensor staged =
      Staging(host.sizes().vec(), host.scalar_type(), device);
  staged.copy_(host);
  return staged.to(device, /*non_blocking=*/true);
}

void CopyToDevice(const torch::Tensor& host, torch::Tensor there) {
  // Converting would make memory of its own on the way.
  const bool direct = host.is_contiguous() && host.is_pinned() &&
                      there.is_contiguous() &&
                      host.scalar_type() == there.scalar_type();
  there.copy_(direct ? host : ToDevice(host, there.device()),
              /*non_blocking=*/true);
}

torch::Tensor RowsToDevice(const torch::Tensor& host,
                           const torch::Tensor& index, torch::Device device) {
  if (device.is_cpu() || !host.is_cpu()) return host.index_select(0, index);
  std::vector<int64_t> sizes = host.sizes().vec();
  sizes[0] = index.numel();
  torch::Tensor staged = Staging(sizes, host.scalar_type(), device);
  torch::index_select_out(staged, host, 0, index);
  return staged.to(device, /*non_blocking=*/true);
}

torch::Tensor ToHost(const torch::Tensor& tensor) {
  torch::Tensor host = tensor;
  ToHost({&host});
  return host;
}

void ToHost(std::initializer_list<torch::Tensor*> tensors) {
  std::optional<torch::Device> from;
  for (torch::Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    if (tensor->is_cpu()) {
      *tensor = tensor->contiguous();
      continue;
    }
    from = tensor->device();
    // Torch makes it pinned.
    *tensor = tensor->contiguous().to(torch::kCPU, /*non_blocking=*/true);
  }
  if (from.has_value()) WaitFor(*from);
}

}  // namespace flotilla
