#ifndef FLOTILLA_LEARNER_ALGO_PARTWISE_PPO_BACKEND_H_
#define FLOTILLA_LEARNER_ALGO_PARTWISE_PPO_BACKEND_H_

#include <vector>

#include "learner/algo/ppo_backend.h"
#include "learner/torch.h"

namespace flotilla {

// A PpoBackend through autograd, which takes a minibatch of more than
// PolicyLoss::max_minibatch steps (0: any) in parts: of at most that many, and of
// whole environments if the network is recurrent.
class PartwisePpoBackend : public PpoBackend {
 public:
  PartwisePpoBackend(const Network* net, const PolicyLoss& loss)
      : net_(net), loss_(loss) {}

  PpoSums Compute(const PpoBatch& batch) final;
  torch::Tensor ComputeLater(const PpoBatch& batch) final;
  void set_loss(const PolicyLoss& loss) final { loss_ = loss; }

 protected:
  // What goes through the network at once.
  struct Part {
    PpoBatch batch;  // its index and columns are the part's
    torch::Tensor
        place;  // [m] int64  where in the whole's index; undefined: all
  };

  // What parts need of the whole batch's advantages; may be undefined.
  virtual torch::Tensor Advantages(const PpoBatch& batch) const = 0;
  // Adds the sum over `part` of the loss's gradient to what is there, and returns
  // what it sums besides: [kSums] float64.
  virtual torch::Tensor Add(const Part& part,
                            const torch::Tensor& advantages) const = 0;

  const Network& net() const { return *net_; }
  const PolicyLoss& loss() const { return loss_; }

 private:
  std::vector<Part> Cut(const PpoBatch& batch) const;

  const Network* const net_;
  PolicyLoss loss_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_PARTWISE_PPO_BACKEND_H_
