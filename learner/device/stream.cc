#include "learner/device/stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace flotilla {
namespace {

// Of a stream whose work is short, and waited for: it goes before that of others
// that has not begun.
constexpr int kAhead = -1;

}  // namespace

struct OwnStream::Guard {
  explicit Guard(torch::Device device)
      : stream(c10::impl::VirtualGuardImpl(device.type())
                   .getNewStream(device, kAhead)),
        guard(stream) {}

  const c10::Stream stream;
  const c10::StreamGuard guard;
};

OwnStream::OwnStream(torch::Device device) {
  if (!device.is_cpu()) guard_ = std::make_unique<Guard>(device);
}

OwnStream::~OwnStream() {
  if (guard_ != nullptr) guard_->stream.synchronize();
}

struct StreamMark::Event {
  explicit Event(torch::Device on) : device(on), event(on.type()) {}

  const torch::Device device;
  c10::Event event;
};

StreamMark StreamMark::Now(torch::Device device) {
  StreamMark mark;
  if (device.is_cpu()) return mark;
  const auto made = std::make_shared<Event>(device);
  made->event.record(
      c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  mark.event_ = made;
  return mark;
}

void StreamMark::Await() const {
  if (event_ == nullptr) return;
  event_->event.block(c10::impl::VirtualGuardImpl(event_->device.type())
                          .getStream(event_->device));
}

}  // namespace flotilla
