#ifndef FLOTILLA_LEARNER_ALGO_REPLAY_GRAPHS_H_
#define FLOTILLA_LEARNER_ALGO_REPLAY_GRAPHS_H_

#include <functional>
#include <memory>
#include <utility>

#include "learner/device/graph_cache.h"
#include "learner/replay/replay_buffer.h"
#include "learner/torch.h"

namespace flotilla {

// What gradient steps on draws from a replay ask of a device, as graphs
// (device/graph_cache.h) with a batch of their own, that draws are copied into: one
// for each size of a draw and what else is asked. Of minibatches of a rollout, which
// stays where it is, see minibatch_graphs.h.
//
// Not thread-safe.
class ReplayGraphs {
 public:
  // Null: `device` has no graphs.
  static std::unique_ptr<ReplayGraphs> On(torch::Device device);

  // What `step` returns of a batch, all of its `id` aside, and of `noise`, which may
  // be undefined; valid until the next Run. `step` either is called or was, with the
  // same `asked`, and is done again on the device alone; where a recording fails it
  // is called twice. Errors: throws c10::Error.
  using Step = std::function<torch::Tensor(const ReplayBatch& batch,
                                           const torch::Tensor& noise)>;
  torch::Tensor Run(const ReplayBatch& batch, const torch::Tensor& noise,
                    int asked, const Step& step);

  // Forgets them all: what they do is no longer what is wanted.
  void Clear() { graphs_->Clear(); }

 private:
  struct Held {
    ReplayBatch batch;
    torch::Tensor noise, result;
  };

  explicit ReplayGraphs(std::unique_ptr<GraphCache<Held>> graphs)
      : graphs_(std::move(graphs)) {}

  const std::unique_ptr<GraphCache<Held>> graphs_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_REPLAY_GRAPHS_H_
