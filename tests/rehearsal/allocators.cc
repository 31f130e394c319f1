#include "tests/rehearsal/allocators.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "services/base/mutex.h"
#include "tests/rehearsal/memory.h"

namespace flotilla::rehearsal {
namespace {

thread_local int kernels_of_this_thread = 0;

void FreeShadow(void* shadow) { Memory::Get().Free(shadow); }

class DeviceAllocatorImpl final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const shadow = Memory::Get().Allocate(bytes);
    return {Memory::Get().ToDevice(shadow), shadow, &FreeShadow,
            c10::Device(c10::kPrivateUse1, 0)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(Memory::Get().ToShadow(to), Memory::Get().ToShadow(from),
                bytes);
  }
};

// The CPU's own allocator, but for kernels that work for the device.
class DivertedCpuAllocator final : public c10::Allocator {
 public:
  explicit DivertedCpuAllocator(c10::Allocator* cpu) : cpu_(cpu) {
    cpu_deleter = cpu->raw_deleter();
  }
  c10::DataPtr allocate(size_t bytes) override {
    if (kernels_of_this_thread == 0) return cpu_->allocate(bytes);
    void* const shadow = Memory::Get().Allocate(bytes);
    return {shadow, shadow, &FreeShadow, c10::Device(c10::kCPU)};
  }
  // oneDNN allocates without a DataPtr, and frees when no kernel runs.
  c10::DeleterFnPtr raw_deleter() const override { return &RawFree; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    cpu_->copy_data(to, from, bytes);
  }

 private:
  static void RawFree(void* memory) {
    (Memory::Get().HasShadow(memory) ? &FreeShadow : cpu_deleter)(memory);
  }

  inline static c10::DeleterFnPtr cpu_deleter = nullptr;
  c10::Allocator* const cpu_;
};

class PinnedAllocatorImpl final : public c10::Allocator {
 public:
  static PinnedAllocatorImpl& Get() {
    static auto* const allocator = new PinnedAllocatorImpl();
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = std::max<size_t>(bytes, 64);
    void* const memory = c10::alloc_cpu(size);
    MutexLock lock(&mutex_);
    end_[reinterpret_cast<uintptr_t>(memory)] =
        reinterpret_cast<uintptr_t>(memory) + size;
    return {memory, memory, &Free, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  bool Holds(const void* address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    MutexLock lock(&mutex_);
    auto block = end_.upper_bound(at);
    return block != end_.begin() && at < (--block)->second;
  }

 private:
  static void Free(void* memory) {
    Get().Forget(memory);
    c10::free_cpu(memory);
  }
  void Forget(void* memory) {
    MutexLock lock(&mutex_);
    end_.erase(reinterpret_cast<uintptr_t>(memory));
  }

  Mutex mutex_;
  // Ends of blocks, by where they begin.
  std::map<uintptr_t, uintptr_t> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void RegisterAllocators() {
  c10::SetAllocator(c10::kPrivateUse1, DeviceAllocator());
  c10::SetCPUAllocator(new DivertedCpuAllocator(c10::GetAllocator(c10::kCPU)),
                       /*priority=*/10);
}

c10::Allocator* DeviceAllocator() {
  static auto* const allocator = new DeviceAllocatorImpl();
  return allocator;
}

c10::Allocator* PinnedAllocator() { return &PinnedAllocatorImpl::Get(); }

bool IsPinned(const void* address) {
  return PinnedAllocatorImpl::Get().Holds(address);
}

KernelScope::KernelScope() { ++kernels_of_this_thread; }
KernelScope::~KernelScope() { --kernels_of_this_thread; }

}  // namespace flotilla::rehearsal
