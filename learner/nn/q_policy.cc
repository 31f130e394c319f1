#include "learner/nn/q_policy.h"

#include <algorithm>
#include <utility>

#include "learner/nn/input_tensor.h"

namespace flotilla {
namespace {

class FrozenQPolicy : public Policy {
 public:
  FrozenQPolicy(QNetwork net, double epsilon)
      : net_(std::move(net)), policy_(&net_) {
    policy_.set_epsilon(epsilon);
  }

  void Decide(const Observations& seen, bool greedy, Random* rng,
              const DecisionOutput& out) override {
    policy_.Decide(seen, greedy, rng, out);
  }
  void Value(const Observations& seen, float* value) override {
    policy_.Value(seen, value);
  }

 private:
  const QNetwork net_;
  QPolicy policy_;
};

}  // namespace

void QPolicy::Decide(const Observations& seen, bool greedy, Random* rng,
                     const DecisionOutput& out) {
  torch::NoGradGuard no_grad;
  const int64_t A = net_->spaces().actions;
  const torch::Tensor q =
      net_->Forward(ToTensor(seen, net_->spaces(), net_->device()))
          .to(torch::kCPU)
          .contiguous();
  const float* row = q.data_ptr<float>();
  for (int64_t r = 0; r < seen.rows; ++r, row += A) {
    out.discrete[r] = std::max_element(row, row + A) - row;
    if (!greedy && rng->Uniform() < epsilon_) {
      out.discrete[r] = static_cast<int64_t>(rng->Below(A));
    }
  }
  std::fill_n(out.log_prob, seen.rows, 0.0f);
  std::fill_n(out.value, seen.rows, 0.0f);
}

void QPolicy::Value(const Observations& seen, float* value) {
  std::fill_n(value, seen.rows, 0.0f);
}

std::unique_ptr<Policy> MakeFrozenQPolicy(const QNetwork& net, double epsilon) {
  return std::make_unique<FrozenQPolicy>(net.Clone(), epsilon);
}

}  // namespace flotilla
