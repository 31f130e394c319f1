#include "learner/nn/network_check.h"

#include <functional>
#include <memory>
#include <utility>

#include "learner/nn/network.h"
#include "tests/testing/spaces.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::testing::HasSubstr;

// One linear layer, and whatever a test breaks of it.
class Broken : public Network {
 public:
  using Change = std::function<void(NetworkOutput*)>;

  Broken(int64_t inputs, int64_t outputs, Change change = {})
      : inputs_(inputs), outputs_(outputs), change_(std::move(change)) {
    flat_ = FlatParameters((outputs + 1) * inputs, torch::kCPU);
    policy_ = flat_.Take("policy", {outputs, inputs});
    value_ = flat_.Take(same_name ? "policy" : "value", {1, inputs});
    torch::NoGradGuard no_grad;
    flat_.parameters.fill_(0.5);
  }

  NetworkOutput Forward(const Batch& observation,
                        const Sequences& sequences) const override {
    NetworkOutput out;
    const torch::Tensor& x = observation.leaf[0];
    out.policy = torch::linear(x, policy_);
    out.value = torch::linear(x, value_).squeeze(1);
    if (state > 0) out.state = sequences.state;
    if (change_) change_(&out);
    return out;
  }
  void Initialize(uint64_t) override {}
  const FlatParameters& Flat() const override { return empty ? none_ : flat_; }
  std::unique_ptr<Network> Clone() const override {
    if (no_clone) return nullptr;
    auto copy = std::make_unique<Broken>(inputs_, outputs_, change_);
    copy->state = state;
    torch::NoGradGuard no_grad;
    if (!blank_clone) copy->flat_.parameters.copy_(flat_.parameters);
    if (blank_clone) copy->flat_.parameters.zero_();
    return copy;
  }
  int64_t state_size() const override { return state; }

  static inline bool same_name = false;
  bool empty = false, no_clone = false, blank_clone = false;
  int64_t state = 0;

 private:
  const int64_t inputs_, outputs_;
  const Change change_;
  FlatParameters flat_, none_;
  torch::Tensor policy_, value_;
};

absl::Status Check(const Network& net, int64_t outputs = 2) {
  return CheckNetwork(net, VectorSpaces(4, outputs), torch::kCPU);
}

absl::Status CheckChanged(Broken::Change change) {
  return Check(Broken(4, 2, std::move(change)));
}

TEST(NetworkCheckTest, OneThatFitsIsTakenAndItsGradientsAreLeftZero) {
  const Broken net(4, 2);
  EXPECT_OK(Check(net));
  EXPECT_EQ(net.gradients().abs().sum().item<double>(), 0);
  Broken remembers(4, 2);
  remembers.state = 3;
  EXPECT_OK(Check(remembers));
}

TEST(NetworkCheckTest, ShapesAndTypesAreNamed) {
  EXPECT_THAT(Check(Broken(4, 3)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("its policy has shape [1, 3], want [1, 2]: "
                                 "one logit for each of the action's 2")));
  EXPECT_THAT(CheckChanged([](NetworkOutput* out) {
                out->value = out->value.unsqueeze(1);
              }).message(),
              HasSubstr("its value has shape [1, 1], want [1]"));
  EXPECT_THAT(CheckChanged([](NetworkOutput* out) {
                out->value = torch::Tensor();
              }).message(),
              HasSubstr("its value is undefined, want [1]"));
  EXPECT_THAT(CheckChanged([](NetworkOutput* out) {
                out->policy = out->policy.to(torch::kFloat64);
              }).message(),
              HasSubstr("its policy is Double on cpu, want Float on cpu"));
  // Right for one row alone.
  EXPECT_THAT(CheckChanged([](NetworkOutput* out) {
                out->value = out->value.mean().reshape({1});
              }).message(),
              HasSubstr("its value has shape [1], want [2]"));
  EXPECT_THAT(
      CheckNetwork(Broken(4, 1), ContinuousSpaces(4, 1), torch::kCPU).message(),
      HasSubstr("its log_std is undefined, want [1]"));
}

TEST(NetworkCheckTest, AStateOfAnotherSizeIsNamed) {
  Broken remembers(4, 2, [](NetworkOutput* out) {
    out->state = out->state.narrow(1, 0, 2);
  });
  remembers.state = 3;
  EXPECT_THAT(Check(remembers).message(),
              HasSubstr("its state has shape [1, 2], want [1, 3]"));
}

TEST(NetworkCheckTest, CopiesAreCopies) {
  Broken none(4, 2), blank(4, 2);
  none.no_clone = blank.blank_clone = true;
  EXPECT_THAT(Check(none).message(), HasSubstr("its Clone is no copy"));
  EXPECT_THAT(Check(blank).message(), HasSubstr("says something else"));
}

TEST(NetworkCheckTest, ParametersAndTheirGradientsArrive) {
  Broken empty(4, 2);
  empty.empty = true;
  EXPECT_THAT(Check(empty).message(), HasSubstr("it has no parameters"));
  EXPECT_THAT(CheckChanged([](NetworkOutput* out) {
                out->policy = out->policy.detach();
                out->value = out->value.detach();
              }).message(),
              HasSubstr("no gradient flows"));
  EXPECT_THAT(CheckChanged([](NetworkOutput* out) {
                const torch::Tensor own =
                    torch::ones({1}).set_requires_grad(true);
                out->policy = out->policy.detach() * own;
                out->value = out->value.detach() * own;
              }).message(),
              HasSubstr("gradients do not arrive in its FlatParameters"));
  Broken::same_name = true;
  const Broken twice(4, 2);
  Broken::same_name = false;
  EXPECT_THAT(Check(twice).message(),
              HasSubstr("two of its parameters are named \"policy\""));
}

TEST(NetworkCheckTest, WhatItThrowsIsSaid) {
  EXPECT_EQ(CheckChanged([](NetworkOutput*) {
              throw std::runtime_error("no such luck\nand more");
            }).message(),
            "its Forward fails when it is tried: no such luck");
}

}  // namespace
}  // namespace flotilla
