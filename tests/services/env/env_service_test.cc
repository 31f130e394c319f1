#include "services/env/env_service.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "services/base/steady_now.h"
#include "tests/services/env/env_service_fixture.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(EnvServiceTest, WelcomesWithTheWholeSpecification) {
  RawLearner learner(Channel());
  learner.Send(MakeHello());
  const auto reply = learner.Receive();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->welcome().protocol_version(), 1u);
  EXPECT_EQ(reply->welcome().autoreset_mode(), "same_step");
  EXPECT_EQ(reply->welcome().spec().observation(0).dtype(), v1::FLOAT32);
  EXPECT_NE(reply->welcome().version(), "");
  EXPECT_EQ(reply->welcome().shared_memory_socket(), "");
}

TEST_F(EnvServiceTest, ResetBatchesComeUnaskedThenOneStepForEachActions) {
  RawLearner learner(Channel());
  learner.Send(MakeHello());
  learner.Receive();
  learner.Send(v1::Start());
  for (int group : {0, 1}) {
    const auto reply = learner.Receive();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->step().group(), group);
    EXPECT_EQ(reply->step().seq(), 0u);
    EXPECT_EQ(reply->step().inline_().leaf(0).size(), 2 * 2 * sizeof(float));
  }
  for (uint64_t seq = 0; seq < 3; ++seq) {
    learner.Send(MakeActions(1, seq, {0, 1}));
    const auto reply = learner.Receive();
    EXPECT_EQ(reply->step().group(), 1);
    EXPECT_EQ(reply->step().seq(), seq + 1);
    float reward[2], seen[4];
    std::memcpy(reward, reply->step().reward().data(), sizeof(reward));
    std::memcpy(seen, reply->step().inline_().leaf(0).data(), sizeof(seen));
    EXPECT_THAT(reward, ElementsAre(0, 1));
    EXPECT_THAT(seen, ElementsAre(2, seq + 1, 3, seq + 1));
  }
  EXPECT_EQ(service_.steps(), 6);
  EXPECT_EQ(service_.num_envs(), 4);
}

TEST_F(EnvServiceTest, GroupsAdvanceIndependently) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  factory_.Hold(0);
  learner.Send(MakeActions(0, 0, {2, 1}));
  for (uint64_t seq = 0; seq < 5; ++seq) {
    learner.Send(MakeActions(1, seq, {0, 0}));
    EXPECT_EQ(learner.Receive()->step().group(), 1);
  }
  // Its actions are still the ones that were sent for it.
  factory_.Release(0);
  const v1::StepBatch step = learner.Receive()->step();
  EXPECT_EQ(step.group(), 0);
  float reward[2];
  std::memcpy(reward, step.reward().data(), sizeof(reward));
  EXPECT_THAT(reward, ElementsAre(2, 1));
}

TEST_F(EnvServiceTest, DelayedGroupsSleepAtTheSameTime) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  const absl::Duration delay = absl::Seconds(3);
  factory_.set_delay(delay);
  const absl::Time begin = SteadyNow();
  learner.Send(MakeActions(0, 0, {0, 0}));
  learner.Send(MakeActions(1, 0, {0, 0}));
  learner.Receive();
  EXPECT_GE(SteadyNow() - begin, delay);
  learner.Receive();
  EXPECT_LT(SteadyNow() - begin, 2 * delay);
}

TEST_F(EnvServiceTest, HalfCloseEndsWithOk) {
  EXPECT_OK(EndAfter([](RawLearner* learner) {
    learner->Begin(MakeHello());
    learner->HalfClose();
  }));
  factory_.AwaitAlive(0);
  ExpectServes();
}

TEST_F(EnvServiceTest, CancellationFreesTheSeatAndTheEnvironments) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  factory_.Hold(1);
  learner.Send(MakeActions(1, 0, {0, 0}));
  factory_.AwaitHeld(1);
  learner.Cancel();
  EXPECT_THAT(learner.End(), StatusIs(absl::StatusCode::kCancelled));
  factory_.AwaitAlive(0);
  EXPECT_EQ(service_.num_envs(), 0);
  EXPECT_EQ(service_.steps(), 2);
  ExpectServes();
}

TEST_F(EnvServiceTest, HelloMustComeFirst) {
  EXPECT_THAT(EndAfter([](RawLearner* learner) { learner->Send(v1::Start()); }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the request is start, want hello")));
  EXPECT_THAT(
      EndAfter([](RawLearner* learner) { learner->Send(v1::PlayRequest()); }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("nothing, want hello")));
  EXPECT_THAT(EndAfter([](RawLearner* learner) { learner->HalfClose(); }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("closed the stream, want hello")));
  ExpectServes();
}

TEST_F(EnvServiceTest, StartMustComeSecond) {
  EXPECT_THAT(EndAfter([](RawLearner* learner) {
                learner->Send(MakeHello());
                learner->Send(MakeHello());
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the request is hello, want start")));
  ExpectServes();
}

TEST_F(EnvServiceTest, HelloFieldsAreCheckedByName) {
  struct Case {
    std::function<void(v1::Hello*)> spoil;
    absl::StatusCode code;
    std::string message;
  };
  const Case cases[] = {
      {[](v1::Hello* h) { h->set_protocol_version(2); },
       absl::StatusCode::kFailedPrecondition, "hello.protocol_version is 2"},
      {[](v1::Hello* h) { h->set_learner_id(""); },
       absl::StatusCode::kInvalidArgument, "hello.learner_id"},
      {[](v1::Hello* h) { h->set_learner_id(std::string(1000, 'a')); },
       absl::StatusCode::kInvalidArgument, "hello.learner_id has 1000 bytes"},
      {[](v1::Hello* h) { h->set_num_envs(0); },
       absl::StatusCode::kInvalidArgument, "hello.num_envs is 0, want 1 to"},
      {[](v1::Hello* h) { h->set_num_envs(-4); },
       absl::StatusCode::kInvalidArgument, "hello.num_envs is -4"},
      {[](v1::Hello* h) { h->set_num_envs(1 << 30); },
       absl::StatusCode::kInvalidArgument, "hello.num_envs is 1073741824"},
      {[](v1::Hello* h) { h->set_num_groups(3); },
       absl::StatusCode::kInvalidArgument, "hello.num_groups is 3"},
      {[](v1::Hello* h) { h->set_num_groups(0); },
       absl::StatusCode::kInvalidArgument, "hello.num_groups is 0"},
      {[](v1::Hello* h) { h->set_num_groups(-2); },
       absl::StatusCode::kInvalidArgument, "hello.num_groups is -2"},
      {[](v1::Hello* h) { h->set_env_id(""); },
       absl::StatusCode::kInvalidArgument, "hello.env_id has 0 bytes"},
      {[](v1::Hello* h) { h->set_env_id("Nothing-v1"); },
       absl::StatusCode::kNotFound, "no \"Nothing-v1\""},
      {[](v1::Hello* h) { h->mutable_options()->set_max_episode_steps(-1); },
       absl::StatusCode::kInvalidArgument, "max_episode_steps is -1"},
      {[](v1::Hello* h) { h->set_env_id("Broken"); },
       absl::StatusCode::kInternal, "does not work"},
  };
  for (const Case& c : cases) {
    v1::Hello hello = MakeHello();
    c.spoil(&hello);
    EXPECT_THAT(EndAfterHello(hello), StatusIs(c.code, HasSubstr(c.message)));
  }
  ExpectServes();
}

TEST_F(EnvServiceTest, ActionFieldsAreCheckedByName) {
  struct Case {
    v1::ActionBatch actions;
    std::string message;
  };
  v1::ActionBatch two_leaves = MakeActions(0, 0, {0, 0});
  two_leaves.add_action("");
  v1::ActionBatch short_leaf = MakeActions(0, 0, {0, 0});
  short_leaf.mutable_action(0)->pop_back();
  const Case cases[] = {
      {MakeActions(2, 0, {0, 0}), "actions.group is 2, want 0 to 1"},
      {MakeActions(-1, 0, {0, 0}), "actions.group is -1"},
      {MakeActions(0, 1, {0, 0}), "actions.seq is 1, want 0"},
      {MakeActions(0, ~0ull, {0, 0}), "actions.seq is 18446744073709551615"},
      {MakeActions(0, 0, {0}), "has 8 bytes, want 16 (2 rows of 8)"},
      {MakeActions(0, 0, {0, 0, 0}), "has 24 bytes, want 16"},
      {MakeActions(0, 0, {0, 3}), "is 3 in row 1, want 0 to 2"},
      {MakeActions(0, 0, {-1, 0}), "is -1 in row 0, want 0 to 2"},
      {two_leaves, "actions.action has 2 leaves, want 1"},
      {short_leaf, "env \"Fake\": actions.action[0] (leaf \"\") has 15 bytes"},
      {v1::ActionBatch(), "actions.action has 0 leaves"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(
        EndAfterActions(c.actions),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
  ExpectServes();
}

TEST_F(EnvServiceTest, ActionsBeforeTheirStepAreRefused) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  factory_.Hold(0);
  learner.Send(MakeActions(0, 0, {0, 0}));
  factory_.AwaitHeld(0);
  learner.Send(MakeActions(0, 0, {0, 0}));
  EXPECT_THAT(learner.End(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("came before its step 1")));
}

TEST_F(EnvServiceTest, OnlyActionsAreTakenWhilePlaying) {
  EXPECT_THAT(EndAfter([](RawLearner* learner) {
                learner->Begin(MakeHello());
                learner->Send(v1::Start());
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the request is start, want actions")));
  EXPECT_THAT(EndAfter([](RawLearner* learner) {
                learner->Begin(MakeHello());
                learner->Send(MakeActions(0, 0, {0, 0}));
                learner->Receive();
                learner->Send(v1::PlayRequest());  // empty, after actions
              }),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ExpectServes();
}

// Sends `bytes` as the first message, unseen by Protobuf.
absl::Status SendBytes(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call =
      stub.PrepareCall(&context, "/flotilla.v1.EnvService/Play", &queue);
  void* tag;
  bool ok;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(bytes);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return FromGrpc(status);
}

TEST_F(EnvServiceTest, MalformedMessageIsAStatus) {
  EXPECT_THAT(SendBytes(Channel(), "\x0a\xff\xff\xff\x7f no hello"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is not a flotilla.v1.PlayRequest")));
  ExpectServes();
}

TEST_F(EnvServiceTest, OversizedMessageIsAStatus) {
  // The sender's own limit must not stop it first.
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto channel = grpc::CreateCustomChannel(
      server_.address(), grpc::InsecureChannelCredentials(), arguments);
  EXPECT_THAT(SendBytes(channel, std::string(kMaxMessageBytes + 1, '\0')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("larger than max")));
  ExpectServes();
}

TEST_F(EnvServiceTest, AnotherLearnerIsRefusedAndToldWhoPlays) {
  RawLearner alice(Channel());
  alice.Begin(MakeHello());
  v1::Hello hello = MakeHello();
  hello.set_learner_id("bob");
  EXPECT_THAT(EndAfterHello(hello),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("learner \"alice\" is playing 4 x Fake"),
                             HasSubstr("\"bob\""))));
  alice.Send(MakeActions(0, 0, {0, 0}));
  EXPECT_TRUE(alice.Receive().has_value());
}

TEST_F(EnvServiceTest, NewerIncarnationTakesOver) {
  RawLearner older(Channel());
  older.Begin(MakeHello());
  RawLearner newer(Channel());
  v1::Hello hello = MakeHello();
  hello.set_incarnation(6);
  newer.Begin(hello);
  EXPECT_THAT(older.End(),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("incarnation 6 of learner \"alice\"")));
  newer.Send(MakeActions(0, 0, {0, 0}));
  EXPECT_EQ(newer.Receive()->step().seq(), 1u);
}

TEST_F(EnvServiceTest, OlderOrEqualIncarnationIsRefused) {
  RawLearner newer(Channel());
  newer.Begin(MakeHello());
  for (uint64_t incarnation : {4, 5}) {
    v1::Hello hello = MakeHello();
    hello.set_incarnation(incarnation);
    EXPECT_THAT(EndAfterHello(hello),
                StatusIs(absl::StatusCode::kAborted,
                         HasSubstr("is playing here as incarnation 5")));
  }
  newer.Send(MakeActions(0, 0, {0, 0}));
  EXPECT_TRUE(newer.Receive().has_value());
}

TEST_F(EnvServiceTest, LearnerThatDoesNotReadCannotKeepTheSeat) {
  // Larger than any flow-control window: the older stream's write cannot end.
  RawLearner older(Channel());
  v1::Hello hello = MakeHello(4096, 1);
  older.Send(hello);
  older.Send(v1::Start());
  hello.set_incarnation(6);
  RawLearner newer(Channel());
  newer.Begin(hello);
  EXPECT_EQ(service_.num_envs(), 4096);
}

TEST_F(EnvServiceTest, ShutdownEndsStreamsWithUnavailable) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  service_.Shutdown();
  EXPECT_THAT(learner.End(), StatusIs(absl::StatusCode::kUnavailable,
                                      HasSubstr("shuts down")));
  EXPECT_THAT(EndAfterHello(MakeHello()),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(service_.AwaitStreams(absl::Seconds(30)));
}

TEST_F(EnvServiceTest, AwaitStreamsGivesUpAtTheTimeout) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  EXPECT_FALSE(service_.AwaitStreams(absl::Milliseconds(20)));
}

TEST_F(EnvServiceTest, GetSpecListsAndDescribes) {
  ASSERT_OK_AND_ASSIGN(v1::GetSpecResponse response, GetSpec(""));
  EXPECT_THAT(response.env_id(), ElementsAre("Broken", "Fake"));
  EXPECT_FALSE(response.has_spec());
  EXPECT_EQ(response.session_size(), 0);
  ASSERT_OK_AND_ASSIGN(response, GetSpec("Fake"));
  EXPECT_EQ(response.spec().action(0).num_values(), 3);
  EXPECT_THAT(GetSpec("Nothing"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(EnvServiceTest, GetSpecTellsWhoPlays) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  learner.Send(MakeActions(0, 0, {2, 1}));
  learner.Receive();
  learner.Send(MakeActions(1, 0, {1, 1}));
  learner.Receive();
  ASSERT_OK_AND_ASSIGN(const v1::GetSpecResponse response, GetSpec(""));
  EXPECT_EQ(response.spec().env_id(), "Fake");
  ASSERT_EQ(response.session_size(), 1);
  EXPECT_EQ(response.session(0).learner_id(), "alice");
  EXPECT_EQ(response.session(0).incarnation(), 5u);
  EXPECT_EQ(response.session(0).env_id(), "Fake");
  EXPECT_EQ(response.session(0).num_envs(), 4);
  EXPECT_EQ(response.session(0).steps(), 4);
  EXPECT_EQ(response.session(0).episodes(), 1);
  EXPECT_GT(response.session(0).seconds(), 0);
}

class ImpatientEnvServiceTest : public EnvServiceTest {
 protected:
  ImpatientEnvServiceTest()
      : EnvServiceTest({.hello_timeout = absl::Seconds(3),
                        .start_timeout = absl::Seconds(3),
                        .action_timeout = absl::Seconds(3)}) {}
};

TEST_F(ImpatientEnvServiceTest, SilentLearnerGetsADeadline) {
  EXPECT_THAT(EndAfter([](RawLearner*) {}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no hello came within 3s")));
  EXPECT_THAT(EndAfterHello(MakeHello()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no start came within 3s")));
  EXPECT_THAT(
      EndAfter([](RawLearner* learner) { learner->Begin(MakeHello()); }),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               HasSubstr("no actions came within 3s")));
  ExpectServes();
}

TEST_F(ImpatientEnvServiceTest, SlowStepIsNotTheLearnersSilence) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello(4, 1));
  factory_.set_delay(absl::Seconds(4));
  learner.Send(MakeActions(0, 0, {0, 0, 0, 0}));
  EXPECT_TRUE(learner.Receive().has_value());
}

class NarrowEnvServiceTest : public EnvServiceTest {
 protected:
  NarrowEnvServiceTest() : EnvServiceTest({.max_streams = 1}) {}
};

TEST_F(NarrowEnvServiceTest, StreamsAreLimited) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello());
  EXPECT_THAT(EndAfterHello(MakeHello()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("has 1 streams open")));
}

}  // namespace
}  // namespace flotilla
