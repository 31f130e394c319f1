#include "tests/rehearsal/graph.h"

#include <atomic>
#include <memory>
#include <utility>

#include "learner/device/graph.h"
#include "services/base/mutex.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/streams.h"

namespace flotilla::rehearsal {
namespace {

std::atomic<Graph*> capturing = nullptr;
std::atomic<int64_t> capturing_stream = 0;

// A backward pass records from threads of its own.
Mutex& RecordMutex() {
  static auto* const mutex = new Mutex();
  return *mutex;
}

class RehearsalGraph : public DeviceGraph {
 public:
  void Capture(const std::function<void()>& work) override {
    OnSideStream(Device(), [&] {
      const Graph::Capture capture(&graph_);
      work();
    });
  }
  void Replay() override { graph_.Replay(); }

 private:
  Graph graph_;
};

}  // namespace

void RegisterRehearsalGraphs() {
  RegisterGraphs(torch::kPrivateUse1,
                 [](torch::Device) -> std::unique_ptr<DeviceGraph> {
                   return std::make_unique<RehearsalGraph>();
                 });
}

NoGraphs::NoGraphs() { RegisterGraphs(torch::kPrivateUse1, nullptr); }

bool IsCapturing() {
  return capturing != nullptr && capturing_stream == Streams::Current();
}

Graph::Capture::Capture(Graph* graph) {
  CHECK(capturing == nullptr) << "a capture within a capture";
  CHECK(graph->nodes_.empty()) << "a graph is captured once";
  capturing_stream = Streams::Current();
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
  if (!IsCapturing()) return;
  Graph* const graph = capturing;
  Graph::Node node = {op, {}, std::move(run)};
  for (const at::Tensor& t : tensors) {
    if (!t.defined() || !t.is_privateuseone()) continue;
    const auto block = Memory::Get().OlderThanHolding(t.storage().data());
    if (block) node.blocks.push_back(*block);
  }
  MutexLock lock(&RecordMutex());
  graph->nodes_.push_back(std::move(node));
}

void RecordTouched(Touched touched) {
  if (!IsCapturing()) return;
  Graph* const graph = capturing;
  MutexLock lock(&RecordMutex());
  graph->touched_.push_back(std::move(touched));
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
  for (const Touched& touched : touched_) LaunchOn(touched);
  for (const Node& node : nodes_) node.run();
}

}  // namespace flotilla::rehearsal
