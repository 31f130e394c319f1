#include "services/env/env_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/env/env_service.h"
#include "services/env/shared_region.h"
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
  ASSERT_OK_AND_ASSIGN(auto stream, Open(options));
  v1::StepBatch batches[2];
  for (uint64_t seq = 0; seq < 3; ++seq) {
    // As one whose learner waits for another worker meanwhile.
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
  const absl::Time begin = absl::Now();
  for (uint64_t seq = 0; status.ok(); ++seq) {
    ASSERT_OK(stream->Send(MakeActions(1, seq, {0, 0})));
    status = stream->Receive(&batch);
    ASSERT_LT(absl::Now() - begin, absl::Seconds(30));
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_P(EnvStreamTest, ResetHasATimeoutOfItsOwn) {
  EnvStreamOptions options;
  options.reset_timeout = absl::Milliseconds(500);
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
  const absl::Time begin = absl::Now();
  EXPECT_THAT(
      OpenEnvStream("unix:" + (dir / "none"), MakeHello(), options),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(dir / "none")));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

// A server that answers as a test scripts it.
class ScriptedService final : public v1::EnvService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::PlayReply, v1::PlayRequest>;

  grpc::Status Play(grpc::ServerContext*, Stream* stream) override {
    v1::PlayRequest request;
    stream->Read(&request);
    v1::PlayReply reply;
    *reply.mutable_welcome() = welcome;
    stream->Write(reply);
    stream->Read(&request);
    start = request.start();
    for (const v1::PlayReply& step : replies) stream->Write(step);
    if (hang) {
      while (stream->Read(&request)) {
      }
    }
    return grpc::Status::OK;
  }

  v1::Welcome welcome;
  std::vector<v1::PlayReply> replies;
  v1::Start start;
  bool hang = true;
};

class ScriptedEnvStreamTest : public testing::Test {
 protected:
  ScriptedEnvStreamTest()
      : server_({{v1::EnvService::service_full_name(), &service_}}) {
    service_.welcome.set_protocol_version(1);
    service_.welcome.set_autoreset_mode("same_step");
    *service_.welcome.mutable_spec() =
        *FakeFactory().Describe("Fake", v1::EnvOptions());
  }

  // A reset of both rows of the first of two groups.
  static v1::PlayReply GoodReply() {
    v1::PlayReply reply;
    v1::StepBatch* step = reply.mutable_step();
    step->mutable_inline_()->add_leaf(std::string(16, '>'));
    step->set_reward(std::string(8, '\0'));
    step->set_terminated(std::string(2, '\0'));
    step->set_truncated(std::string(2, '\0'));
    return reply;
  }

  absl::Status ReceiveOne() {
    auto stream = OpenEnvStream(server_.address(), MakeHello(), {});
    if (!stream.ok()) return stream.status();
    v1::StepBatch batch;
    return (*stream)->Receive(&batch);
  }

  ScriptedService service_;
  InProcessServer server_;
};

TEST_F(ScriptedEnvStreamTest, GoodReplyIsTaken) {
  service_.replies = {GoodReply()};
  EXPECT_OK(ReceiveOne());
}

TEST_F(ScriptedEnvStreamTest, EveryFieldOfAStepIsChecked) {
  using Step = v1::StepBatch*;
  struct Case {
    std::function<void(Step)> spoil;
    std::string message;
  };
  const auto end_row = [](Step step, int row) {
    (*step->mutable_terminated())[row] = 1;
    step->add_final_row(row);
    step->mutable_final_observation()->add_leaf(std::string(8, '='));
  };
  const Case cases[] = {
      {[](Step s) { s->set_group(2); }, "step.group is 2, want 0 to 1"},
      {[](Step s) { s->set_group(-1); }, "step.group is -1"},
      {[](Step s) { s->set_seq(1); }, "step.seq of group 0 is 1, want 0"},
      {[](Step s) { s->clear_payload(); }, "step.payload is not inline"},
      {[](Step s) { s->set_slot(0); }, "no memory is shared"},
      {[](Step s) { s->mutable_inline_()->add_leaf(); },
       "step.inline has 2 leaves, want 1"},
      {[](Step s) { s->mutable_inline_()->mutable_leaf(0)->pop_back(); },
       "step.inline.leaf[0] has 15 bytes, want 16 (2 rows of 8)"},
      {[](Step s) { s->mutable_reward()->pop_back(); },
       "step.reward has 7 bytes, want 8"},
      {[](Step s) { s->mutable_terminated()->push_back(0); },
       "step.terminated has 3 bytes, want 2"},
      {[](Step s) { s->clear_truncated(); },
       "step.truncated has 0 bytes, want 2"},
      {[](Step s) { (*s->mutable_truncated())[1] = 2; },
       "step.truncated is 2 in row 1, want 0 or 1"},
      {[](Step s) { (*s->mutable_terminated())[1] = 1; },
       "step.final_row does not list row 1"},
      {[](Step s) { s->add_final_row(0); },
       "step.final_row has 1 rows, want the 0"},
      {[&](Step s) {
         end_row(s, 1);
         s->set_final_row(0, 0);
       },
       "does not list row 1"},
      {[&](Step s) {
         end_row(s, 1);
         s->mutable_final_observation()->mutable_leaf(0)->push_back('x');
       },
       "step.final_observation.leaf[0] has 9 bytes, want 8"},
      {[](Step s) { s->mutable_final_observation()->add_leaf("x"); },
       "step.final_observation.leaf[0] has 1 bytes, want 0"},
      {[](Step s) { s->add_episode_end()->set_row(2); },
       "step.episode_end names row 2, want 0 to 1"},
      {[](Step s) { s->add_error()->set_row(-1); }, "step.error names row -1"},
      {[](Step s) {
         s->add_error()->set_row(1);
         s->add_error()->set_row(1);
       },
       "step.error names row 1 twice, want one a row"},
      {[](Step s) { s->set_active("\1\1\1"); },
       "step.active has 3 bytes, want 2"},
      {[](Step s) { s->set_active("\1\2"); },
       "step.active is 2 in row 1, want 0 or 1"},
      {[](Step s) { s->add_episode_end()->set_others_play_on(true); },
       "step.episode_end says that others play on after row 0"},
      {[](Step s) { s->add_episode_end()->set_row(1); },
       "step.episode_end names row 1, and neither step.terminated nor "
       "step.truncated is 1 there"},
      {[&](Step s) {
         end_row(s, 1);
         s->add_episode_end()->set_row(1);
         s->add_episode_end()->set_row(1);
       },
       "step.episode_end names row 1 twice, want one a row"},
  };
  for (const Case& c : cases) {
    service_.replies = {GoodReply()};
    c.spoil(service_.replies[0].mutable_step());
    EXPECT_THAT(ReceiveOne(),
                StatusIs(absl::StatusCode::kInternal, HasSubstr(c.message)));
  }
  service_.replies = {v1::PlayReply()};
  EXPECT_THAT(ReceiveOne(), StatusIs(absl::StatusCode::kInternal,
                                     HasSubstr("the reply is not a step")));
}

TEST_F(ScriptedEnvStreamTest, EnvironmentsFailWithAllTheirSlots) {
  service_.welcome.mutable_spec()->set_agents(2);
  service_.replies = {GoodReply()};
  v1::StepBatch* step = service_.replies[0].mutable_step();
  step->add_error()->set_row(1);
  EXPECT_THAT(ReceiveOne(),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("step.error names row 1 and not row 0, want "
                                 "all 2 slots of the environment")));
  step->add_error()->set_row(0);
  EXPECT_OK(ReceiveOne());
}

TEST_F(ScriptedEnvStreamTest, ErrorsMayNameRowsInAnyOrder) {
  service_.replies = {GoodReply()};
  v1::StepBatch* step = service_.replies[0].mutable_step();
  step->add_error()->set_row(1);
  step->add_error()->set_row(0);
  EXPECT_OK(ReceiveOne());
}

TEST_F(ScriptedEnvStreamTest, SecondBatchBeforeTheActionsIsRefused) {
  service_.replies = {GoodReply(), GoodReply()};
  ASSERT_OK_AND_ASSIGN(const auto stream,
                       OpenEnvStream(server_.address(), MakeHello(), {}));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  EXPECT_THAT(stream->Receive(&batch), StatusIs(absl::StatusCode::kInternal));
}

TEST_F(ScriptedEnvStreamTest, FieldsOfTheBatchBeforeDoNotComeBack) {
  // What the second message leaves out must not be what the first one said.
  service_.replies = {GoodReply(), GoodReply()};
  v1::StepBatch* first = service_.replies[0].mutable_step();
  first->set_terminated(std::string("\1\0", 2));
  first->add_final_row(0);
  first->mutable_final_observation()->add_leaf(std::string(8, '='));
  first->add_episode_end();
  first->add_error()->set_message("broken");
  first->set_reward(std::string(8, '?'));
  service_.replies[1].mutable_step()->set_group(1);
  service_.replies.push_back(service_.replies[1]);
  ASSERT_OK_AND_ASSIGN(const auto stream,
                       OpenEnvStream(server_.address(), MakeHello(), {}));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  EXPECT_EQ(batch.error_size(), 1);
  ASSERT_OK(stream->Receive(&batch));
  EXPECT_EQ(batch.group(), 1);
  EXPECT_EQ(batch.error_size(), 0);
  EXPECT_EQ(batch.final_row_size(), 0);
  EXPECT_EQ(batch.episode_end_size(), 0);
  EXPECT_EQ(batch.reward(), std::string(8, '\0'));
}

TEST_F(ScriptedEnvStreamTest, WelcomeIsChecked) {
  const v1::Welcome good = service_.welcome;
  service_.welcome.set_protocol_version(2);
  EXPECT_THAT(ReceiveOne(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the server speaks protocol 2")));
  service_.welcome = good;
  service_.welcome.set_autoreset_mode("next_step");
  EXPECT_THAT(ReceiveOne(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("next_step")));
  service_.welcome = good;
  service_.welcome.mutable_spec()->mutable_observation(0)->add_shape(1 << 30);
  EXPECT_THAT(ReceiveOne(), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("spec.observation[0]")));
}

TEST_F(ScriptedEnvStreamTest, ServerThatEndsTheStreamIsUnavailable) {
  service_.hang = false;
  EXPECT_THAT(ReceiveOne(), StatusIs(absl::StatusCode::kUnavailable,
                                     HasSubstr("ended the stream")));
}

TEST_F(ScriptedEnvStreamTest, SocketOutOfReachFallsBackToInline) {
  // As a server on another host, or in another container, would announce it.
  service_.welcome.set_shared_memory_socket("@flotilla-test-nobody");
  service_.welcome.set_shared_memory_token("0123456789abcdef");
  service_.replies = {GoodReply()};
  v1::Hello hello = MakeHello();
  hello.set_offer_shared_memory(true);
  ASSERT_OK_AND_ASSIGN(const auto stream,
                       OpenEnvStream(server_.address(), hello, {}));
  EXPECT_FALSE(stream->shares_memory());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  EXPECT_EQ(stream->Observation(batch, 0), std::string(16, '>'));
  EXPECT_FALSE(service_.start.has_shared_memory());
}

TEST_F(ScriptedEnvStreamTest, SlotOfAnotherGroupIsRefused) {
  ASSERT_OK_AND_ASSIGN(const auto receiver, RegionReceiver::Listen());
  service_.welcome.set_shared_memory_socket(receiver->socket());
  service_.welcome.set_shared_memory_token(receiver->token());
  service_.replies = {GoodReply()};
  service_.replies[0].mutable_step()->set_slot(1);
  v1::Hello hello = MakeHello();
  hello.set_offer_shared_memory(true);
  ASSERT_OK_AND_ASSIGN(const auto stream,
                       OpenEnvStream(server_.address(), hello, {}));
  EXPECT_TRUE(stream->shares_memory());
  v1::StepBatch batch;
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("step.payload is not slot 0")));
}

}  // namespace
}  // namespace flotilla
