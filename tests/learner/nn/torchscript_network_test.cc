#include "learner/nn/torchscript_network.h"

#include <google/protobuf/text_format.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "learner/nn/actor_critic.h"
#include "learner/nn/policies.h"
#include "tests/testing/spaces.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Tensors = std::vector<std::pair<std::string, torch::Tensor>>;

constexpr char kLinear[] = R"(
  def forward(self, x):
    return torch.linear(x, self.weight), torch.linear(x, self.value)
)";

// Two MLPs, as ActorCritic has them for a vector.
constexpr char kTwoMlps[] = R"(
  def forward(self, x):
    a = torch.tanh(torch.linear(x, self.actor.w0, self.actor.b0))
    a = torch.tanh(torch.linear(a, self.actor.w2, self.actor.b2))
    v = torch.tanh(torch.linear(x, self.critic.w0, self.critic.b0))
    v = torch.tanh(torch.linear(v, self.critic.w2, self.critic.b2))
    return torch.linear(a, self.actor.w4, self.actor.b4), torch.linear(v, self.critic.w4, self.critic.b4)
)";

class TorchScriptNetworkTest : public testing::Test {
 protected:
  TorchScriptNetworkTest() { torch::manual_seed(1); }

  std::string Save(const torch::jit::Module& module) {
    const std::string path = folder_ / "net.pt";
    module.save(path);
    return path;
  }

  // The file of a module of `parameters` and the method `source`.
  std::string Write(const std::string& source, const Tensors& parameters,
                    const Tensors& buffers = {}) {
    torch::jit::Module module("Net");
    for (const auto& [name, value] : parameters) {
      module.register_parameter(name, value, /*is_buffer=*/false);
    }
    for (const auto& [name, value] : buffers) {
      module.register_buffer(name, value);
    }
    if (!source.empty()) module.define(source);
    return Save(module);
  }

  // Of x [N, 4], with `outputs` columns.
  std::string WriteLinear(int64_t outputs) {
    return Write(kLinear, {{"weight", Learned({outputs, 4})},
                           {"value", Learned({1, 4})}});
  }

  static torch::Tensor Learned(std::vector<int64_t> shape) {
    return torch::randn(shape).set_requires_grad(true);
  }

  static torch::Tensor GradientOf(const Network& net, const NamedTensor& t) {
    return net.gradients().narrow(0, t.tensor.storage_offset(),
                                  t.tensor.numel());
  }

  static absl::StatusOr<std::unique_ptr<TorchScriptNetwork>> Make(
      const std::string& path, const Spaces& spaces = VectorSpaces(4, 2)) {
    v1::ModelConfig config;
    config.set_torchscript(path);
    config.set_initial_log_std(-0.5);
    return TorchScriptNetwork::Make(spaces, config, torch::kCPU);
  }

  const TempDir folder_;
};

auto Refused(const std::string& words) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("model.torchscript \""), HasSubstr(words)));
}

// An image, two leaves that are joined, and a mask.
Spaces MixedSpaces() {
  v1::EnvSpec spec;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      "observation { path: 'rgb' dtype: UINT8 shape: [40, 37, 3] frame_stack: "
      "2 } "
      "observation { path: 'a' dtype: FLOAT32 shape: 3 } "
      "observation { path: 'b' dtype: FLOAT32 shape: 2 } "
      "observation { path: 'mask' dtype: UINT8 shape: 5 } "
      "action { dtype: INT64 shape: 2 num_values_each: [2, 3] "
      "         mask_path: 'mask' }",
      &spec));
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

TEST_F(TorchScriptNetworkTest, ItsGradientsAreThoseOfTheSameMathsHere) {
  const Spaces spaces = VectorSpaces(4, 2);
  const auto ours =
      ActorCritic::Make(spaces, v1::ModelConfig(), torch::kCPU).value();
  ours->Initialize(3);
  // Off the nearly uniform policy that initialisation gives.
  ours->parameters().add_(0.1 * torch::randn_like(ours->parameters()));
  torch::jit::Module module("Net");
  for (const std::string part : {"actor", "critic"}) {
    torch::jit::Module mlp(part);
    for (const NamedTensor& t : ours->Named()) {  // "actor.0.weight"
      if (t.name.rfind(part, 0) != 0) continue;
      const std::string layer = t.name.substr(part.size() + 1, 1);
      mlp.register_parameter((t.tensor.dim() == 2 ? "w" : "b") + layer,
                             t.tensor.clone().set_requires_grad(true),
                             /*is_buffer=*/false);
    }
    module.register_module(part, mlp);
  }
  module.define(kTwoMlps);
  ASSERT_OK_AND_ASSIGN(const auto theirs, Make(Save(module), spaces));
  EXPECT_EQ(theirs->num_parameters(), ours->num_parameters());
  EXPECT_EQ(theirs->Named()[0].name, "actor.w0");

  const Batch seen = {{torch::randn({7, 4})}};
  for (Network* net : {static_cast<Network*>(ours.get()),
                       static_cast<Network*>(theirs.get())}) {
    const NetworkOutput out = net->Forward(seen);
    ASSERT_EQ(out.value.sizes(), std::vector<int64_t>{7});
    (out.policy.square().sum() + (out.value - 1).square().sum()).backward();
  }
  std::map<std::string, torch::Tensor> want;
  for (const NamedTensor& t : ours->Named()) {
    const size_t dot = t.name.find('.');
    want[t.name.substr(0, dot + 1) + (t.tensor.dim() == 2 ? "w" : "b") +
         t.name.substr(dot + 1, 1)] = GradientOf(*ours, t);
  }
  for (const NamedTensor& t : theirs->Named()) {
    EXPECT_TRUE(torch::allclose(GradientOf(*theirs, t), want.at(t.name),
                                /*rtol=*/1e-5, /*atol=*/1e-6))
        << t.name;
    EXPECT_GT(want.at(t.name).abs().max().item<float>(), 1e-3);
  }
}

// TorchScript's optimizer would change its mind over them.
TEST_F(TorchScriptNetworkTest, TheFirstCallsRoundAsAllOthers) {
  ASSERT_OK_AND_ASSIGN(
      const auto net,
      Make(Write("def forward(self, x):\n"
                 "  y = torch.tanh(torch.linear(x, self.w) * 1.7 + 0.3)\n"
                 "  y = torch.sigmoid(y * y - y) / (y.abs() + 0.1)\n"
                 "  return y, torch.layer_norm(y, [2])[:, 0]\n",
                 {{"w", Learned({2, 4})}})));
  const Batch seen = {{torch::randn({64, 4})}};
  std::vector<torch::Tensor> policies, gradients;
  for (int call = 0; call < 6; ++call) {
    const auto copy = call == 5 ? net->Clone() : nullptr;
    const Network& some = copy ? *copy : *net;
    some.gradients().zero_();
    const NetworkOutput out = some.Forward(seen);
    (out.policy.square().sum() + out.value.sum()).backward();
    policies.push_back(out.policy.detach().clone());
    gradients.push_back(some.gradients().clone());
    EXPECT_TRUE(torch::equal(policies[call], policies[0])) << call;
    EXPECT_TRUE(torch::equal(gradients[call], gradients[0])) << call;
  }
}

TEST_F(TorchScriptNetworkTest, AStepIsOnePassOverTheFlatBuffer) {
  ASSERT_OK_AND_ASSIGN(const auto net, Make(WriteLinear(2)));
  const Batch ones = {{torch::ones({3, 4})}};
  net->parameters().zero_();
  torch::NoGradGuard no_grad;
  EXPECT_EQ(net->Forward(ones).policy.abs().sum().item<float>(), 0);
  net->parameters().add_(1);
  EXPECT_EQ(net->Forward(ones).policy.min().item<float>(), 4);
  // Each learned tensor is a leaf whose gradient lies in the flat one.
  for (const torch::Tensor& leaf : net->Flat().leaf) {
    EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad());
    EXPECT_TRUE(leaf.grad().is_alias_of(net->gradients()));
    EXPECT_TRUE(leaf.is_alias_of(net->parameters()));
  }
}

TEST_F(TorchScriptNetworkTest, TheFilesWeightsAreTheFirst) {
  const torch::Tensor weight = Learned({2, 4});
  ASSERT_OK_AND_ASSIGN(
      const auto net,
      Make(Write(kLinear, {{"weight", weight}, {"value", Learned({1, 4})}})));
  net->Initialize(1);
  EXPECT_EQ(net->Named()[0].name, "weight");
  EXPECT_TRUE(torch::equal(net->Named()[0].tensor, weight));
  net->Initialize(2);
  EXPECT_TRUE(torch::equal(net->Named()[0].tensor, weight));
}

TEST_F(TorchScriptNetworkTest, ACloneHasWeightsOfItsOwnAndNeedsNoFile) {
  const std::string path = WriteLinear(2);
  ASSERT_OK_AND_ASSIGN(const auto net, Make(path));
  net->parameters().add_(0.5);
  std::filesystem::remove(path);
  const auto copy = net->Clone();
  EXPECT_TRUE(torch::equal(copy->parameters(), net->parameters()));
  const Batch seen = {{torch::randn({3, 4})}};
  const torch::Tensor before = copy->Forward(seen).policy.detach().clone();
  net->parameters().add_(1);
  EXPECT_TRUE(torch::equal(copy->Forward(seen).policy.detach(), before));
  EXPECT_FALSE(torch::equal(net->Forward(seen).policy.detach(), before));
  // Its backward pass, too, is its own.
  net->gradients().zero_();
  copy->Forward(seen).policy.sum().backward();
  EXPECT_EQ(net->gradients().abs().sum().item<float>(), 0);
  EXPECT_GT(copy->gradients().abs().sum().item<float>(), 0);
}

TEST_F(TorchScriptNetworkTest, SeveralLeavesComeByPathAndMasksDoNot) {
  const Spaces spaces = MixedSpaces();
  ASSERT_OK_AND_ASSIGN(const auto net,
                       Make(Write(R"(
        def forward(self, seen: Dict[str, Tensor]):
          rgb = seen["rgb"]
          assert rgb.dtype == 0 and len(seen) == 2
          assert rgb.shape[1:] == [2, 40, 37, 3]
          pixels = rgb.to(6).flatten(1).mean(1, True) / 255
          x = torch.cat([seen["vector"], pixels], 1)
          return torch.linear(x, self.weight), x.sum(1)
      )",
                                  {{"weight", Learned({5, 6})}}),
                            spaces));
  Batch seen;
  for (const LeafSpec& leaf : spaces.observation) {
    seen.leaf.push_back(
        torch::ones(BatchShape(leaf, 3), TorchType(leaf.dtype)));
  }
  const NetworkOutput out = net->Forward(seen);
  EXPECT_EQ(out.policy.sizes(), (std::vector<int64_t>{3, 5}));
  EXPECT_NEAR(out.value[0].item<float>(), 5 + 1 / 255.0, 1e-5);
}

TEST_F(TorchScriptNetworkTest, WithoutALogStdThereIsOneToLearn) {
  const Spaces spaces = ContinuousSpaces(4, 2);
  ASSERT_OK_AND_ASSIGN(const auto net, Make(WriteLinear(2), spaces));
  EXPECT_EQ(net->num_parameters(), 8 + 4 + 2);
  EXPECT_EQ(net->Named().back().name, "actor_logstd");
  const Batch seen = {{torch::randn({3, 4})}};
  const NetworkOutput out = net->Forward(seen);
  EXPECT_EQ(out.log_std.sizes(), std::vector<int64_t>{2});
  EXPECT_FLOAT_EQ(out.log_std[0].item<float>(), -0.5);
  out.log_std.sum().backward();
  EXPECT_FLOAT_EQ(net->gradients()[-1].item<float>(), 1);
  EXPECT_EQ(net->Clone()->Named().back().name, "actor_logstd");
}

TEST_F(TorchScriptNetworkTest, ALogStdOfItsOwnMayDependOnTheObservation) {
  const Spaces spaces = ContinuousSpaces(4, 2);
  for (const auto& [log_std, shape] :
       {std::pair<std::string, std::vector<int64_t>>{"self.log_std", {2}},
        {"self.log_std.unsqueeze(0)", {2}},
        {"y * self.log_std", {3, 2}}}) {
    ASSERT_OK_AND_ASSIGN(
        const auto net,
        Make(Write("def forward(self, x):\n"
                   "  y = torch.linear(x, self.weight)\n"
                   "  return y, y.sum(1), " +
                       log_std + "\n",
                   {{"weight", Learned({2, 4})}, {"log_std", Learned({2})}}),
             spaces));
    EXPECT_EQ(net->num_parameters(), 10);
    EXPECT_EQ(net->Forward({{torch::randn({3, 4})}}).log_std.sizes(), shape)
        << log_std;
  }
}

TEST_F(TorchScriptNetworkTest, APolicyActsWithIt) {
  ASSERT_OK_AND_ASSIGN(const auto net, Make(WriteLinear(2)));
  EXPECT_FALSE(net->KernelShape().has_value());
  const auto policy = MakeFrozenPolicy(*net, VectorSpaces(4, 2));
  torch::Tensor seen = torch::randn({5, 4});
  const void* leaf = seen.data_ptr();
  std::vector<int64_t> action(5);
  std::vector<float> log_prob(5), value(5);
  Draws draws(1);
  policy->Decide({.leaf = &leaf, .rows = 5}, /*greedy=*/true, &draws,
                 {.discrete = action.data(),
                  .log_prob = log_prob.data(),
                  .value = value.data()});
  const NetworkOutput out = net->Forward({{seen}});
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(action[i], out.policy.argmax(1)[i].item<int64_t>());
    EXPECT_FLOAT_EQ(value[i], out.value[i].item<float>());
  }
}

TEST_F(TorchScriptNetworkTest, AParameterWithTwoNamesIsLearnedOnce) {
  const torch::Tensor shared = Learned({4, 4});
  torch::jit::Module module("Net");
  for (const std::string name : {"a", "b"}) {
    torch::jit::Module part(name);
    part.register_parameter("weight", shared, /*is_buffer=*/false);
    module.register_module(name, part);
  }
  module.register_parameter("c", shared, /*is_buffer=*/false);
  module.define(
      "def forward(self, x):\n"
      "  y = torch.linear(torch.linear(x, self.a.weight), self.b.weight)\n"
      "  y = torch.linear(y, self.c)\n"
      "  return y[:, :2], y[:, 2]\n");
  ASSERT_OK_AND_ASSIGN(const auto net, Make(Save(module)));
  EXPECT_EQ(net->num_parameters(), 16);
  const Batch seen = {{torch::randn({3, 4})}};
  const torch::Tensor w = shared.detach().clone().set_requires_grad(true);
  const torch::Tensor y =
      torch::linear(torch::linear(torch::linear(seen.leaf[0], w), w), w);
  y.narrow(1, 0, 2).sum().backward();
  for (int i = 0; i < 2; ++i) {
    const auto some = net->Clone();
    some->Forward(seen).policy.sum().backward();
    EXPECT_TRUE(torch::allclose(some->gradients().view({4, 4}), w.grad()));
  }
}

TEST_F(TorchScriptNetworkTest, WhatDoesNotLearnStaysAsItIs) {
  ASSERT_OK_AND_ASSIGN(
      const auto net,
      Make(Write("def forward(self, x):\n"
                 "  y = torch.linear(x * self.scale, self.fixed)\n"
                 "  y = torch.linear(y, self.weight)\n"
                 "  return y, y.sum(1)\n",
                 {{"fixed", torch::eye(4)}, {"weight", Learned({2, 4})}},
                 {{"scale", torch::full({1}, 0.1)}})));
  EXPECT_EQ(net->num_parameters(), 8);
  ASSERT_EQ(net->Named().size(), 1);
  EXPECT_EQ(net->Named()[0].name, "weight");
  net->Forward({{torch::randn({3, 4})}}).policy.sum().backward();
  EXPECT_GT(net->gradients().abs().sum().item<float>(), 0);
}

TEST_F(TorchScriptNetworkTest, DropoutDoesNothingForItActsAndLearnsAlike) {
  torch::jit::Module module("Net");
  module.register_parameter("weight", Learned({2, 4}), /*is_buffer=*/false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define(
      "def forward(self, x):\n"
      "  y = torch.dropout(torch.linear(x, self.weight), 0.5, self.training)\n"
      "  return y, y.sum(1)\n");
  ASSERT_OK_AND_ASSIGN(const auto net, Make(Save(module)));
  const Batch seen = {{torch::randn({64, 4})}};
  EXPECT_TRUE(
      torch::equal(net->Forward(seen).policy, net->Forward(seen).policy));
  EXPECT_TRUE(torch::equal(net->Forward(seen).policy,
                           net->Clone()->Forward(seen).policy));
}

TEST_F(TorchScriptNetworkTest, AFileThatIsNoneIsNamed) {
  EXPECT_THAT(Make(folder_ / "missing.pt"),
              Refused("missing.pt\" cannot be read"));
  const std::string path = folder_ / "text.pt";
  WriteFile(path, "state_dict\n");
  EXPECT_THAT(Make(path), Refused("is no TorchScript that LibTorch 2."));
  EXPECT_THAT(Make(path), Refused("torch.jit.script(module).save(...)"));
  const std::string whole = ReadFile(WriteLinear(2));
  WriteFile(path, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(Make(path), Refused("is no TorchScript"));
}

TEST_F(TorchScriptNetworkTest, WrongShapesAndTypesAreNamedWithWhatIsWanted) {
  EXPECT_THAT(Make(WriteLinear(3), VectorSpaces(4, 6)),
              Refused("its policy has shape [1, 3], want [1, 6]: one logit for "
                      "each of the action's 6 values"));
  EXPECT_THAT(Make(WriteLinear(3), ContinuousSpaces(4, 2)),
              Refused("want [1, 2]: one mean for each of the action's 2 "
                      "continuous values"));
  EXPECT_THAT(Make(WriteLinear(2), VectorSpaces(5, 2)),
              Refused("its forward fails on zeros (the observation float32 "
                      "[1, 5]): "));
  const Tensors weight = {{"w", Learned({2, 4})}};
  const std::string y =
      "def forward(self, x):\n  y = torch.linear(x, self.w)\n";
  const std::pair<std::string, std::string> bad[] = {
      {"return y, y", "its value has shape [1, 2], want [1] or [1, 1]"},
      {"return y, y.to(7).sum(1)", "its value is float64, want float32"},
      {"return y, 1.0", "its value is float, want a Tensor"},
      {"return y", "its forward returns Tensor, want a tuple (policy, value)"},
      {"return y, y.sum(1), y", "returns 3 outputs, want (policy, value)"},
      {"return y[:1], y[:1].sum(1)",
       "its policy has shape [1, 2], want [2, 2]"},
      {"x /= 2\n  return y, y.sum(1)", "writes into the observation"}};
  for (const auto& [last, problem] : bad) {
    EXPECT_THAT(Make(Write(y + "  " + last + "\n", weight)), Refused(problem))
        << last;
  }
  EXPECT_THAT(Make(Write(y + "  return y, y.sum(1), y.sum(1)\n", weight),
                   ContinuousSpaces(4, 2)),
              Refused("its log_std has shape [1], want [2] or [1, 2]"));
}

TEST_F(TorchScriptNetworkTest, ModulesThatCannotBeTrainedAreRefused) {
  EXPECT_THAT(Make(Write("", {{"w", Learned({2, 4})}})),
              Refused("no method forward"));
  EXPECT_THAT(Make(Write(kLinear, {{"weight", torch::randn({2, 4})},
                                   {"value", torch::randn({1, 4})}})),
              Refused("no parameter that requires a gradient"));
  const Tensors doubles = {
      {"w", torch::randn({2, 4}, torch::kFloat64).set_requires_grad(true)}};
  EXPECT_THAT(
      Make(Write("def forward(self, x):\n"
                 "  y = torch.linear(x, self.w.to(6))\n  return y, y.sum(1)\n",
                 doubles)),
      Refused("its parameter \"w\" is float64, want float32"));
  EXPECT_THAT(Make(Write("def forward(self, x, state):\n"
                         "  y = torch.linear(x, self.w)\n"
                         "  return y, y.sum(1), state\n",
                         {{"w", Learned({2, 4})}})),
              Refused("takes (x, state), want one argument, the observation; "
                      "modules with a recurrent state are not supported yet"));
  EXPECT_THAT(
      Make(Write("def forward(self, x):\n"
                 "  self.state.copy_(x[0])\n"
                 "  y = torch.linear(x, self.w)\n"
                 "  return y, y.sum(1)\n",
                 {{"w", Learned({2, 4})}}, {{"state", torch::zeros({4})}})),
      Refused("changes its tensor \"state\""));
  EXPECT_THAT(
      Make(WriteLinear(5), MixedSpaces()),
      Refused("takes Tensor, but the observation is a Dict[str, Tensor], "
              "\"vector\": float32 [1, 5], \"rgb\": uint8 [1, 2, 40, 37, 3]"));
  EXPECT_THAT(Make(Write("def forward(self, x: Dict[str, Tensor]):\n"
                         "  return x[\"\"], self.w\n",
                         {{"w", Learned({2, 4})}})),
              Refused("but the observation is a Tensor, float32 [1, 4]"));
  EXPECT_THAT(Make(Write("def forward(self, x):\n"
                         "  y = torch.linear(x, self.actor_logstd)\n"
                         "  return y, y.sum(1)\n",
                         {{"actor_logstd", Learned({2, 4})}}),
                   ContinuousSpaces(4, 2)),
              Refused("return it as the third output"));
}

TEST_F(TorchScriptNetworkTest, TheConfigurationChoosesIt) {
  v1::ModelConfig config;
  config.set_torchscript(WriteLinear(2));
  ASSERT_OK_AND_ASSIGN(const auto net,
                       MakeNetwork(VectorSpaces(4, 2), config, torch::kCPU));
  EXPECT_EQ(net->num_parameters(), 12);
}

}  // namespace
}  // namespace flotilla
