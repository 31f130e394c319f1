#include "learner/device/graph.h"

#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <atomic>

namespace flotilla {
namespace {

std::atomic<GraphMaker>& MakerOf(torch::DeviceType type) {
  static std::array<std::atomic<GraphMaker>, c10::COMPILE_TIME_MAX_DEVICE_TYPES>
      makers = {};
  return makers.at(static_cast<size_t>(type));
}

void Pass(const c10::Stream& from, const c10::Stream& to) {
  c10::Event event(from.device_type());
  event.record(from);
  event.block(to);
}

}  // namespace

std::unique_ptr<DeviceGraph> MakeGraph(torch::Device device) {
  const GraphMaker make = MakerOf(device.type());
  return make == nullptr ? nullptr : make(device);
}

void RegisterGraphs(torch::DeviceType type, GraphMaker make) {
  MakerOf(type) = make;
}

void OnSideStream(torch::Device device, const std::function<void()>& work) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream current = streams.getStream(device);
  const c10::Stream side =
      streams.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  Pass(current, side);
  {
    const c10::StreamGuard guard(side);
    work();
  }
  Pass(side, current);
}

}  // namespace flotilla
