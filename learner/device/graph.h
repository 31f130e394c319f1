#ifndef FLOTILLA_LEARNER_DEVICE_GRAPH_H_
#define FLOTILLA_LEARNER_DEVICE_GRAPH_H_

#include <functional>
#include <memory>

#include "learner/torch.h"

namespace flotilla {

// What was asked of a device once, by the addresses that it read and wrote: a CUDA
// graph. To have it done again is one launch, whatever lies there by then.
//
// Not thread-safe; other threads may use the device meanwhile.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Records what `work` asks of the device, on a stream of its own, and has it done
  // once, after what the current stream was asked before and ahead of what it is
  // asked next. Once a graph. Of `work`,
  //
  //   the host may not wait for the device, nor copy from memory that is not pinned
  //   what it reads and did not make must stay where it is as long as the graph
  //   what it makes stays the graph's: tensors of it show what was done last
  //   what it has been told by numbers of the host is told again each time
  //
  // Errors: throws c10::Error.
  virtual void Capture(const std::function<void()>& work) = 0;

  // Has it done again on the current stream. Errors: throws c10::Error.
  virtual void Replay() = 0;
};

// Null: `device` has none.
std::unique_ptr<DeviceGraph> MakeGraph(torch::Device device);

// Those of devices of `type` are made by `make` from here on.
using GraphMaker = std::unique_ptr<DeviceGraph> (*)(torch::Device device);
void RegisterGraphs(torch::DeviceType type, GraphMaker make);

// Has `work` done on a stream of `device` that is not the current one, between what
// that was asked before and what it is asked next. For who implements graphs.
void OnSideStream(torch::Device device, const std::function<void()>& work);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_DEVICE_GRAPH_H_
