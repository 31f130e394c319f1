#include "tests/rehearsal/graph.h"

#include <atomic>
#include <utility>

#include "services/base/mutex.h"
#include "tests/rehearsal/counters.h"

namespace flotilla::rehearsal {
namespace {

std::atomic<Graph*> capturing = nullptr;

// A backward pass records from threads of its own.
Mutex& RecordMutex() {
  static auto* const mutex = new Mutex();
  return *mutex;
}

}  // namespace

bool IsCapturing() { return capturing != nullptr; }

Graph::Capture::Capture(Graph* graph) {
  CHECK(capturing == nullptr) << "a capture within a capture";
  CHECK(graph->nodes_.empty()) << "a graph is captured once";
  Memory::Get().BeginHolding();
  capturing = graph;
}

Graph::Capture::~Capture() {
  Graph* const graph = capturing.exchange(nullptr);
  graph->held_ = Memory::Get().EndHolding();
}

Graph::~Graph() {
  nodes_.clear();
  Memory::Get().LetGo(held_);
}

void Record(const std::string& op, at::TensorList tensors,
            std::function<void()> run) {
  Graph* const graph = capturing;
  if (graph == nullptr) return;
  Graph::Node node = {op, {}, std::move(run)};
  for (const at::Tensor& t : tensors) {
    if (!t.defined() || !t.is_privateuseone()) continue;
    const auto block = Memory::Get().OlderThanHolding(t.storage().data());
    if (block) node.blocks.push_back(*block);
  }
  MutexLock lock(&RecordMutex());
  graph->nodes_.push_back(std::move(node));
}

void Graph::Replay() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (const Memory::BlockId& block : nodes_[i].blocks) {
      TORCH_CHECK(Memory::Get().IsLive(block),
                  "moved memory in a graph: ", nodes_[i].op, ", operator ", i,
                  " of ", nodes_.size(),
                  ", has the address of memory that was given back after the "
                  "capture");
    }
  }
  CountLaunch("a graph");
  for (const Node& node : nodes_) node.run();
}

}  // namespace flotilla::rehearsal
