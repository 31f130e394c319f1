#include "tests/rehearsal/shadow_tensors.h"

#include <ATen/ops/copy_native.h>

#include <utility>

#include "tests/rehearsal/allocators.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/memory.h"

namespace flotilla::rehearsal {
namespace {

// A tensor of `like`'s sizes and type over `storage`.
at::Tensor Over(c10::Storage storage, c10::DispatchKey key,
                const at::Tensor& like) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

c10::Storage ShadowStorage(const c10::Storage& device) {
  void* const shadow = Memory::Get().ToShadow(device.data());
  return c10::Storage(c10::Storage::use_byte_size_t{}, device.nbytes(),
                      c10::DataPtr(shadow, c10::Device(c10::kCPU)),
                      c10::GetAllocator(c10::kCPU), /*resizable=*/true);
}

at::Tensor ShadowTensor(const at::Tensor& device, c10::Storage storage) {
  at::Tensor shadow = Over(std::move(storage), c10::DispatchKey::CPU, device);
  if (device.unsafeGetTensorImpl()->is_wrapped_number()) {
    shadow.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return shadow;
}

// The device address of a kernel's memory, which it keeps.
c10::DataPtr DevicePointer(const c10::Storage& kernels) {
  return c10::DataPtr(
      Memory::Get().ToDevice(kernels.data()), new c10::Storage(kernels),
      [](void* kept) { delete static_cast<c10::Storage*>(kept); }, Device());
}

}  // namespace

at::Tensor Shadow(const at::Tensor& device) {
  return ShadowTensor(device, ShadowStorage(device.storage()));
}

const c10::Storage& ShadowTensors::ShadowOf(const c10::Storage& device) {
  for (const StoragePair& pair : storages_) {
    if (pair.device.is_alias_of(device)) return pair.shadow;
  }
  storages_.push_back({device, ShadowStorage(device)});
  return storages_.back().shadow;
}

at::Tensor ShadowTensors::In(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  for (const TensorPair& pair : tensors_) {
    if (pair.device.is_same(tensor)) return pair.shadow;
  }
  tensors_.push_back(
      {tensor, ShadowTensor(tensor, ShadowOf(tensor.storage()))});
  return tensors_.back().shadow;
}

void ShadowTensors::AdoptChanges() {
  for (const auto& [device, shadow] : storages_) {
    if (Memory::Get().ToShadow(device.data()) == shadow.data() &&
        device.nbytes() == shadow.nbytes()) {
      continue;
    }
    device.set_data_ptr_noswap(DevicePointer(shadow));
    device.set_nbytes(shadow.nbytes());
  }
  for (const auto& [device, shadow] : tensors_) {
    if (device.sizes() == shadow.sizes() &&
        device.strides() == shadow.strides() &&
        device.storage_offset() == shadow.storage_offset()) {
      continue;
    }
    device.unsafeGetTensorImpl()->set_sizes_and_strides(
        shadow.sizes(), shadow.strides(), shadow.storage_offset());
  }
}

at::Tensor ShadowTensors::Out(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu()) return tensor;
  for (const TensorPair& pair : tensors_) {
    if (pair.shadow.is_same(tensor)) return pair.device;
  }
  const c10::Storage& storage = tensor.storage();
  for (const StoragePair& pair : storages_) {
    if (pair.shadow.is_alias_of(storage)) {
      return Over(pair.device, c10::DispatchKey::PrivateUse1, tensor);
    }
  }
  if (storage.nbytes() > 0 && !Memory::Get().HasShadow(storage.data())) {
    // Made before this call, or by a thread that the kernel does not know.
    const at::Tensor copy = at::empty_strided(
        tensor.sizes(), tensor.strides(), tensor.options().device(Device()));
    at::Tensor target = Shadow(copy);
    at::native::copy_(target, tensor, /*non_blocking=*/false);
    return copy;
  }
  storages_.push_back({c10::Storage(c10::Storage::use_byte_size_t{},
                                    storage.nbytes(), DevicePointer(storage),
                                    DeviceAllocator(), /*resizable=*/true),
                       storage});
  return Over(storages_.back().device, c10::DispatchKey::PrivateUse1, tensor);
}

}  // namespace flotilla::rehearsal
