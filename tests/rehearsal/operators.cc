#include "tests/rehearsal/operators.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include <functional>
#include <optional>

#include "learner/torch.h"
#include "tests/rehearsal/allocators.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/fallback.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/recurrent_cells.h"
#include "tests/rehearsal/shadow_tensors.h"
#include "tests/rehearsal/streams.h"
#include "tests/rehearsal/strict.h"

namespace flotilla::rehearsal {
namespace {

at::Tensor Empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), DeviceAllocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                        std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device>,
                        std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      DeviceAllocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

int64_t Bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

at::Tensor CopyWithin(const at::Tensor& from, const at::Tensor& to) {
  CountLaunch("aten::copy_");
  CountCopy(&Counts::within_device, Bytes(to));
  LaunchOn("aten::copy_", {from}, {to});
  const std::function<void()> run = [target = Shadow(to),
                                     source = Shadow(from)]() mutable {
    at::native::copy_(target, source, /*non_blocking=*/false);
  };
  Record("aten::copy_", {from, to}, run);
  run();
  return to;
}

at::Tensor CopyToDevice(const at::Tensor& host, const at::Tensor& to,
                        bool non_blocking) {
  const bool pinned = IsPinned(host.storage().data());
  CountCopy(pinned ? &Counts::pinned_to_device : &Counts::pageable_to_device,
            Bytes(host));
  LaunchOn("a copy to the device", {}, {to});
  if (!pinned || !non_blocking) {
    HostWait(&Counts::blocking_copies,
             pinned ? "a blocking copy to the device"
                    : "a copy of pageable memory to the device");
    Streams::Get().Finish(Streams::Current());
  } else if (IsStrict()) {
    Streams::Get().CopyFromHostLate(host);
  }
  // Pinned memory is read anew by each replay of a graph.
  const std::function<void()> run = [target = Shadow(to), host]() mutable {
    at::native::copy_(target, host, /*non_blocking=*/false);
  };
  Record("a copy to the device", {to}, run);
  run();
  return to;
}

at::Tensor CopyToHost(const at::Tensor& from, const at::Tensor& host,
                      bool non_blocking) {
  const bool pinned = IsPinned(host.storage().data());
  CountCopy(pinned ? &Counts::device_to_pinned : &Counts::device_to_pageable,
            Bytes(host));
  LaunchOn("a copy to the host", {from}, {});
  TORCH_CHECK(!IsCapturing(), "rehearsal: a graph copies nothing to the host");
  const at::Tensor source = Shadow(from);
  if (!pinned || !non_blocking) {
    HostWait(&Counts::blocking_copies,
             pinned ? "a blocking copy to the host"
                    : "a copy to pageable memory of the host");
    Streams::Get().Finish(Streams::Current());
  } else if (IsStrict()) {
    Streams::Get().CopyToHostLate(host, source);
    return host;
  }
  at::Tensor target = host;
  at::native::copy_(target, source, /*non_blocking=*/false);
  return host;
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to,
                    bool non_blocking) {
  if (to.numel() == 0) return to;
  if (!from.is_privateuseone()) return CopyToDevice(from, to, non_blocking);
  if (!to.is_privateuseone()) return CopyToHost(from, to, non_blocking);
  return CopyWithin(from, to);
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return CopyFrom(from, to, /*non_blocking=*/false);
}

at::Scalar ReadScalar(const at::Tensor& tensor) {
  HostWait(&Counts::scalar_reads, "item()");
  LaunchOn("item()", {tensor}, {});
  Streams::Get().Finish(Streams::Current());
  return Shadow(tensor).item();
}

at::Tensor& SetTensor(at::Tensor& tensor, const at::Tensor& source) {
  return at::native::set_tensor_(tensor, source);
}

at::Tensor& SetStorage(at::Tensor& tensor, at::Storage storage,
                       c10::SymInt offset, c10::SymIntArrayRef size,
                       c10::SymIntArrayRef stride) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size),
                              C10_AS_INTARRAYREF_SLOW(stride),
                              offset.expect_int());
  return tensor;
}

// Kernels run at once, so memory is never in use after its last tensor.
void RecordStream(at::Tensor&, c10::Stream) {}

torch::Library* Implementations(const char* domain, c10::DispatchKey key) {
  return new torch::Library(torch::Library::IMPL, domain, key, __FILE__,
                            __LINE__);
}

}  // namespace

void RegisterOperators() {
  using torch::CppFunction;
  Implementations("_", c10::DispatchKey::PrivateUse1)
      ->fallback(CppFunction::makeFromBoxedFunction<&Fallback>());

  torch::Library& device =
      *Implementations("aten", c10::DispatchKey::PrivateUse1);
  device.impl("empty.memory_format", TORCH_FN(Empty));
  device.impl("empty_strided", TORCH_FN(EmptyStrided));
  device.impl("_copy_from", TORCH_FN(CopyFrom));
  device.impl("_copy_from_and_resize", TORCH_FN(CopyFromAndResize));
  device.impl("_local_scalar_dense", TORCH_FN(ReadScalar));
  device.impl("set_.source_Tensor", TORCH_FN(SetTensor));
  device.impl("set_.source_Storage_storage_offset", TORCH_FN(SetStorage));
  device.impl("record_stream", TORCH_FN(RecordStream));
  // Torch composes these of others, or refuses them, for devices that it does
  // not know; the CPU has kernels.
  for (const char* name : {"convolution", "convolution_backward",
                           "native_layer_norm", "resize_"}) {
    device.impl(name, CppFunction::makeFromBoxedFunction<&Fallback>());
  }

  // Torch sends recurrent cells of our kind of device to fused kernels, which
  // CUDA has and the CPU has not. The fallback finds these.
  torch::Library& cpu = *Implementations("aten", c10::DispatchKey::CPU);
  cpu.impl("_thnn_fused_lstm_cell", TORCH_FN(LstmCell));
  cpu.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(LstmCellBackward));
  cpu.impl("_thnn_fused_gru_cell", TORCH_FN(GruCell));
  cpu.impl("_thnn_fused_gru_cell_backward", TORCH_FN(GruCellBackward));
}

}  // namespace flotilla::rehearsal
