#include "tests/rehearsal/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <utility>

#include "learner/torch.h"
#include "tests/rehearsal/allocators.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/generator.h"
#include "tests/rehearsal/memory.h"

namespace flotilla::rehearsal {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }

  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return DefaultGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return MakeGenerator();
  }

  c10::Device getDeviceFromPtr(void* address) const override {
    TORCH_CHECK(Memory::Get().HasDevice(address),
                "not an address of the rehearsal device");
    return Device();
  }
  bool isPinnedPtr(const void* address) const override {
    return IsPinned(address);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return PinnedAllocator();
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t bytes) const override {
    c10::DataPtr grown = DeviceAllocator()->allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) {
      DeviceAllocator()->copy_data(grown.get(), storage.data(), kept);
    }
    storage.set_data_ptr_noswap(std::move(grown));
    storage.set_nbytes(bytes);
  }
};

}  // namespace

void RegisterHooks() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }

}  // namespace flotilla::rehearsal
