// MLPs on a device, where their layers are one operator: what the network says and what
// PPO learns from it is what Torch's operators give on the host.

#include <memory>
#include <ostream>
#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/algo/ppo.h"
#include "learner/algo/ppo_backend.h"
#include "learner/device/transfer.h"
#include "learner/nn/network.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/strict.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using rehearsal::Device;

// Two newest steps of a vector, and a mask over 5 and 3 choices.
Spaces MaskedSpaces() {
  v1::EnvSpec spec;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      "observation { path: 'x' dtype: FLOAT32 shape: 3 frame_stack: 2 }"
      "observation { path: 'm' dtype: UINT8 shape: 8 }"
      "action { path: 'a' dtype: INT64 shape: 2 num_values_each: [5, 3] "
      "         mask_path: 'm' }",
      &spec));
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

struct Case {
  std::string name;
  Spaces spaces;
  std::string model;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

v1::ModelConfig Model(const std::string& text) {
  v1::ModelConfig model;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  return model;
}

double Off(const torch::Tensor& got, const torch::Tensor& want) {
  return (ToHost(got) - want).abs().max().item<double>();
}

int64_t Launches() { return rehearsal::ReadCounts().launches; }

class MlpOnDeviceTest : public testing::TestWithParam<Case> {
 protected:
  MlpOnDeviceTest() {
    rehearsal::Register();
    torch::manual_seed(4);
    const v1::ModelConfig model = Model(GetParam().model);
    host_ = MakeNetwork(spaces_, model, torch::kCPU).value();
    host_->Initialize(2);
    {
      torch::NoGradGuard no_grad;
      host_->parameters().add_(0.1 * torch::randn_like(host_->parameters()));
    }
    there_ = MakeNetwork(spaces_, model, Device()).value();
    CopyToDevice(host_->parameters(), there_->parameters());
    rollout_ = RandomRollout(spaces_, kT, kB);
  }

  static constexpr int64_t kT = 12, kB = 6;

  const rehearsal::Strict strict_;
  const Spaces& spaces_ = GetParam().spaces;
  std::unique_ptr<Network> host_, there_;
  Rollout rollout_;
};

TEST_P(MlpOnDeviceTest, ItSaysWhatTheHostSays) {
  ASSERT_TRUE(there_->DeviceShape().has_value());
  EXPECT_FALSE(there_->KernelShape().has_value());
  EXPECT_FALSE(host_->DeviceShape().has_value());
  const Batch seen =
      rollout_.observation.Gather(torch::arange(40, torch::kInt32));
  const Batch seen_there = seen.To(Device());
  const auto copy = there_->Clone();
  for (Network* net : {there_.get(), copy.get()}) {
    torch::NoGradGuard no_grad;
    const NetworkOutput want = host_->Forward(seen);
    rehearsal::ResetCounts();
    const NetworkOutput got = net->Forward(seen_there);
    EXPECT_EQ(Launches(), 1);
    EXPECT_LT(Off(got.policy, want.policy), 1e-5);
    EXPECT_LT(Off(got.value, want.value), 1e-5);
    ASSERT_EQ(got.log_std.defined(), want.log_std.defined());
    if (want.log_std.defined()) {
      EXPECT_EQ(Off(got.log_std, want.log_std), 0);
    }

    // bfloat16 is for images alone.
    net->set_bf16(true);
    EXPECT_TRUE(net->DeviceShape().has_value());
    EXPECT_LT(Off(net->Forward(seen_there).policy, want.policy), 1e-5);
    EXPECT_EQ(Launches(), 2);
  }
  // With gradients it is autograd's.
  const NetworkOutput got = there_->Forward(seen_there);
  EXPECT_TRUE(got.policy.requires_grad() && got.value.requires_grad());
}

TEST_P(MlpOnDeviceTest, ItLearnsWhatTheHostLearns) {
  PolicyLoss loss = PpoLossOf(v1::PpoConfig());
  PpoBatch batch;
  batch.rollout = &rollout_;
  batch.index = torch::randperm(kT * kB).narrow(0, 0, 50).to(torch::kInt32);
  batch.advantage = torch::randn({kT, kB});
  batch.returns = torch::randn({kT, kB});
  batch.clip_ratio = batch.value_clip = 0.2;
  const PpoSums want =
      MakeTorchPpoBackend(host_.get(), spaces_, loss)->Compute(batch);
  const double scale = host_->gradients().abs().max().item<double>();
  ASSERT_GT(scale, 0);

  Rollout resident = MakeRolloutOn(Device(), spaces_, kT, kB, 0);
  Upload(rollout_, &resident);
  PpoBatch there = batch;
  there.rollout = &resident;
  for (torch::Tensor* t : {&there.index, &there.advantage, &there.returns}) {
    *t = ToDevice(*t, Device());
  }
  for (const int64_t most : {0, 17}) {
    loss.max_minibatch = most;
    for (const PpoBatch* of : {&batch, &there}) {
      const PpoSums sums =
          MakeFusedPpoBackend(there_.get(), spaces_, loss)->Compute(*of);
      EXPECT_LT(Off(there_->gradients(), host_->gradients()),
                1e-5 * scale + 1e-5);
      EXPECT_EQ(sums.samples, want.samples);
      EXPECT_EQ(sums.clipped, want.clipped);
      EXPECT_NEAR(sums.policy_loss, want.policy_loss, 1e-3);
      EXPECT_NEAR(sums.value_loss, want.value_loss, 1e-3);
      EXPECT_NEAR(sums.entropy, want.entropy, 1e-3);
      EXPECT_NEAR(sums.approx_kl, want.approx_kl, 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, MlpOnDeviceTest,
    testing::Values(Case{"Apart", VectorSpaces(5, 3), "hidden: [16, 40]"},
                    Case{"Shared", VectorSpaces(5, 3), "share_trunk: true"},
                    Case{"Relu", VectorSpaces(5, 3),
                         "activation: RELU hidden: 33"},
                    Case{"Numbers", ContinuousSpaces(5, 3), "hidden: [16, 16]"},
                    Case{"NumbersShared", ContinuousSpaces(5, 3),
                         "share_trunk: true activation: RELU"},
                    Case{"MaskedStacks", MaskedSpaces(), "hidden: [16, 16]"}),
    [](const auto& info) { return info.param.name; });

TEST(NetworksOnDeviceTest, OthersAreTorchs) {
  rehearsal::Register();
  const auto shape = [](const Spaces& spaces, const std::string& model) {
    return MakeNetwork(spaces, Model(model), Device()).value()->DeviceShape();
  };
  EXPECT_TRUE(shape(VectorSpaces(4, 2), "hidden: 256").has_value());
  EXPECT_FALSE(shape(VectorSpaces(4, 2), "hidden: 257").has_value());
  EXPECT_FALSE(shape(VectorSpaces(4, 2), "recurrent: LSTM").has_value());
  EXPECT_FALSE(shape(FrameSpaces(36, 36, 3), "").has_value());
}

}  // namespace
}  // namespace flotilla
