#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/env/env_stream.h"
#include "services/env/shared_region.h"
#include "tests/services/env/fake_vector_env.h"
#include "tests/services/env/raw_learner.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"

// An EnvStream against a server that says what no server of ours would.

namespace flotilla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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
      {[](Step s) { s->set_active(std::string("\1\0", 2)); },
       "step.active is 0 in row 1, want 1: where an environment has one agent"},
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
