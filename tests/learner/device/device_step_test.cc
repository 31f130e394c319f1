// Gradient steps on a device, of which the host learns nothing until it asks.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/algo/gradient_step.h"
#include "learner/collective/solo_collective.h"
#include "learner/device/transfer.h"
#include "learner/nn/network.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/strict.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using rehearsal::Device;
using testing::HasSubstr;

// A group of one: what is summed travels behind the gradients.
class Group : public SoloCollective {
 public:
  bool has_group() const override { return true; }
};

struct Learner {
  Learner(torch::Device device, const v1::OptimizerConfig& config)
      : net(MakeNetwork(VectorSpaces(4, 2), Small(), device).value()),
        step(net->Flat(), config) {
    net->Initialize(1);
  }
  static v1::ModelConfig Small() {
    v1::ModelConfig model;
    model.add_hidden(16);
    return model;
  }
  torch::Tensor Weights() const { return ToHost(net->parameters()).clone(); }

  std::unique_ptr<Network> net;
  GradientStep step;
};

class DeviceStepTest : public testing::TestWithParam<v1::Optimizer> {
 protected:
  DeviceStepTest() {
    rehearsal::Register();
    config_.set_type(GetParam());
    torch::manual_seed(5);
  }

  GradientStep::Result Ask(GradientStep* step) {
    const torch::Tensor outcome = ToHost(step->Outcome());
    const auto result = step->Finish(outcome.data_ptr<double>());
    CHECK(result.ok()) << result.status();
    return *result;
  }

  v1::OptimizerConfig config_;
  const rehearsal::Strict strict_;
};

TEST_P(DeviceStepTest, IsTheStepOfTheHost) {
  for (const bool grouped : {false, true}) {
    SoloCollective solo;
    Group group;
    Collective* const collective =
        grouped ? static_cast<Collective*>(&group) : &solo;
    Learner host(torch::kCPU, config_), there(Device(), config_);
    const torch::Tensor extra = torch::full({1}, 3.0f, Device());
    for (int update = 0; update < 3; ++update) {
      double norms = 0;
      there.step.Begin();
      for (int i = 0; i < 4; ++i) {
        const double samples = i == 2 ? 0 : 64;  // nobody had one
        const torch::Tensor sum = torch::randn_like(host.net->parameters()) *
                                  (i + 1.0) * (samples > 0 ? 1 : 0);
        host.net->gradients().copy_(sum);
        const auto applied = host.step.Apply(collective, samples, 3, 1e-3);
        ASSERT_TRUE(applied.ok()) << applied.status();
        norms += applied->grad_norm;
        const torch::Tensor sum_there = ToDevice(sum, Device());
        const rehearsal::NoHostWait nobody_waits;
        there.net->gradients().copy_(sum_there);
        ASSERT_TRUE(
            there.step.ApplyLater(collective, samples, extra, 1e-3).ok());
      }
      const GradientStep::Result asked = Ask(&there.step);
      EXPECT_NEAR(asked.grad_norm, norms, 1e-4 * norms);
      EXPECT_EQ(asked.samples, 64);
      EXPECT_EQ(asked.extra, 3);
      EXPECT_EQ(there.step.count(), host.step.count());
      EXPECT_LT((there.Weights() - host.Weights()).abs().max().item<double>(),
                1e-5);
    }
  }
}

TEST_P(DeviceStepTest, WhatIsNotFiniteChangesNothingFromThereOn) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    SoloCollective alone;
    Learner there(Device(), config_);
    const torch::Tensor extra = torch::zeros({1}, Device());
    const auto apply = [&](double value) {
      there.net->gradients().fill_(0.1);
      there.net->gradients().narrow(0, 7, 1).fill_(value);
      ASSERT_TRUE(there.step.ApplyLater(&alone, 8, extra, 1e-3).ok());
    };
    there.step.Begin();
    apply(1);
    const torch::Tensor before = there.Weights();
    std::vector<torch::Tensor> state;
    for (const NamedTensor& t : there.step.State()) {
      state.push_back(ToHost(t.tensor).clone());
    }
    apply(bad);
    apply(1);
    const torch::Tensor outcome = ToHost(there.step.Outcome());
    const auto result = there.step.Finish(outcome.data_ptr<double>());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("the gradient is not finite"));
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("after 1 gradient steps"));
    EXPECT_TRUE(torch::equal(there.Weights(), before));
    const std::vector<NamedTensor> after = there.step.State();
    for (size_t i = 0; i + 1 < after.size(); ++i) {
      EXPECT_TRUE(torch::equal(ToHost(after[i].tensor), state[i]))
          << after[i].name;
    }
    // The next update begins anew.
    there.step.Begin();
    apply(1);
    Ask(&there.step);
    EXPECT_FALSE(torch::equal(there.Weights(), before));
  }
}

// `flotilla set optimizer.max_grad_norm` reaches the device too.
TEST_P(DeviceStepTest, ANewConfigurationCounts) {
  SoloCollective alone;
  Learner host(torch::kCPU, config_), there(Device(), config_);
  config_.set_max_grad_norm(0.01f);
  const torch::Tensor extra = torch::zeros({1}, Device());
  for (GradientStep* step : {&host.step, &there.step}) {
    step->Reconfigure(config_);
  }
  for (Learner* learner : {&host, &there}) {
    learner->net->gradients().copy_(
        torch::linspace(-1, 1, host.net->num_parameters()));
  }
  there.step.Begin();
  ASSERT_TRUE(host.step.Apply(&alone, 4, 0, 1e-3).ok());
  ASSERT_TRUE(there.step.ApplyLater(&alone, 4, extra, 1e-3).ok());
  Ask(&there.step);
  for (size_t i = 0; i + 1 < host.step.State().size(); ++i) {
    EXPECT_TRUE(torch::allclose(ToHost(there.step.State()[i].tensor),
                                host.step.State()[i].tensor, 1e-4, 1e-12))
        << host.step.State()[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, DeviceStepTest,
                         testing::Values(v1::ADAM, v1::RMSPROP, v1::MUON),
                         [](const auto& info) {
                           return v1::Optimizer_Name(info.param);
                         });

}  // namespace
}  // namespace flotilla
