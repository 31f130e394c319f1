#include "services/env/env_service.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "services/env/ring.h"
#include "services/env/shared_region.h"
#include "tests/services/env/fake_vector_env.h"
#include "tests/services/env/raw_learner.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class EnvServiceTest : public testing::Test {
 protected:
  explicit EnvServiceTest(PlayOptions options = {})
      : service_(&factory_, options),
        server_({{v1::EnvService::service_full_name(), &service_}},
                [this] { service_.Shutdown(); }) {}

  std::shared_ptr<grpc::Channel> Channel() { return server_.Channel(); }

  // A well-behaved learner gets its rows: the server lives, and nobody holds
  // the seat.
  void ExpectServes() {
    RawLearner learner(Channel());
    v1::Hello hello = MakeHello();
    hello.set_learner_id("carol");
    learner.Send(hello);
    const auto welcome = learner.Receive();
    ASSERT_TRUE(welcome.has_value()) << learner.End();
    EXPECT_TRUE(welcome->has_welcome());
    learner.HalfClose();
    EXPECT_THAT(learner.End(), StatusIs(absl::StatusCode::kInvalidArgument));
  }

  absl::Status EndAfter(const std::function<void(RawLearner*)>& act) {
    RawLearner learner(Channel());
    act(&learner);
    return learner.End();
  }

  absl::Status EndAfterHello(const v1::Hello& hello) {
    return EndAfter([&](RawLearner* learner) { learner->Send(hello); });
  }

  absl::Status EndAfterActions(const v1::ActionBatch& actions) {
    return EndAfter([&](RawLearner* learner) {
      learner->Begin(MakeHello());
      learner->Send(actions);
    });
  }

  absl::StatusOr<v1::GetSpecResponse> GetSpec(const std::string& env_id) {
    grpc::ClientContext context;
    v1::GetSpecRequest request;
    request.set_env_id(env_id);
    v1::GetSpecResponse response;
    const grpc::Status status = v1::EnvService::NewStub(Channel())->GetSpec(
        &context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  FakeFactory factory_;
  EnvService service_;
  InProcessServer server_;
};

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
  const absl::Duration delay = absl::Seconds(1);
  factory_.set_delay(delay);
  const absl::Time begin = absl::Now();
  learner.Send(MakeActions(0, 0, {0, 0}));
  learner.Send(MakeActions(1, 0, {0, 0}));
  learner.Receive();
  EXPECT_GE(absl::Now() - begin, delay);
  learner.Receive();
  EXPECT_LT(absl::Now() - begin, 2 * delay);
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
      : EnvServiceTest({.hello_timeout = absl::Seconds(1),
                        .start_timeout = absl::Seconds(1),
                        .action_timeout = absl::Seconds(1)}) {}
};

TEST_F(ImpatientEnvServiceTest, SilentLearnerGetsADeadline) {
  EXPECT_THAT(EndAfter([](RawLearner*) {}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no hello came within 1s")));
  EXPECT_THAT(EndAfterHello(MakeHello()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no start came within 1s")));
  EXPECT_THAT(
      EndAfter([](RawLearner* learner) { learner->Begin(MakeHello()); }),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               HasSubstr("no actions came within 1s")));
  ExpectServes();
}

TEST_F(ImpatientEnvServiceTest, SlowStepIsNotTheLearnersSilence) {
  RawLearner learner(Channel());
  learner.Begin(MakeHello(4, 1));
  factory_.set_delay(absl::Seconds(2));
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

class SharedMemoryTest : public EnvServiceTest {
 protected:
  // The handshake up to the welcome.
  v1::Welcome Meet(RawLearner* learner) {
    v1::Hello hello = MakeHello();
    hello.set_offer_shared_memory(true);
    learner->Send(hello);
    return learner->Receive().value_or(v1::PlayReply()).welcome();
  }

  static v1::Start MakeStart(uint64_t slot_bytes, uint32_t num_slots) {
    v1::Start start;
    start.mutable_shared_memory()->set_slot_bytes(slot_bytes);
    start.mutable_shared_memory()->set_num_slots(num_slots);
    return start;
  }

  static constexpr size_t kSlot = 64;  // 2 rows of 2 floats, rounded up
};

TEST_F(SharedMemoryTest, RowsAreWrittenIntoTheGroupsSlot) {
  RawLearner learner(Channel());
  const v1::Welcome welcome = Meet(&learner);
  EXPECT_EQ(welcome.shared_memory_socket()[0], '@');
  ASSERT_OK_AND_ASSIGN(const SharedRegion region,
                       SharedRegion::Create(2 * kSlot));
  ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                       welcome.shared_memory_token(), region.fd()));
  learner.Send(MakeStart(kSlot, 2));
  for (uint32_t group : {0, 1}) {
    const auto reply = learner.Receive();
    ASSERT_TRUE(reply.has_value()) << learner.End();
    EXPECT_EQ(reply->step().payload_case(), v1::StepBatch::kSlot);
    EXPECT_EQ(reply->step().slot(), group);
  }
  learner.Send(MakeActions(1, 0, {0, 0}));
  learner.Receive();
  float seen[4];
  std::memcpy(seen, region.bytes().data() + kSlot, sizeof(seen));
  EXPECT_THAT(seen, ElementsAre(2, 1, 3, 1));
}

TEST_F(SharedMemoryTest, NotOfferedIsNotAccepted) {
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                learner->Send(MakeHello());
                learner->Receive();
                learner->Send(MakeStart(kSlot, 2));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the welcome announced no socket")));
}

TEST_F(SharedMemoryTest, OfferedMayStillBeInline) {
  RawLearner learner(Channel());
  Meet(&learner);
  learner.Send(v1::Start());
  EXPECT_TRUE(learner.Receive()->step().has_inline_());
}

TEST_F(SharedMemoryTest, SizesMustFit) {
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                Meet(learner);
                learner->Send(MakeStart(kSlot - 1, 2));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("slot_bytes is 63, want 64")));
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                Meet(learner);
                learner->Send(MakeStart(kSlot, 3));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_slots is 3, want 2")));
}

TEST_F(SharedMemoryTest, WrongTokenAndNoDescriptorAreRefused) {
  EXPECT_THAT(EndAfter([&](RawLearner* learner) {
                const v1::Welcome welcome = Meet(learner);
                const auto region = SharedRegion::Create(2 * kSlot);
                ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                                     std::string(16, 'x'), region->fd()));
                learner->Send(MakeStart(kSlot, 2));
              }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no descriptor came with the right token")));
  ExpectServes();
}

TEST_F(SharedMemoryTest, RegionOfTheWrongSizeIsRefused) {
  EXPECT_THAT(
      EndAfter([&](RawLearner* learner) {
        const v1::Welcome welcome = Meet(learner);
        const auto region = SharedRegion::Create(2 * kSlot - 1);
        ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                             welcome.shared_memory_token(), region->fd()));
        learner->Send(MakeStart(kSlot, 2));
      }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("has 127 bytes, want 128")));
  ExpectServes();
}

// A learner that writes what it likes into its ring.
class RingServiceTest : public SharedMemoryTest {
 protected:
  RingServiceTest() {
    const v1::EnvSpec spec = *factory_.Describe("Fake", v1::EnvOptions());
    layout_ = *MakeGroupLayout(spec, 4, 2);
    ring_layout_ = MakeRingLayout(spec, layout_);
  }

  v1::Welcome Meet(RawLearner* learner, bool offer_ring = true) {
    v1::Hello hello = MakeHello();
    hello.set_offer_shared_memory(true);
    hello.set_offer_ring(offer_ring);
    learner->Send(hello);
    return learner->Receive().value_or(v1::PlayReply()).welcome();
  }

  v1::Start MakeStart(uint64_t ring_bytes) const {
    v1::Start start = SharedMemoryTest::MakeStart(kSlot, 2);
    start.mutable_shared_memory()->set_ring_bytes(ring_bytes);
    return start;
  }

  // Up to both resets, which are in the ring.
  void Begin(RawLearner* learner) {
    const v1::Welcome welcome = Meet(learner);
    EXPECT_TRUE(welcome.ring());
    auto region = SharedRegion::Create(2 * kSlot + ring_layout_.bytes);
    ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                         welcome.shared_memory_token(), region->fd()));
    region_.emplace(*std::move(region));
    ring_ = std::make_unique<Ring>(region_->bytes().subspan(2 * kSlot),
                                   &ring_layout_, Ring::End::kLearner);
    learner->Send(MakeStart(ring_layout_.bytes));
    AwaitSteps(2);
  }

  void AwaitSteps(uint32_t count) {
    while (ring_->Waiting() < count) {
      ring_->Await(Ring::Clock::now() + std::chrono::seconds(10));
    }
    for (; count > 0; --count) ring_->Take();
  }

  void Post(int group, uint64_t seq, std::vector<int64_t> actions) {
    ASSERT_OK(PutActions(layout_, ring_layout_,
                         MakeActions(group, seq, actions), ring_->NextOut()));
    ring_->Post();
  }

  // How the stream ends after `spoil`.
  absl::Status EndAfterBegin(const std::function<void(RawLearner*)>& spoil) {
    return EndAfter([&](RawLearner* learner) {
      Begin(learner);
      spoil(learner);
    });
  }

  GroupLayout layout_;
  RingLayout ring_layout_;
  std::optional<SharedRegion> region_;
  std::unique_ptr<Ring> ring_;
};

TEST_F(RingServiceTest, WhatWasPostedBeforeTheHalfCloseIsStepped) {
  RawLearner learner(Channel());
  Begin(&learner);
  Post(1, 0, {0, 0});
  learner.HalfClose();
  EXPECT_OK(learner.End());
  EXPECT_EQ(service_.steps(), 2);
}

TEST_F(RingServiceTest, OnlyWhatWasAgreedOnIsARing) {
  RawLearner learner(Channel());
  EXPECT_FALSE(Meet(&learner, /*offer_ring=*/false).ring());
  learner.Send(MakeStart(ring_layout_.bytes));
  EXPECT_THAT(learner.End(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want 0: hello offered no ring")));
  EXPECT_THAT(EndAfter([&](RawLearner* other) {
                Meet(other);
                other->Send(MakeStart(64));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ring_bytes is 64, want 0 or ")));
}

TEST_F(RingServiceTest, ActionsInTheRingAreCheckedAsMessagesAre) {
  EXPECT_THAT(EndAfterBegin([&](auto*) {
                Post(2, 0, {0, 0});
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("actions.group is 2, want 0 to 1")));
  EXPECT_THAT(EndAfterBegin([&](auto*) {
                Post(0, 1, {0, 0});
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("actions.seq is 1, want 0")));
  EXPECT_THAT(EndAfterBegin([&](auto*) {
                Post(0, 0, {0, 3});
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is 3 in row 1, want 0 to 2")));
  factory_.Hold(0);
  EXPECT_THAT(
      EndAfter([&](RawLearner* learner) {
        const v1::Welcome welcome = Meet(learner);
        auto region = SharedRegion::Create(2 * kSlot + ring_layout_.bytes);
        ASSERT_OK(SendRegion(welcome.shared_memory_socket(),
                             welcome.shared_memory_token(), region->fd()));
        Ring ring(region->bytes().subspan(2 * kSlot), &ring_layout_,
                  Ring::End::kLearner);
        ring.Post();  // zeros: group 0, seq 0, whose reset is held
        learner->Send(MakeStart(ring_layout_.bytes));
      }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("came before its step 0 was sent")));
}

TEST_F(RingServiceTest, ActionsBesideTheRingAreRefused) {
  EXPECT_THAT(EndAfterBegin([&](RawLearner* learner) {
                learner->Send(MakeActions(0, 0, {0, 0}));
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the request is actions, want nothing")));
  ExpectServes();
}

}  // namespace
}  // namespace flotilla
