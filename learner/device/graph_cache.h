#ifndef FLOTILLA_LEARNER_DEVICE_GRAPH_CACHE_H_
#define FLOTILLA_LEARNER_DEVICE_GRAPH_CACHE_H_

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "learner/device/graph.h"
#include "learner/torch.h"

namespace flotilla {

// What a graph depends on: where memory is, and numbers of the host.
struct GraphKey {
  std::vector<const void*> address;
  std::vector<double> number;

  // `tensor` may be undefined.
  void Add(const torch::Tensor& tensor) {
    const bool defined = tensor.defined();
    address.push_back(defined ? tensor.storage().data() : nullptr);
    number.push_back(defined ? static_cast<double>(tensor.storage_offset())
                             : 0);
  }
  auto operator<=>(const GraphKey&) const = default;
};

// Graphs (device/graph.h) of work that comes again, one for each key. The first time
// it is done as it is, so that libraries prepare what a capture forbids; the second
// time it is recorded. What a device refuses to record is done as it is from then
// on, and a warning says why.
//
// `Held` is what a graph reads and makes, and holds all memory that its key names: so
// no other can come to lie there.
//
// Not thread-safe.
template <typename Held>
class GraphCache {
 public:
  // Null: `device` has no graphs. `what` is done, for the warning ("decisions"); of
  // graphs that are not used, those beyond `most` go.
  static std::unique_ptr<GraphCache> On(torch::Device device, std::string what,
                                        size_t most) {
    if (MakeGraph(device) == nullptr) return nullptr;
    return std::unique_ptr<GraphCache>(
        new GraphCache(device, std::move(what), most));
  }

  using Step = std::function<void(Held* held)>;
  // What holds the result of `work`, until the next Run; or null: it is to be done
  // as it is. `prepare` fills a new one, `feed` brings one that is replayed what is
  // new. Where a recording fails, work that was begun is done again. Errors: throws
  // what `prepare`, `feed` and a replay throw.
  Held* Run(GraphKey key, const Step& prepare, const Step& feed,
            const Step& work) {
    if (refused_) return nullptr;
    const auto found =
        std::find_if(recorded_.begin(), recorded_.end(),
                     [&](const Recorded& one) { return one.key == key; });
    if (found != recorded_.end()) {
      recorded_.splice(recorded_.begin(), recorded_, found);
      feed(&found->held);
      found->graph->Replay();
      return &found->held;
    }
    // Keys that never come again would fill it.
    if (seen_.size() >= most_) seen_.clear();
    if (seen_.insert(key).second) return nullptr;
    seen_.erase(key);
    if (recorded_.size() == most_) recorded_.pop_back();
    std::list<Recorded> made(1);
    Recorded& one = made.front();
    one.key = std::move(key);
    one.graph = MakeGraph(device_);
    prepare(&one.held);
    try {
      one.graph->Capture([&] { work(&one.held); });
    } catch (const std::exception& error) {  // a user's module throws its own
      const std::string why = error.what();
      LOG(WARNING) << what_ << " are not recorded as graphs: "
                   << why.substr(0, why.find('\n'));
      refused_ = true;
      Clear();
      return nullptr;
    }
    recorded_.splice(recorded_.begin(), made);
    return &recorded_.front().held;
  }

  // Forgets them all: what they do is no longer what is wanted.
  void Clear() {
    recorded_.clear();
    seen_.clear();
  }

 private:
  struct Recorded {
    GraphKey key;
    Held held;
    std::unique_ptr<DeviceGraph> graph;
  };

  GraphCache(torch::Device device, std::string what, size_t most)
      : device_(device), what_(std::move(what)), most_(most) {}

  const torch::Device device_;
  const std::string what_;
  const size_t most_;
  bool refused_ = false;
  std::set<GraphKey> seen_;
  std::list<Recorded> recorded_;  // the one that was used last is the first
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_DEVICE_GRAPH_CACHE_H_
