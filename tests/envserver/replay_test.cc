#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "envserver/picture.h"
#include "envserver/registry.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/env/env_service.h"
#include "services/env/replay_call.h"
#include "services/rpc/grpc_status.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"

// EnvService.Replay, of the environments that a server makes.

namespace flotilla {
namespace {

using testing::HasSubstr;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

v1::ReplayRequest CartPoleFor(int steps, uint64_t seed = 5) {
  v1::ReplayRequest request;
  request.set_env_id("CartPole-v1");
  v1::ReplayEpisode* episode = request.add_episode();
  episode->set_seed(seed);
  episode->add_action(Bytes(std::vector<int64_t>(steps, 1)));
  return request;
}

// An environment whose episodes last as many steps as its seed says, of which two
// make a game. Its picture is as wide as its episode is long, and has the step's
// shade.
class Counted final : public Environment {
 public:
  Counted() {
    spec_.add_observation()->set_dtype(v1::FLOAT32);
    v1::Leaf* action = spec_.add_action();
    action->set_dtype(v1::INT64);
    action->set_num_values(2);
  }
  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t seed, Row observation) override {
    length_ = seed;
    step_ = 0;
    ++episodes_;
    WriteValue(observation[0], 0, 0.0f);
    return absl::OkStatus();
  }
  absl::StatusOr<Outcome> Step(ConstRow, Row observation) override {
    Outcome outcome;
    outcome.reward = ++step_ == 7 ? std::numeric_limits<float>::quiet_NaN() : 1;
    outcome.terminated = step_ == length_;
    WriteValue(observation[0], 0, 0.0f);
    return outcome;
  }
  bool GameOver(v1::EpisodeEnd*) override { return episodes_ % 2 == 1; }
  bool renders() const override { return true; }
  v1::Frame Render() const override {
    const auto shade = static_cast<uint8_t>(step_);
    return Picture(static_cast<int>(length_), 1, {shade, shade, shade}).frame();
  }

 private:
  v1::EnvSpec spec_;
  uint64_t length_ = 0, step_ = 0;
  int episodes_ = 0;
};

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    registry_.Add("Counted", [](auto&) { return std::make_unique<Counted>(); });
  }

  std::vector<v1::ReplayStep> Play(const v1::ReplayRequest& request) {
    std::vector<v1::ReplayStep> steps;
    EXPECT_OK(PlayAgain(factory_, request, [&](const v1::ReplayStep& step) {
      steps.push_back(step);
      return true;
    }));
    return steps;
  }
  absl::Status Refusal(const v1::ReplayRequest& request) {
    return PlayAgain(factory_, request,
                     [](const v1::ReplayStep&) { return true; });
  }

  EnvironmentRegistry registry_;
  const RegistryFactory factory_{&registry_, /*threads=*/1};
};

TEST_F(ReplayTest, AnswersTheResetAndEveryStepUpToWhereAnEpisodeEnds) {
  const auto steps = Play(CartPoleFor(400));
  ASSERT_GT(steps.size(), 5u);
  ASSERT_LT(steps.size(), 100u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step(), static_cast<int>(i));
    EXPECT_EQ(steps[i].reward().size(), i == 0 ? 0u : sizeof(float));
    EXPECT_FALSE(steps[i].has_frame());
  }
  ASSERT_EQ(steps.back().episode_end_size(), 1);
  EXPECT_EQ(steps.back().terminated(), std::string(1, '\1'));
  EXPECT_EQ(steps.back().episode_end(0).raw_return(), steps.size() - 1.0);
}

TEST_F(ReplayTest, SeedsAndActionsAreAllThatCounts) {
  const auto length = [&](uint64_t seed) {
    return Play(CartPoleFor(400, seed)).size();
  };
  EXPECT_EQ(length(5), length(5));
  EXPECT_TRUE(length(5) != length(6) || length(6) != length(7));
}

TEST_F(ReplayTest, AGameOfSeveralEpisodesIsOneGameWithFramesOfEachEnd) {
  v1::ReplayRequest request;
  request.set_env_id("Counted");
  request.set_frames(true);
  for (const uint64_t length : {3, 2}) {
    v1::ReplayEpisode* episode = request.add_episode();
    episode->set_seed(length);
    episode->add_action(Bytes(std::vector<int64_t>(length, 0)));
  }
  const auto steps = Play(request);
  std::vector<std::vector<int>> seen;  // episode, step, width, shade
  for (const v1::ReplayStep& step : steps) {
    seen.push_back({step.episode(), step.step(), step.frame().width(),
                    step.frame().rgb()[0]});
  }
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{{0, 0, 3, 0},
                                                 {0, 1, 3, 1},
                                                 {0, 2, 3, 2},
                                                 {0, 3, 3, 3},
                                                 {1, 0, 2, 0},
                                                 {1, 1, 2, 1},
                                                 {1, 2, 2, 2}}));
  EXPECT_EQ(steps[3].episode_end_size(), 0);  // the game goes on
  ASSERT_EQ(steps[6].episode_end_size(), 1);
  EXPECT_EQ(steps[6].episode_end(0).raw_return(), 5);
}

TEST_F(ReplayTest, EndsWhereTheEnvironmentFails) {
  v1::ReplayRequest request;
  request.set_env_id("Counted");
  v1::ReplayEpisode* episode = request.add_episode();
  episode->set_seed(100);
  episode->add_action(Bytes(std::vector<int64_t>(20, 0)));
  const auto steps = Play(request);
  ASSERT_EQ(steps.size(), 8u);
  EXPECT_EQ(steps[6].error(), "");
  EXPECT_THAT(steps[7].error(), HasSubstr("the reward is nan"));
}

TEST_F(ReplayTest, PlaysEveryAgentsActions) {
  v1::ReplayRequest request;
  request.set_env_id("Connect4");
  request.set_frames(true);
  v1::ReplayEpisode* episode = request.add_episode();
  // Slot 0 fills column 0, slot 1 column 1; who has no turn is not asked.
  episode->add_action(
      Bytes(std::vector<int64_t>{0, 9, 9, 1, 0, 9, 9, 1, 0, 9, 9, 1, 0, 9}));
  const auto steps = Play(request);
  ASSERT_EQ(steps.size(), 8u);
  ASSERT_EQ(steps.back().episode_end_size(), 2);
  double sum = 0;
  for (const v1::EpisodeEnd& end : steps.back().episode_end()) {
    sum += end.raw_return();
  }
  EXPECT_EQ(sum, 0);
  EXPECT_NE(steps[1].frame().rgb(), steps[2].frame().rgb());
}

TEST_F(ReplayTest, RefusesWhatDoesNotFit) {
  v1::ReplayRequest request = CartPoleFor(3);
  request.set_env_id("CartPole");
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kNotFound));
  request = CartPoleFor(3);
  request.clear_episode();
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument));
  request = CartPoleFor(3);
  request.mutable_episode(0)->add_action("x");
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("2 action leaves, want 1")));
  request = CartPoleFor(3);
  request.mutable_episode(0)->mutable_action(0)->pop_back();
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("23 bytes, want 8")));
  request = CartPoleFor(0);
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument));
  request = CartPoleFor(3);
  request.mutable_episode(0)->mutable_action(0)->at(8) = 7;
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("episode 0, step 1")));
  request = CartPoleFor(3);
  request.set_env_id("Bandit");
  request.set_frames(true);
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("cannot be seen")));
  request.set_env_id("gym:CartPole-v1");
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(ReplayTest, EveryPictureIsOfItsSizeAndShowsSomething) {
  for (const std::string id :
       {"CartPole-v1", "Pendulum-v1", "Maze", "Connect4", "PointNav"}) {
    SCOPED_TRACE(id);
    ASSERT_OK_AND_ASSIGN(const v1::EnvSpec spec, factory_.Describe(id, {}));
    EXPECT_TRUE(spec.renders());
    v1::ReplayRequest request;
    request.set_env_id(id);
    request.set_frames(true);
    v1::ReplayEpisode* episode = request.add_episode();
    episode->set_seed(3);
    const auto slots = static_cast<size_t>(std::max(1, spec.agents()));
    episode->add_action(spec.action(0).dtype() == v1::FLOAT32
                            ? Bytes(std::vector<float>(5 * slots, 0.5f))
                            : Bytes(std::vector<int64_t>(5 * slots, 1)));
    const auto steps = Play(request);
    ASSERT_EQ(steps.size(), 6u);
    for (const v1::ReplayStep& step : steps) {
      const v1::Frame& frame = step.frame();
      ASSERT_EQ(frame.rgb().size(), size_t{3} * frame.width() * frame.height());
      EXPECT_EQ(frame.width(), steps[0].frame().width());
      EXPECT_NE(frame.rgb(), std::string(frame.rgb().size(), frame.rgb()[0]));
    }
    EXPECT_NE(steps[0].frame().rgb(), steps[5].frame().rgb());
  }
}

// Waits in its third step until it is let go.
class Gate final : public Environment {
 public:
  struct Shared {
    std::atomic<int> waiting = 0;
    std::atomic<bool> open = false;
  };
  explicit Gate(Shared* shared) : shared_(shared) {
    spec_.add_observation()->set_dtype(v1::UINT8);
    spec_.add_action()->set_dtype(v1::UINT8);
  }
  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t, Row observation) override {
    WriteValue<uint8_t>(observation[0], 0, 0);
    return absl::OkStatus();
  }
  absl::StatusOr<Outcome> Step(ConstRow, Row observation) override {
    WriteValue<uint8_t>(observation[0], 0, 0);
    if (++steps_ == 3) {
      ++shared_->waiting;
      shared_->waiting.notify_all();
      shared_->open.wait(false);
    }
    return Outcome();
  }

 private:
  Shared* const shared_;
  v1::EnvSpec spec_;
  int steps_ = 0;
};

class ReplayServiceTest : public testing::Test {
 protected:
  ReplayServiceTest() {
    registry_.Add("Gate",
                  [this](auto&) { return std::make_unique<Gate>(&gate_); });
  }
  ~ReplayServiceTest() override { Open(); }

  void Open() {
    gate_.open = true;
    gate_.open.notify_all();
  }

  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::ReplayStep>> reader;
    absl::Status End() {
      v1::ReplayStep step;
      while (reader->Read(&step)) {
      }
      return FromGrpc(reader->Finish());
    }
  };
  std::unique_ptr<Call> Begin(const std::string& env_id) {
    v1::ReplayRequest request;
    request.set_env_id(env_id);
    request.add_episode()->add_action(std::string(1000, '\0'));
    auto call = std::make_unique<Call>();
    call->reader = stub_->Replay(&call->context, request);
    return call;
  }
  void AwaitAtGate(int count) {
    for (int at = gate_.waiting; at < count; at = gate_.waiting) {
      gate_.waiting.wait(at);
    }
  }

  Gate::Shared gate_;
  EnvironmentRegistry registry_;
  const RegistryFactory factory_{&registry_, /*threads=*/1};
  EnvService service_{&factory_, {}};
  InProcessServer server_{{{v1::EnvService::service_full_name(), &service_}},
                          [this] { service_.Shutdown(); }};
  const std::unique_ptr<v1::EnvService::Stub> stub_ =
      v1::EnvService::NewStub(server_.Channel());
};

TEST_F(ReplayServiceTest, SoManyAtATimeAndThenAgain) {
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < EnvService::kMaxReplays; ++i) {
    calls.push_back(Begin("Gate"));
  }
  AwaitAtGate(EnvService::kMaxReplays);
  EXPECT_THAT(Begin("Gate")->End(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("4 games are played again here")));
  Open();
  for (const auto& call : calls) EXPECT_OK(call->End());
  EXPECT_OK(Begin("Gate")->End());
}

TEST_F(ReplayServiceTest, EndsWhenNobodyLooksAnyMore) {
  auto call = Begin("Gate");
  AwaitAtGate(1);
  call->context.TryCancel();
  EXPECT_THAT(call->End(), StatusIs(absl::StatusCode::kCancelled));
  Open();
  EXPECT_TRUE(service_.AwaitStreams(absl::Seconds(30)));
}

TEST_F(ReplayServiceTest, EndsWithTheServer) {
  auto call = Begin("Gate");
  AwaitAtGate(1);
  service_.Shutdown();
  Open();
  EXPECT_THAT(call->End(), StatusIs(absl::StatusCode::kUnavailable,
                                    HasSubstr("shuts down")));
  EXPECT_THAT(Begin("Gate")->End(), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace flotilla
