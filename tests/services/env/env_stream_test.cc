#include "services/env/env_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/steady_now.h"
#include "services/env/env_service.h"
#include "tests/services/env/fake_vector_env.h"
#include "tests/services/env/raw_learner.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> Seen(const EnvStream& stream, const v1::StepBatch& batch) {
  const absl::string_view bytes = stream.Observation(batch, 0);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

enum class Payload { kInline, kShared, kRing };

// Against our own service: inline, through shared memory, and with rings in it.
class EnvStreamTest : public testing::TestWithParam<Payload> {
 protected:
  EnvStreamTest()
      : service_(&factory_, {}),
        server_(
            {{v1::EnvService::service_full_name(), &service_}},
            [this] { service_.Shutdown(); }, "unix:" + (dir_ / "sock")) {}

  absl::StatusOr<std::unique_ptr<EnvStream>> Open(
      const EnvStreamOptions& options = {}) {
    v1::Hello hello = MakeHello();
    hello.clear_protocol_version();
    hello.set_offer_shared_memory(GetParam() != Payload::kInline);
    hello.set_offer_ring(GetParam() == Payload::kRing);
    return OpenEnvStream(server_.address(), hello, options);
  }

  const TempDir dir_;
  FakeFactory factory_;
  EnvService service_;
  InProcessServer server_;
};

INSTANTIATE_TEST_SUITE_P(Payloads, EnvStreamTest,
                         testing::Values(Payload::kInline, Payload::kShared,
                                         Payload::kRing),
                         [](const auto& info) -> std::string {
                           return info.param == Payload::kInline   ? "Inline"
                                  : info.param == Payload::kShared ? "Shared"
                                                                   : "Ring";
                         });

TEST_P(EnvStreamTest, PlaysAndSeesWhatTheRowsObserve) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  EXPECT_EQ(stream->shares_memory(), GetParam() != Payload::kInline);
  EXPECT_EQ(stream->has_ring(), GetParam() == Payload::kRing);
  EXPECT_EQ(stream->spec().env_id(), "Fake");
  v1::StepBatch batches[2];
  for (v1::StepBatch& batch : batches) ASSERT_OK(stream->Receive(&batch));
  EXPECT_THAT(Seen(*stream, batches[1]), ElementsAre(2, 0, 3, 0));
  for (uint64_t seq = 0; seq < 100; ++seq) {
    for (v1::StepBatch& batch : batches) {
      ASSERT_OK(stream->Send(MakeActions(batch.group(), seq, {1, 2})));
    }
    for (v1::StepBatch& batch : batches) {
      ASSERT_OK(stream->Receive(&batch));
      EXPECT_EQ(batch.seq(), seq + 1);
      const float first = static_cast<float>(batch.group() * 2);
      const float steps = static_cast<float>(seq + 1);
      EXPECT_THAT(Seen(*stream, batch),
                  ElementsAre(first, steps, first + 1, steps));
      EXPECT_THAT(batch.final_row(), ElementsAre(1));
      EXPECT_EQ(batch.final_observation().leaf(0).size(), 8u);
    }
  }
  EXPECT_OK(stream->Finish());
}

float Reward(const v1::StepBatch& batch, int row) {
  float reward;
  std::memcpy(&reward, batch.reward().data() + row * sizeof(float), 4);
  return reward;
}

void SetReward(v1::StepBatch* batch, int row, float reward) {
  std::memcpy(batch->mutable_reward()->data() + row * sizeof(float), &reward,
              sizeof(reward));
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_P(EnvStreamTest, RowThatSeesNoNumberIsAnErrorAndTheOthersGoOn) {
  for (const float bad : {kNan, kInfinity, -kInfinity, 1.1e18f, -1.1e18f}) {
    factory_.set_spoil([bad](int step, float* seen, v1::StepBatch* batch) {
      if (step == 2 && batch->group() == 1) seen[1] = bad;
    });
    ASSERT_OK_AND_ASSIGN(const auto stream, Open());
    v1::StepBatch batches[2];
    for (v1::StepBatch& batch : batches) ASSERT_OK(stream->Receive(&batch));
    for (uint64_t seq = 0; seq < 3; ++seq) {
      for (v1::StepBatch& batch : batches) {
        ASSERT_OK(stream->Send(MakeActions(batch.group(), seq, {1, 1})));
      }
      for (v1::StepBatch& batch : batches) {
        ASSERT_OK(stream->Receive(&batch));
        const bool spoiled = seq == 1 && batch.group() == 1;
        const bool follows = seq == 2 && batch.group() == 1;
        ASSERT_EQ(batch.error_size(), spoiled || follows) << bad;
        EXPECT_EQ(Seen(*stream, batch)[3], seq + 1);
        if (follows) {  // what led here was decided on nothing
          EXPECT_EQ(batch.error(0).row(), 0);
          EXPECT_EQ(batch.error(0).message(), "");
        }
        if (!spoiled) continue;
        // Row 0 of group 1 is the stream's row 2.
        EXPECT_EQ(batch.error(0).row(), 0);
        EXPECT_THAT(
            batch.error(0).message(),
            AllOf(HasSubstr("env \"Fake\", row 2, step 2: the observation"),
                  HasSubstr(absl::StrCat("element 1, is ", bad)),
                  HasSubstr("want a finite number up to 1e+18")));
        EXPECT_THAT(Seen(*stream, batch), ElementsAre(0, 0, 3, 2));
      }
    }
    EXPECT_EQ(stream->refused_rows(), 1);
    ASSERT_OK(stream->Finish());
    factory_.AwaitAlive(0);
  }
}

TEST_P(EnvStreamTest, EnvironmentsOfSeveralAgentsAreRefusedAsAWhole) {
  factory_.set_agents(2);
  factory_.set_spoil([](int step, float* seen, v1::StepBatch* batch) {
    if (step == 1 && batch->group() == 1) seen[0] = kNan;
    batch->set_active(std::string(step == 4 ? "\0\1" : "\1\1", 2));
  });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  EXPECT_EQ(stream->spec().agents(), 2);
  v1::StepBatch batch;
  for (int g = 0; g < 2; ++g) ASSERT_OK(stream->Receive(&batch));
  for (uint64_t seq = 0; seq < 4; ++seq) {
    ASSERT_OK(stream->Send(MakeActions(1, seq, {1, 1})));
    ASSERT_OK(stream->Receive(&batch));
    // The batch that could not be seen, and the one that was decided blindly.
    ASSERT_EQ(batch.error_size(), seq < 2 ? 2 : 0) << seq;
    for (int i = 0; i < batch.error_size(); ++i) {
      EXPECT_EQ(batch.error(i).row(), i);
      EXPECT_EQ(batch.error(i).message().empty(), seq == 1 || i == 1);
    }
  }
  EXPECT_EQ(stream->refused_rows(), 1);
  EXPECT_FALSE(IsActive(batch, 0));
  EXPECT_TRUE(IsActive(batch, 1));
  // A slot without a turn may be sent anything.
  EXPECT_OK(stream->Send(MakeActions(1, 4, {-99, 1})));
  EXPECT_OK(stream->Receive(&batch));
  EXPECT_TRUE(IsActive(batch, 0));
  EXPECT_OK(stream->Send(MakeActions(1, 5, {-99, 1})));
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is -99 in row 0")));
}

TEST_P(EnvStreamTest, WhatIsSaidOfAgentsEndsHasToAgree) {
  factory_.set_agents(2);
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  for (int g = 0; g < 2; ++g) ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Send(MakeActions(0, 0, {2, 2})));
  EXPECT_OK(stream->Receive(&batch));
  // Its own end, and not its environment's.
  ASSERT_OK(stream->Send(MakeActions(1, 0, {2, 1})));
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("others_play_on of group 1, seq 1 in row 0 is "
                                 "false")));
}

TEST_P(EnvStreamTest, SlotsThatMakeNoWholeEnvironmentsAreRefused) {
  factory_.set_agents(3);
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_envs is 4 in 2 groups, and \"Fake\" has "
                                 "3 agents: use 6")));
}

TEST_P(EnvStreamTest, LargestNumbersThatCanBeLearnedFromAreTaken) {
  factory_.set_spoil([](int, float* seen, v1::StepBatch* batch) {
    seen[0] = 1e18f;
    seen[1] = -1e18f;
    SetReward(batch, 1, -1e18f);
  });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  EXPECT_EQ(batch.error_size(), 0);
  EXPECT_EQ(Seen(*stream, batch)[1], -1e18f);
  EXPECT_EQ(stream->refused_rows(), 0);
}

TEST_P(EnvStreamTest, BadRewardsEndsAndFinalObservationsAreRowErrors) {
  factory_.set_spoil([](int step, float*, v1::StepBatch* batch) {
    if (step == 1) SetReward(batch, 1, kInfinity);
    // Its actions end both rows.
    if (step == 2) batch->mutable_episode_end(0)->set_raw_return(kNan);
    if (step == 3)
      (*batch->mutable_episode_end(1)->mutable_metric())["m"] = kNan;
    if (step == 4) batch->mutable_episode_end(1)->set_length(-1);
    if (step == 5) {
      std::memcpy(batch->mutable_final_observation()->mutable_leaf(0)->data(),
                  &kNan, sizeof(kNan));
    }
  });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  for (int g = 0; g < 2; ++g) ASSERT_OK(stream->Receive(&batch));
  const auto step = [&](uint64_t seq, int64_t action) {
    EXPECT_OK(stream->Send(MakeActions(0, seq, {action, action})));
    EXPECT_OK(stream->Receive(&batch));
    EXPECT_EQ(batch.error_size(), 1);
    return batch.error(0).message();
  };
  EXPECT_THAT(step(0, 1), HasSubstr("row 1, step 1: the reward is inf"));
  EXPECT_EQ(Reward(batch, 0), 1);
  EXPECT_EQ(Reward(batch, 1), 0);
  EXPECT_THAT(step(1, 2), HasSubstr("row 0, step 2: episode_end.raw_return"));
  ASSERT_EQ(batch.episode_end_size(), 1);
  EXPECT_EQ(batch.episode_end(0).row(), 1);
  EXPECT_THAT(step(2, 2),
              HasSubstr("row 1, step 3: episode_end.metric is nan"));
  EXPECT_THAT(step(3, 2), HasSubstr("row 1, step 4: episode_end.length is -1"));
  EXPECT_THAT(step(4, 2), HasSubstr("row 0, step 5: the final observation"));
  EXPECT_EQ(batch.episode_end_size(), 2);
  EXPECT_EQ(batch.final_row_size(), 2);
  EXPECT_EQ(stream->refused_rows(), 5);
}

TEST_P(EnvStreamTest, WhatErrorsSayIsPrintableAndShort) {
  factory_.set_spoil([](int, float*, v1::StepBatch* batch) {
    v1::RowError* error = batch->add_error();
    error->set_row(1);
    error->set_message("\x1b[2J\nout " + std::string(100000, 'x'));
    error->set_traceback("line\n\x1b]0;title\x07" + std::string(100000, 'y'));
  });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_EQ(batch.error_size(), 1);
  EXPECT_THAT(batch.error(0).message(), testing::StartsWith("\\x1b[2J out x"));
  EXPECT_LT(batch.error(0).message().size(), 1000u);
  EXPECT_THAT(batch.error(0).traceback(),
              testing::StartsWith("line\n\\x1b]0;title\\x07y"));
  EXPECT_LT(batch.error(0).traceback().size(), 10000u);
}

TEST_P(EnvStreamTest, BatchesAreReusedWithoutAllocation) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batches[2];
  for (v1::StepBatch& batch : batches) ASSERT_OK(stream->Receive(&batch));
  std::set<const void*> memory;
  for (int i = 0; i < 50; ++i) {
    v1::StepBatch& batch = batches[i % 2];
    ASSERT_OK(stream->Send(MakeActions(batch.group(), batch.seq(), {0, 0})));
    ASSERT_OK(stream->Receive(&batch));
    if (i >= 6) memory.insert(stream->Observation(batch, 0).data());
  }
  // One of the stream's own and one for each group, or the slots.
  EXPECT_LE(memory.size(), 3u);
}

TEST_P(EnvStreamTest, SendMustAnswerTheLastBatch) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  EXPECT_THAT(stream->Send(MakeActions(0, 0, {0, 0})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Receive(&batch));
  EXPECT_THAT(
      stream->Receive(&batch),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Send first")));
  EXPECT_THAT(stream->Send(MakeActions(0, 1, {0, 0})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(stream->Send(MakeActions(2, 0, {0, 0})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(stream->Send(MakeActions(0, 0, {0, 0})));
  EXPECT_OK(stream->Receive(&batch));
}

TEST_P(EnvStreamTest, ServersRefusalOfActionsComesWithTheNextBatch) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Send(MakeActions(0, 0, {0, 9})));
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("is 9 in row 1"),
                             HasSubstr(server_.address()))));
  // Finished, and says why again.
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(stream->Send(MakeActions(1, 0, {0, 0})),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(EnvStreamTest, StepTimeoutEndsTheStream) {
  EnvStreamOptions options;
  options.step_timeout = absl::Milliseconds(100);
  ASSERT_OK_AND_ASSIGN(auto stream, Open(options));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Receive(&batch));
  factory_.Hold(1);
  ASSERT_OK(stream->Send(MakeActions(1, 0, {0, 0})));
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr(server_.address())));
  // Cancelled: the server notices although the stream still exists.
  factory_.AwaitAlive(0);
}

TEST_P(EnvStreamTest, StepsThatCameInTimeAreTakenHoweverLateTheyAreAskedFor) {
  EnvStreamOptions options;
  options.reset_timeout = options.step_timeout = absl::Milliseconds(100);
  const auto steps = std::make_shared<std::atomic<int>>(0);
  factory_.set_spoil([steps](int, float*, v1::StepBatch*) { ++*steps; });
  ASSERT_OK_AND_ASSIGN(auto stream, Open(options));
  v1::StepBatch batches[2];
  for (uint64_t seq = 0; seq < 3; ++seq) {
    const int made = 2 * static_cast<int>(seq) + 2;
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (*steps < made) {
      ASSERT_LT(SteadyNow(), deadline);
      absl::SleepFor(absl::Milliseconds(1));
    }
    // Until they are in, and too late: as one whose learner waits for another
    // worker meanwhile.
    absl::SleepFor(absl::Milliseconds(300));
    for (v1::StepBatch& batch : batches) {
      ASSERT_OK(stream->Receive(&batch));
      EXPECT_EQ(batch.seq(), seq);
    }
    for (v1::StepBatch& batch : batches) {
      ASSERT_OK(stream->Send(MakeActions(batch.group(), seq, {0, 0})));
    }
  }
}

TEST_P(EnvStreamTest, StuckGroupIsNoticedWhileAnotherPlays) {
  EnvStreamOptions options;
  options.step_timeout = absl::Milliseconds(100);
  ASSERT_OK_AND_ASSIGN(auto stream, Open(options));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Receive(&batch));
  factory_.Hold(0);
  ASSERT_OK(stream->Send(MakeActions(0, 0, {0, 0})));
  absl::Status status;
  const absl::Time begin = SteadyNow();
  for (uint64_t seq = 0; status.ok(); ++seq) {
    ASSERT_OK(stream->Send(MakeActions(1, seq, {0, 0})));
    status = stream->Receive(&batch);
    ASSERT_LT(SteadyNow() - begin, absl::Seconds(30));
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_P(EnvStreamTest, ResetHasATimeoutOfItsOwn) {
  EnvStreamOptions options;
  options.reset_timeout = absl::Seconds(3);
  factory_.Hold(0);
  ASSERT_OK_AND_ASSIGN(const auto stream, Open(options));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  EXPECT_EQ(batch.group(), 1);
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_P(EnvStreamTest, CancelWakesAReceiverOnAnotherThread) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Receive(&batch));
  factory_.Hold(0);
  ASSERT_OK(stream->Send(MakeActions(0, 0, {0, 0})));
  factory_.AwaitHeld(0);
  std::thread canceller([&] {
    stream->Cancel();
    stream->Cancel();
  });
  EXPECT_THAT(stream->Receive(&batch), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(stream->Send(MakeActions(1, 0, {0, 0})),
              StatusIs(absl::StatusCode::kCancelled));
  canceller.join();
}

TEST_P(EnvStreamTest, ShutdownOfTheServerIsUnavailable) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Receive(&batch));
  factory_.Hold(0);
  ASSERT_OK(stream->Send(MakeActions(0, 0, {0, 0})));
  factory_.AwaitHeld(0);
  service_.Shutdown();
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(EnvStreamTest, FinishDropsStepsOnTheirWay) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  EXPECT_OK(stream->Finish());
  v1::StepBatch batch;
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_P(EnvStreamTest, RefusalOfTheHelloIsOpensError) {
  ASSERT_OK_AND_ASSIGN(const auto stream, Open());
  v1::Hello hello = MakeHello();
  hello.set_learner_id("bob");
  EXPECT_THAT(OpenEnvStream(server_.address(), hello, {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("\"alice\" is playing")));
  hello.set_num_groups(3);
  EXPECT_THAT(OpenEnvStream(server_.address(), hello, {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(OpenEnvStreamTest, NobodyThereIsAnErrorWithinTheTimeout) {
  const TempDir dir;
  EnvStreamOptions options;
  options.connect_timeout = absl::Milliseconds(200);
  const absl::Time begin = SteadyNow();
  EXPECT_THAT(
      OpenEnvStream("unix:" + (dir / "none"), MakeHello(), options),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(dir / "none")));
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(5));
}

// A server that is `there`, or not, and answers after `thinks`: with a refusal.
class ThinkingServer final : public PlayTransport {
 public:
  ThinkingServer(bool there, absl::Duration thinks)
      : there_(there),
        answers_at_(Clock::now() + absl::ToChronoMilliseconds(thinks)) {}

  Progress Connect(Clock::time_point deadline) override {
    if (there_) return Progress::kDone;
    std::this_thread::sleep_until(deadline);
    return Progress::kLate;
  }
  Progress Read(Clock::time_point deadline, grpc::ByteBuffer*) override {
    std::this_thread::sleep_until(std::min(deadline, answers_at_));
    return answers_at_ <= deadline ? Progress::kOver : Progress::kLate;
  }
  bool AwaitReadable(Clock::time_point) override { return false; }
  Progress Write(Clock::time_point, grpc::ByteBuffer*) override {
    return Progress::kDone;
  }
  Progress HalfClose(Clock::time_point) override { return Progress::kDone; }
  absl::Status End() override { return absl::NotFoundError("an answer"); }
  void Fail(const absl::Status&) override {}
  void Cancel() override {}

 private:
  const bool there_;
  const Clock::time_point answers_at_;
};

TEST(OpenEnvStreamTest, OnlyToBeThereHasTheReachTimeout) {
  EnvStreamOptions options;
  options.connect_timeout = absl::Minutes(1);
  options.reach_timeout = absl::Milliseconds(20);
  const absl::Duration longer = 2 * options.reach_timeout;
  EXPECT_THAT(OpenEnvStream(std::make_unique<ThinkingServer>(true, longer),
                            "there", MakeHello(), options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("an answer")));
  const absl::Time begin = SteadyNow();
  EXPECT_THAT(OpenEnvStream(std::make_unique<ThinkingServer>(false, longer),
                            "gone", MakeHello(), options),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("gone")));
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(30));
  // And no longer than all of it.
  options.reach_timeout = absl::InfiniteDuration();
  options.connect_timeout = absl::Milliseconds(20);
  EXPECT_THAT(
      OpenEnvStream(std::make_unique<ThinkingServer>(true, absl::Hours(1)),
                    "slow", MakeHello(), options),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("slow")));
}

}  // namespace
}  // namespace flotilla
