// Experience on a device: what is there is what the host has, each observation has
// crossed once, and what is computed of it is what the host computes.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "learner/actor/resident_actor.h"
#include "learner/algo/advantages.h"
#include "learner/algo/algorithm.h"
#include "learner/device/transfer.h"
#include "learner/nn/action_head.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/strict.h"
#include "tests/testing/bounded_spaces.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

using rehearsal::Device;
using rehearsal::ReadCounts;

constexpr int64_t kT = 9, kB = 4;
// Of a decision's message: where it is of, its seed and place, how often it explores.
constexpr int64_t kHeader = 4 * 8;

// Its copies are late, and its memory is NaN until somebody writes it.
class ResidentRolloutTest : public testing::Test {
 protected:
  ResidentRolloutTest() {
    rehearsal::Register();
    torch::manual_seed(3);
  }

  const rehearsal::Strict strict_;
};

// Ages that a rollout may have: a step's episode began then, or is a step older.
void SetAges(const Spaces& spaces, ObservationStore* store) {
  std::vector<uint8_t> ended(kB);
  store->Restart(0, 0, kB);
  for (int64_t t = 1; t < store->steps(); ++t) {
    for (int64_t b = 0; b < kB; ++b) ended[b] = (t + b) % 5 == 0;
    store->Continue(t, 0, kB, ended.data());
  }
  CHECK_GT(spaces.max_stack(), 1);
}

// Where a device's store first shows something else than the host's; "" if
// nowhere. Blocks.
std::string FirstDifference(const ObservationStore& host,
                            const ObservationStore& there) {
  for (int64_t t = 0; t < host.steps(); ++t) {
    for (int64_t b = 0; b < host.rows(); ++b) {
      const torch::Tensor one =
          torch::tensor({t * host.rows() + b}, torch::kInt32);
      const Batch want = host.Gather(one);
      const Batch got = there.Gather(ToDevice(one, Device()), Device());
      for (size_t i = 0; i < want.leaf.size(); ++i) {
        if (!torch::equal(ToHost(got.leaf[i]), want.leaf[i])) {
          return absl::StrCat("leaf ", i, " of row ", b, " at step ", t);
        }
      }
    }
  }
  return "";
}

TEST_F(ResidentRolloutTest, ShowsWhatTheHostShows) {
  const Spaces spaces = FrameSpaces(5, 4, 3);
  Rollout host = RandomRollout(spaces, kT, kB);
  SetAges(spaces, &host.observation);
  Rollout there = MakeRolloutOn(Device(), spaces, kT, kB, /*state_size=*/0);
  Upload(host, &there);
  EXPECT_EQ(FirstDifference(host.observation, there.observation), "");
  EXPECT_TRUE(torch::equal(ToHost(there.reward), host.reward));
  EXPECT_TRUE(
      torch::equal(ToHost(there.action.discrete), host.action.discrete));
  EXPECT_TRUE(torch::equal(ToHost(Starts(there)), Starts(host)));
}

// As an actor leaves it there: each step in one message.
class StepByStepTest : public ResidentRolloutTest {
 protected:
  StepByStepTest()
      : host_(RandomRollout(spaces_, kT, kB)),
        there_(ObservationStore::OnDevice(spaces_, kT + 1, kB, Device())) {
    SetAges(spaces_, &host_.observation);
    // What lies ahead of the first step comes from the rollout before.
    for (int64_t ahead = 0; ahead < 3; ++ahead) {
      CopyToDevice(host_.observation.leaf(0)[ahead], there_.leaf(0)[ahead]);
    }
  }

  void Send(int64_t t, int64_t first, int64_t rows) {
    const torch::Tensor message =
        Staging({host_.observation.StepBytes(rows)}, torch::kUInt8, Device());
    host_.observation.PackStep(t, first, rows,
                               static_cast<uint8_t*>(message.data_ptr()));
    there_.UnpackStep(RowsAt(t, first, rows), ToDevice(message, Device()));
  }
  static torch::Tensor RowsAt(int64_t t, int64_t first, int64_t rows) {
    const int64_t begin = t * kB + first;
    return torch::arange(begin, begin + rows,
                         torch::dtype(torch::kInt64).device(Device()));
  }

  const Spaces spaces_ = FrameSpaces(5, 4, 3);
  Rollout host_;
  ObservationStore there_;
};

TEST_F(StepByStepTest, ShowsWhatTheHostShows) {
  for (int64_t t = 0; t <= kT; ++t) {
    for (const int64_t first : {0, 2}) {
      const rehearsal::NoHostWait nobody_waits;
      Send(t, first, 2);
    }
    const Batch shown = there_.Show(RowsAt(t, 1, 3));
    const torch::Tensor index =
        torch::arange(t * kB + 1, t * kB + 4, torch::kInt32);
    EXPECT_TRUE(torch::equal(ToHost(shown.leaf[0]),
                             host_.observation.Gather(index).leaf[0]))
        << t;
  }
  there_.Settle();
  EXPECT_EQ(FirstDifference(host_.observation, there_), "");
}

TEST_F(StepByStepTest, AStaleFrameIsNamed) {
  for (int64_t t = 0; t <= kT; ++t) {
    if (t != 4) Send(t, 0, kB);
  }
  Send(4, 0, 2);  // rows 2 and 3 still show what was there before
  there_.Settle();
  EXPECT_EQ(FirstDifference(host_.observation, there_),
            "leaf 0 of row 2 at step 4");
}

TEST_F(StepByStepTest, FinalObservationsFollowTheFramesBefore) {
  for (int64_t t = 0; t <= kT; ++t) Send(t, 0, kB);
  const int64_t bytes = host_.observation.row_bytes();
  const std::vector<int32_t> at = {1 * kB + 3, 6 * kB + 1};
  const torch::Tensor rows =
      torch::randint(0, 256, {2, bytes}, torch::kInt64).to(torch::kUInt8);
  Batch want = host_.observation.EmptyBatch(2);
  for (int64_t i = 0; i < 2; ++i) {
    host_.observation.CopyFinal(at[i] / kB, at[i] % kB,
                                rows[i].data_ptr<uint8_t>(), i, &want);
  }
  const Batch got =
      there_.ShowFinal(ToDevice(torch::tensor(at, torch::kInt32), Device()),
                       ToDevice(rows, Device()));
  EXPECT_TRUE(torch::equal(ToHost(got.leaf[0]), want.leaf[0]));
}

// Where nothing is valid nothing is read, on the device either.
Rollout WithGaps(int64_t length) {
  Rollout r = RandomRollout(VectorSpaces(2, 2), length, kB);
  for (int64_t t = 0; t < length; ++t) {
    if (t % 4 != 2) continue;
    const int64_t b = t % kB;
    r.valid[t][b] = 0;
    r.reward[t][b] = r.log_prob[t][b] = r.bootstrap_value[t][b] =
        std::numeric_limits<float>::quiet_NaN();
  }
  return r;
}

TEST_F(ResidentRolloutTest, AdvantagesAreTheKernels) {
  for (const int64_t T : {1, 2, 7, 64, 129}) {
    const Rollout host = WithGaps(T);
    Rollout there = MakeRolloutOn(Device(), VectorSpaces(2, 2), T, kB, 0);
    Upload(host, &there);
    const auto make = [&](torch::Device device) {
      return torch::empty({T, kB}, device);
    };
    torch::Tensor want[2] = {make(torch::kCPU), make(torch::kCPU)};
    torch::Tensor got[2] = {make(Device()), make(Device())};
    const auto expect_alike = [&](const std::string& what) {
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(torch::allclose(ToHost(got[i]), want[i], 1e-6, 2e-6))
            << what << " " << i << " of " << T << " steps";
      }
    };
    EstimateGae(host, host.terminated, {}, &want[0], &want[1]);
    {
      const rehearsal::NoHostWait nobody_waits;
      EstimateGae(there, there.terminated, {}, &got[0], &got[1]);
    }
    expect_alike("gae");
    const torch::Tensor value = torch::randn({T + 1, kB});
    const torch::Tensor log_prob = torch::randn({T, kB}) * 0.3 - 1;
    const VtraceNumbers numbers = {.lambda = 0.9, .c_clip = 0.9};
    EstimateVtrace(host, value, log_prob, host.terminated, numbers, &want[0],
                   &want[1]);
    const torch::Tensor value_there = ToDevice(value, Device());
    const torch::Tensor log_prob_there = ToDevice(log_prob, Device());
    {
      const rehearsal::NoHostWait nobody_waits;
      EstimateVtrace(there, value_there, log_prob_there, there.terminated,
                     numbers, &got[0], &got[1]);
    }
    expect_alike("v-trace");
  }
}

// Of one seed the device draws what the host draws.
TEST_F(ResidentRolloutTest, ActionsAreTheHosts) {
  ActionSpace space = VectorSpaces(2, 2).action;
  space.num_values = {5, 3};
  space.continuous = 2;
  const ActionHead head(space, Device());
  const int64_t R = 500, L = 8, A = 2;
  const torch::Tensor outputs = torch::randn({R, L + A}) * 2;
  const torch::Tensor log_std = torch::randn({A}) * 0.3;
  torch::Tensor mask = (torch::rand({R, L}) < 0.5).to(torch::kUInt8);
  mask[0].zero_();  // a lost row
  for (const bool masked : {false, true}) {
    Draws draws(5), twin(5);
    torch::Tensor discrete = torch::empty({R, 2}, torch::kInt64);
    torch::Tensor continuous = torch::empty({R, A}),
                  log_prob = torch::empty({R});
    DecisionOutput out;
    out.discrete = discrete.data_ptr<int64_t>();
    out.continuous = continuous.data_ptr<float>();
    out.log_prob = log_prob.data_ptr<float>();
    head.Sample(outputs.data_ptr<float>(), log_std.data_ptr<float>(),
                /*per_row=*/false, masked ? mask.data_ptr<uint8_t>() : nullptr,
                R,
                /*greedy=*/false, &draws, out);
    const torch::Tensor stream =
        torch::tensor(at::IntArrayRef(twin.Take(R * (2 + A))));
    EXPECT_EQ(twin.place(), draws.place());
    rehearsal::ResetCounts();
    const auto [action, log_prob_there] = head.SampleOnDevice(
        ToDevice(outputs, Device()), ToDevice(log_std, Device()),
        masked ? ToDevice(mask, Device()) : torch::Tensor(),
        ToDevice(stream, Device()));
    EXPECT_EQ(ReadCounts().launches, 1);
    EXPECT_TRUE(torch::equal(ToHost(action.discrete), discrete));
    EXPECT_TRUE(
        torch::allclose(ToHost(action.continuous), continuous, 1e-6, 1e-6));
    EXPECT_TRUE(torch::allclose(ToHost(log_prob_there), log_prob, 1e-6, 1e-6));
  }
}

// A vector, and a mask over 5 and 3 choices.
Spaces MaskedSpaces() {
  v1::EnvSpec spec;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      "observation { path: 'x' dtype: FLOAT32 shape: 3 }"
      "observation { path: 'm' dtype: UINT8 shape: 8 }"
      "action { path: 'a' dtype: INT64 shape: 2 num_values_each: [5, 3] "
      "         mask_path: 'm' }",
      &spec));
  return DescribeSpaces(spec, v1::ModelConfig()).value();
}

struct Model {
  std::string name;
  Spaces spaces;
  std::string config;
};

class DecisionTest : public ResidentRolloutTest,
                     public testing::WithParamInterface<Model> {};

// A decision is one copy each way, and waits for the second alone; what it ends
// with is not waited for.
TEST_P(DecisionTest, IsOneCopyEachWay) {
  const Spaces& spaces = GetParam().spaces;
  v1::RunConfig config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("env { num_envs: ", kB, " } rollout { length: ", kT, " } ",
                   GetParam().config),
      &config));
  const auto algorithm = MakeAlgorithm(config, spaces, Device()).value();
  Policy* const policy = algorithm->live_policy();
  const int64_t S = policy->state_size();
  ASSERT_NE(policy->resident(), nullptr);
  Rollout host = RandomRollout(spaces, kT, kB);
  for (size_t i = 0; i < spaces.observation.size(); ++i) {
    const torch::Tensor leaf = host.observation.leaf(static_cast<int>(i));
    leaf.narrow(0, 0, leaf.size(0) - kT - 1)
        .zero_();  // before the first rollout
  }
  host.there =
      std::make_shared<Rollout>(MakeRolloutOn(Device(), spaces, kT, kB, S));
  if (S > 0) host.initial_state = torch::zeros({kB, S});
  Rollout twin = RandomRollout(spaces, kT, kB);
  twin.observation = host.observation;
  twin.terminated.copy_(host.terminated);
  twin.truncated.copy_(host.truncated);
  twin.initial_state = host.initial_state;
  Draws draws(7), twin_draws(7);

  ResidentActor actor(spaces, kB, Device());
  actor.Begin(policy->resident(), S, /*forget=*/true, &host);
  const torch::Tensor starts = Starts(host);
  rehearsal::ResetCounts();
  std::map<std::string, int64_t> launches;
  for (int64_t t = 0; t < kT; ++t) {
    launches = rehearsal::LaunchesByOperator();
    for (int64_t b = 0; b < kB; ++b) {
      if (starts[t][b].item<uint8_t>() != 0) actor.Forget(b);
    }
    for (const int64_t first : {0, 2}) {
      actor.Decide(t, first, 2, /*fresh=*/true, &draws);
    }
  }
  const rehearsal::Counts counts = ReadCounts();
  EXPECT_EQ(counts.pinned_to_device.copies, 2 * kT);
  // Where random numbers are goes up, not they themselves.
  EXPECT_EQ(
      counts.pinned_to_device.bytes,
      2 * kT * (kHeader + host.observation.StepBytes(2) + (S > 0 ? 8 : 0)));
  EXPECT_EQ(counts.device_to_pinned.copies, 2 * kT);
  EXPECT_EQ(counts.event_waits, 2 * kT);
  EXPECT_EQ(counts.HostWaits(), 2 * kT) << rehearsal::Describe(counts);
  EXPECT_EQ(counts.pageable_to_device.copies, 0);
  EXPECT_EQ(counts.overwritten_sources, 0);
  EXPECT_EQ(counts.missing_events, 0);
  // The last decisions were a graph each, and nothing else; but where a number of
  // the host says how to act.
  const bool recorded = !policy->resident()->memory().empty();
  EXPECT_EQ(recorded, GetParam().name != "SacUniform");
  for (const auto& [name, count] : rehearsal::LaunchesByOperator()) {
    if (!recorded) continue;
    EXPECT_EQ(count - launches[name], name == "a graph" ? 2 : 0) << name;
  }
  {
    const rehearsal::NoHostWait nobody_waits;
    for (int64_t b = 0; b < kB; ++b) {
      if (starts[kT][b].item<uint8_t>() != 0) actor.Forget(b);
    }
    actor.Value(kT, 0, kB, /*fresh=*/true);
    actor.End(kT);
  }

  // All the same as of a policy that comes to the host for it.
  Decide(policy, &twin_draws, &twin);
  EXPECT_EQ(draws.place(), twin_draws.place());
  EXPECT_TRUE(
      torch::allclose(ToHost(host.there->value), twin.value, 1e-5, 1e-5));
  EXPECT_TRUE(
      torch::allclose(ToHost(host.there->log_prob), twin.log_prob, 1e-5, 1e-5));
  if (twin.action.discrete.defined()) {
    EXPECT_TRUE(torch::equal(host.action.discrete, twin.action.discrete));
    EXPECT_TRUE(torch::equal(ToHost(host.there->action.discrete),
                             twin.action.discrete));
  } else {
    EXPECT_TRUE(torch::allclose(host.action.continuous, twin.action.continuous,
                                1e-5, 1e-5));
  }
  EXPECT_EQ(FirstDifference(host.observation, host.there->observation), "");
}

INSTANTIATE_TEST_SUITE_P(
    Models, DecisionTest,
    testing::Values(
        Model{"Vector", VectorSpaces(4, 2), "ppo {} model { hidden: 16 }"},
        Model{"Numbers", ContinuousSpaces(3, 2), "ppo {} model { hidden: 16 }"},
        Model{"Frames", FrameSpaces(36, 36, 3),
              "ppo {} model { hidden: 16 conv_channels: [4, 4, 4] }"},
        Model{"Lstm", VectorSpaces(4, 2),
              "ppo {} model { hidden: 16 recurrent: LSTM recurrent_size: 8 }"},
        Model{"DqnOfFrames", FrameSpaces(36, 36, 3),
              "dqn { epsilon_start: 0.5 } "
              "model { hidden: 16 conv_channels: [4, 4, 4] }"},
        Model{"DqnOfSeveralMaskedChoices", MaskedSpaces(),
              "dqn { epsilon_start: 0.5 } model { hidden: 16 }"},
        Model{"Sac", BoundedSpaces(4, {-2, 0}, {2, 1}),
              "sac { learning_starts: 0 } model { hidden: 16 }"},
        Model{"SacUniform", BoundedSpaces(4, {-2, 0}, {2, 1}),
              "sac { learning_starts: 10 } model { hidden: 16 }"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flotilla
