#ifndef FLOTILLA_LEARNER_ALGO_MINIBATCH_GRAPHS_H_
#define FLOTILLA_LEARNER_ALGO_MINIBATCH_GRAPHS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <vector>

#include "learner/algo/ppo_backend.h"
#include "learner/device/graph.h"
#include "learner/torch.h"

namespace flotilla {

// What gradient steps ask of a device, as graphs (device/graph.h): one for each
// combination of a rollout's memory, a size of the minibatch and the numbers of the
// host that go into it. The first step of a combination is done as it is, so that
// libraries prepare what a capture forbids; the second is recorded. What a device
// refuses to record is done as it is from then on, and a warning says why.
//
// Not thread-safe.
class MinibatchGraphs {
 public:
  // Null: `device` has no graphs.
  static std::unique_ptr<MinibatchGraphs> On(torch::Device device);

  // What `step` returns of `batch`, whose tensors `stay`; valid until the next Run
  // of the same combination. `step` either is called or was, for a batch of the same
  // memory but for the indices, and is done again on the device alone; where a
  // recording fails it is called twice. `numbers`: of the host, on which beside the
  // batch's own it depends. Errors: throws c10::Error.
  using Step = std::function<torch::Tensor(const PpoBatch& batch)>;
  torch::Tensor Run(const PpoBatch& batch, const std::vector<double>& numbers,
                    const Step& step);

  // Forgets them all: what they do is no longer what is wanted.
  void Clear();

 private:
  // Each has memory of its own. Rollouts in flight, a shorter last minibatch; an
  // annealed clip is another number each update.
  static constexpr size_t kMost = 8;

  struct Key {
    std::vector<const void*> address;
    std::vector<double> number;
    auto operator<=>(const Key&) const = default;
  };
  struct Recorded {
    Key key;
    Rollout rollout;  // holds the memory, as all of these do
    PpoBatch batch;   // its indices are where the graph reads them
    std::unique_ptr<DeviceGraph> graph;
    torch::Tensor result;
  };

  explicit MinibatchGraphs(torch::Device device) : device_(device) {}
  static Key KeyOf(const PpoBatch& batch, const std::vector<double>& numbers);

  const torch::Device device_;
  bool refused_ = false;
  std::set<Key> seen_;
  std::list<Recorded> recorded_;  // the one that was used last is the first
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_MINIBATCH_GRAPHS_H_
