// A gradient step of PPO on a device as one graph: recorded once, it learns from
// whatever minibatch is written where the first one was.

#include <memory>

#include "gtest/gtest.h"
#include "learner/algo/gradient_step.h"
#include "learner/algo/ppo.h"
#include "learner/algo/ppo_backend.h"
#include "learner/collective/solo_collective.h"
#include "learner/device/transfer.h"
#include "learner/nn/network.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/strict.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using rehearsal::Device;

constexpr int64_t kT = 8, kB = 4, kM = 16;

// All that a gradient step reads and writes, at fixed addresses.
class Learner {
 public:
  Learner() {
    v1::ModelConfig model;
    model.add_hidden(16);
    for (int i = 0; i < 3; ++i) model.add_conv_channels(4);
    net_ = MakeNetwork(spaces_, model, Device()).value();
    net_->Initialize(2);
    backend_ =
        MakeFusedPpoBackend(net_.get(), spaces_, PpoLossOf(v1::PpoConfig()));
    step_ = std::make_unique<GradientStep>(net_->Flat(), v1::OptimizerConfig());
    torch::manual_seed(4);
    const Rollout host = RandomRollout(spaces_, kT, kB);
    rollout_ = MakeRolloutOn(Device(), spaces_, kT, kB, /*state_size=*/0);
    Upload(host, &rollout_);
    batch_.rollout = &rollout_;
    batch_.index =
        torch::zeros({kM}, torch::dtype(torch::kInt32).device(Device()));
    batch_.advantage = ToDevice(torch::randn({kT, kB}), Device());
    batch_.returns = ToDevice(torch::randn({kT, kB}), Device());
    batch_.clip_ratio = batch_.value_clip = 0.2;
    sums_ = torch::zeros({PpoBackend::kSums},
                         torch::dtype(torch::kFloat64).device(Device()));
    step_->Begin();
  }

  void Feed(const torch::Tensor& index) { CopyToDevice(index, batch_.index); }
  void Step() {
    const torch::Tensor losses = backend_->ComputeLater(batch_);
    sums_.add_(losses);
    CHECK(step_->ApplyLater(&alone_, kM, losses.narrow(0, 4, 1), 1e-3).ok());
  }
  torch::Tensor Weights() { return ToHost(net_->parameters()).clone(); }
  torch::Tensor Sums() { return ToHost(sums_).clone(); }
  GradientStep::Result Outcome() {
    const torch::Tensor outcome = ToHost(step_->Outcome());
    return step_->Finish(outcome.data_ptr<double>()).value();
  }

 private:
  const Spaces spaces_ = FrameSpaces(36, 36, 3);
  SoloCollective alone_;
  std::unique_ptr<Network> net_;
  std::unique_ptr<PpoBackend> backend_;
  std::unique_ptr<GradientStep> step_;
  Rollout rollout_;
  PpoBatch batch_;
  torch::Tensor sums_;
};

TEST(MinibatchGraphTest, IsOneReplay) {
  rehearsal::Register();
  const rehearsal::Strict strict;
  Learner eager, captured;
  rehearsal::Graph graph;
  for (int i = 0; i < 5; ++i) {
    const torch::Tensor index =
        torch::randperm(kT * kB).narrow(0, 0, kM).to(torch::kInt32);
    eager.Feed(index);
    captured.Feed(index);
    eager.Step();
    rehearsal::ResetCounts();
    if (i == 0) {
      const rehearsal::Graph::Capture capture(&graph);
      captured.Step();
    } else {
      graph.Replay();
      EXPECT_EQ(rehearsal::ReadCounts().launches, 1);
    }
    EXPECT_EQ(rehearsal::ReadCounts().HostWaits(), 0);
    EXPECT_TRUE(torch::equal(captured.Weights(), eager.Weights())) << i;
    EXPECT_TRUE(torch::equal(captured.Sums(), eager.Sums())) << i;
  }
  // The step count is the device's, and so is the correction of bias.
  EXPECT_EQ(captured.Outcome().grad_norm, eager.Outcome().grad_norm);
}

}  // namespace
}  // namespace flotilla
