#include "tests/rehearsal/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "learner/torch.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/streams.h"

namespace flotilla::rehearsal {
namespace {

c10::Stream Named(int64_t stream) {
  return c10::Stream(c10::Stream::UNSAFE, Device(), stream);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }

  // There is one device.
  c10::Device exchangeDevice(c10::Device) const override { return Device(); }
  c10::Device getDevice() const override { return Device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    return {};
  }

  c10::Stream getStream(c10::Device) const override {
    return Named(Streams::Current());
  }
  c10::Stream getDefaultStream(c10::Device) const override { return Named(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return Named(Streams::Get().Make());
  }
  // Its number: what there is of it.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }
  c10::Stream getNewStream(c10::Device, int) const override {
    return Named(Streams::Get().Make());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return Named(Streams::SetCurrent(stream.id()));
  }
  // Kernels run at once, so memory is never in use after its last tensor.
  void recordDataPtrOnStream(const c10::DataPtr&,
                             const c10::Stream&) const override {}

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event();
    Streams::Get().Record(stream.id(), static_cast<Event*>(*event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  // An event that was never recorded holds nobody up.
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    Streams::Get().Block(stream.id(), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override {
    if (event != nullptr) Streams::Get().Finish(*static_cast<Event*>(event));
    return true;
  }
  bool queryStream(const c10::Stream& stream) const override {
    Streams::Get().Finish(stream.id());
    return true;
  }
  void synchronizeEvent(void* event) const override {
    HostWait(&Counts::event_waits, "an event");
    if (event != nullptr) Streams::Get().Finish(*static_cast<Event*>(event));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    HostWait(&Counts::stream_waits, "a stream");
    Streams::Get().Finish(stream.id());
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    HostWait(&Counts::device_waits, "the whole device");
    Streams::Get().FinishAll();
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(
               static_cast<Event*>(end)->when -
               static_cast<Event*>(begin)->when)
        .count();
  }
};

}  // namespace

void RegisterGuard() {
  c10::impl::registerDeviceGuard(c10::kPrivateUse1, new Guard());
}

}  // namespace flotilla::rehearsal
