#ifndef FLOTILLA_LEARNER_ALGO_MINIBATCH_GRAPHS_H_
#define FLOTILLA_LEARNER_ALGO_MINIBATCH_GRAPHS_H_

#include <functional>
#include <memory>
#include <vector>

#include "learner/algo/ppo_backend.h"
#include "learner/device/graph_cache.h"
#include "learner/torch.h"

namespace flotilla {

// What gradient steps ask of a device, as graphs (device/graph_cache.h): one for
// each combination of a rollout's memory, a size of the minibatch and the numbers of
// the host that go into it.
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
  void Clear() { graphs_->Clear(); }

 private:
  struct Held {
    Rollout rollout;
    PpoBatch batch;  // its indices are where the graph reads them
    torch::Tensor result;
  };

  explicit MinibatchGraphs(std::unique_ptr<GraphCache<Held>> graphs)
      : graphs_(std::move(graphs)) {}

  const std::unique_ptr<GraphCache<Held>> graphs_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_MINIBATCH_GRAPHS_H_
