#ifndef FLOTILLA_TESTS_REHEARSAL_GRAPH_H_
#define FLOTILLA_TESTS_REHEARSAL_GRAPH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "learner/torch.h"
#include "tests/rehearsal/memory.h"
#include "tests/rehearsal/stream_order.h"

namespace flotilla::rehearsal {

// Operators that were recorded once, as a CUDA graph has them: by the addresses that
// they read and write. A replay does the same to what lies at these addresses now,
// and is one launch.
//
//   Graph graph;
//   { const Graph::Capture capture(&graph); loss.backward(); }
//   graph.Replay();
//
// While it is captured, whatever makes the host wait throws c10::Error, copies of
// pageable memory among it. Memory that was made then belongs to the graph as long
// as it lives.
//
// Not thread-safe; one capture at a time in the process. It records what is asked on
// the stream that was the capturing thread's, by a backward pass of its too; other
// streams go on as ever.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  class Capture {
   public:
    explicit Capture(Graph* graph);
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
  };

  // Errors: throws c10::Error, naming the operator, if memory that was there before
  // the capture has been given back since: whoever moved it, the graph still has the
  // old address. Nothing is done then.
  void Replay();

  int64_t operators() const { return static_cast<int64_t>(nodes_.size()); }

 private:
  friend void Record(const std::string&, at::TensorList, std::function<void()>);
  friend void RecordTouched(Touched);

  struct Node {
    std::string op;
    std::vector<Memory::BlockId> blocks;  // of before the capture
    std::function<void()> run;
  };

  std::vector<Node> nodes_;
  std::vector<Touched> touched_;  // in strict mode: in the nodes' order
  std::vector<Memory::BlockId> held_;
};

// Has learner/device/graph.h make these for the device.
void RegisterRehearsalGraphs();

// As long as it lives the device has no graphs.
class NoGraphs {
 public:
  NoGraphs();
  ~NoGraphs() { RegisterRehearsalGraphs(); }
  NoGraphs(const NoGraphs&) = delete;
  NoGraphs& operator=(const NoGraphs&) = delete;
};

// For the device's own parts. Whether a graph is being captured on the calling
// thread's stream.
bool IsCapturing();
// An operator has been launched.
void RecordTouched(Touched touched);
// `op` touches `tensors`, which lie on the device; `run` does it again.
void Record(const std::string& op, at::TensorList tensors,
            std::function<void()> run);

}  // namespace flotilla::rehearsal

#endif  // FLOTILLA_TESTS_REHEARSAL_GRAPH_H_
