#include "services/env/dial_service.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "services/base/steady_now.h"
#include "services/env/dial_server.h"
#include "services/env/env_stream.h"
#include "services/rpc/grpc_status.h"
#include "tests/services/env/raw_learner.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

// A Dial call: an env server of one environment, that says what it is told to.
class RawServer {
 public:
  explicit RawServer(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::DialService::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(60));
    call_ = stub_->Dial(&context_);
  }
  RawServer(const std::shared_ptr<grpc::Channel>& channel,
            const std::string& id, uint64_t incarnation)
      : RawServer(channel) {
    Introduce(id, incarnation);
  }
  ~RawServer() { context_.TryCancel(); }

  void Introduce(const std::string& id, uint64_t incarnation) {
    v1::PlayReply reply;
    reply.mutable_introduction()->set_server_id(id);
    reply.mutable_introduction()->set_incarnation(incarnation);
    Send(reply);
  }
  bool Send(const v1::PlayReply& reply) { return call_->Write(reply); }
  std::optional<v1::PlayRequest> Receive() {
    v1::PlayRequest request;
    if (!call_->Read(&request)) return std::nullopt;
    return request;
  }
  // Hello, welcome, start and the reset; returns the hello.
  v1::Hello Begin() {
    const v1::Hello hello = Receive().value_or(v1::PlayRequest()).hello();
    v1::PlayReply reply;
    v1::Welcome* welcome = reply.mutable_welcome();
    welcome->set_protocol_version(1);
    welcome->set_autoreset_mode("same_step");
    welcome->mutable_spec()->set_env_id(hello.env_id());
    v1::Leaf* leaf = welcome->mutable_spec()->add_observation();
    leaf->set_dtype(v1::UINT8);
    leaf->add_shape(1);
    leaf = welcome->mutable_spec()->add_action();
    leaf->set_dtype(v1::INT64);
    leaf->set_num_values(3);
    Send(reply);
    Receive();
    Send(Step(0));
    return hello;
  }
  // The environment is seen as its steps, and rewarded with the last action.
  void Play(int steps) {
    for (int seq = 1; seq <= steps; ++seq) {
      const auto request = Receive();
      ASSERT_TRUE(request.has_value());
      ASSERT_EQ(request->actions().seq(), static_cast<uint64_t>(seq - 1));
      Send(Step(seq));
    }
  }
  static v1::PlayReply Step(uint64_t seq) {
    v1::PlayReply reply;
    v1::StepBatch* step = reply.mutable_step();
    step->set_seq(seq);
    step->mutable_inline_()->add_leaf(std::string(1, static_cast<char>(seq)));
    step->set_reward(std::string(sizeof(float), '\0'));
    step->set_terminated(std::string(1, '\0'));
    step->set_truncated(std::string(1, '\0'));
    step->mutable_final_observation()->add_leaf("");
    return reply;
  }
  void HalfClose() { call_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  absl::Status End() {
    while (Receive()) {
    }
    return FromGrpc(call_->Finish());
  }

 private:
  std::unique_ptr<v1::DialService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PlayReply, v1::PlayRequest>>
      call_;
};

class DialServiceTest : public testing::Test {
 protected:
  explicit DialServiceTest(const DialOptions& options = {})
      : service_(options),
        server_({{v1::DialService::service_full_name(), &service_}},
                [this] { service_.Shutdown(); }) {}

  std::shared_ptr<grpc::Channel> Channel() { return server_.Channel(); }

  absl::StatusOr<std::unique_ptr<PlayTransport>> Await(
      const std::string& id, absl::Duration timeout = kLong) {
    return service_.Await(id, timeout, {});
  }

  // Plays `id` as soon as it is there.
  absl::StatusOr<std::unique_ptr<EnvStream>> Open(
      const std::string& id, const EnvStreamOptions& options = {}) {
    auto transport = Await(id);
    if (!transport.ok()) return transport.status();
    return OpenEnvStream(*std::move(transport), id, MakeHello(1, 1), options);
  }

  void AwaitStreams(int count) {
    const absl::Time limit = SteadyNow() + kLong;
    while (service_.streams() != count && SteadyNow() < limit) {
      std::this_thread::yield();
    }
    EXPECT_EQ(service_.streams(), count);
  }

  DialService service_;
  InProcessServer server_;
};

TEST_F(DialServiceTest, WhoDialledInIsPlayedLikeAnyServer) {
  std::promise<absl::Status> end;
  std::thread robot([&] {
    RawServer server(Channel(), "env/robot", 1);
    EXPECT_EQ(server.Begin().learner_id(), "alice");
    server.Play(3);
    end.set_value(server.End());
  });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open("env/robot"));
  EXPECT_FALSE(stream->shares_memory());
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  for (uint64_t seq = 0; seq < 3; ++seq) {
    ASSERT_OK(stream->Send(MakeActions(0, seq, {1})));
    ASSERT_OK(stream->Receive(&batch));
    EXPECT_EQ(batch.seq(), seq + 1);
    EXPECT_EQ(stream->Observation(batch, 0)[0], static_cast<char>(seq + 1));
  }
  EXPECT_OK(stream->Finish());
  EXPECT_OK(end.get_future().get());
  robot.join();
  AwaitStreams(0);
}

TEST_F(DialServiceTest, NewerIncarnationTakesOverAtOnce) {
  // It never says a word more.
  RawServer half_dead(Channel(), "env/robot", 1);
  std::thread hello([&] { half_dead.Begin(); });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open("env/robot"));
  hello.join();
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Send(MakeActions(0, 0, {1})));
  EXPECT_FALSE(service_.Waits("env/robot"));

  const absl::Time begin = SteadyNow();
  RawServer next(Channel(), "env/robot", 2);
  EXPECT_THAT(stream->Receive(&batch),
              StatusIs(StatusCode::kAborted,
                       AllOf(HasSubstr("incarnation 2"),
                             HasSubstr("took over from incarnation 1"))));
  EXPECT_TRUE(service_.Waits("env/robot"));
  std::thread again([&] { next.Begin(); });
  ASSERT_OK_AND_ASSIGN(const auto stream2, Open("env/robot"));
  again.join();
  EXPECT_OK(stream2->Receive(&batch));
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(10));
  EXPECT_THAT(half_dead.End(), StatusIs(StatusCode::kAborted));
}

TEST_F(DialServiceTest, OlderIncarnationIsRefusedWhileANewerIsThere) {
  RawServer newer(Channel(), "env/robot", 2);
  ASSERT_OK_AND_ASSIGN(const auto taken, Await("env/robot"));
  for (const uint64_t incarnation : {1, 2}) {
    EXPECT_THAT(RawServer(Channel(), "env/robot", incarnation).End(),
                StatusIs(StatusCode::kAborted,
                         AllOf(HasSubstr("is here as incarnation 2"),
                               HasSubstr("want a newer one"))));
  }
}

TEST_F(DialServiceTest, WhoWaitsIsTakenOverToo) {
  RawServer first(Channel(), "env/robot", 1);
  while (!service_.Waits("env/robot")) std::this_thread::yield();
  RawServer second(Channel(), "env/robot", 2);
  EXPECT_THAT(first.End(), StatusIs(StatusCode::kAborted));
  EXPECT_TRUE(service_.Waits("env/robot"));
}

TEST_F(DialServiceTest, WhoGoesIsNotWaitedFor) {
  RawServer server(Channel(), "env/robot", 1);
  std::thread hello([&] { server.Begin(); });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open("env/robot"));
  hello.join();
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Send(MakeActions(0, 0, {1})));
  server.Cancel();
  EXPECT_THAT(stream->Receive(&batch), StatusIs(StatusCode::kUnavailable));
  EXPECT_FALSE(service_.Waits("env/robot"));
}

TEST_F(DialServiceTest, WhoClosesItsHalfHasEndedTheStream) {
  RawServer server(Channel(), "env/robot", 1);
  server.HalfClose();
  EXPECT_THAT(
      Open("env/robot").status(),
      StatusIs(StatusCode::kUnavailable, HasSubstr("ended the stream")));
  EXPECT_OK(server.End());
}

TEST_F(DialServiceTest, StepThatDoesNotComeIsTheStreamsEnd) {
  RawServer server(Channel(), "env/robot", 1);
  std::thread hello([&] { server.Begin(); });
  EnvStreamOptions options;
  options.step_timeout = absl::Milliseconds(50);
  ASSERT_OK_AND_ASSIGN(const auto stream, Open("env/robot", options));
  hello.join();
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Send(MakeActions(0, 0, {1})));
  EXPECT_THAT(stream->Receive(&batch), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(server.End(), StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(DialServiceTest, WelcomeThatDoesNotComeIsTheStreamsEnd) {
  RawServer server(Channel(), "env/robot", 1);
  EnvStreamOptions options;
  options.connect_timeout = absl::Milliseconds(50);
  EXPECT_THAT(Open("env/robot", options).status(),
              StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(server.End(), StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(DialServiceTest, WhatDoesNotFitIsNamedToBoth) {
  RawServer server(Channel(), "env/robot", 1);
  std::thread robot([&] {
    server.Begin();
    server.Receive();
    server.Send(RawServer::Step(7));
  });
  ASSERT_OK_AND_ASSIGN(const auto stream, Open("env/robot"));
  v1::StepBatch batch;
  ASSERT_OK(stream->Receive(&batch));
  ASSERT_OK(stream->Send(MakeActions(0, 0, {1})));
  EXPECT_THAT(
      stream->Receive(&batch),
      StatusIs(StatusCode::kInternal, HasSubstr("step.seq of group 0")));
  robot.join();
  EXPECT_THAT(server.End(), StatusIs(StatusCode::kInvalidArgument,
                                     HasSubstr("step.seq of group 0 is 7")));
}

TEST_F(DialServiceTest, IntroductionsAreChecked) {
  for (const std::string& id : {std::string(), std::string("a b"),
                                std::string("a\nb"), std::string(257, 'a')}) {
    EXPECT_THAT(RawServer(Channel(), id, 1).End(),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("introduction.server_id")));
  }
  RawServer rude(Channel());
  rude.Send(RawServer::Step(0));
  EXPECT_THAT(rude.End(), StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("no introduction")));
  RawServer silent(Channel());
  silent.HalfClose();
  EXPECT_THAT(silent.End(), StatusIs(StatusCode::kInvalidArgument,
                                     HasSubstr("want an introduction")));
  RawServer twice(Channel(), "env/robot", 1);
  twice.Introduce("env/robot", 1);
  EXPECT_THAT(Open("env/robot").status(), StatusIs(StatusCode::kInternal));
}

TEST_F(DialServiceTest, AwaitEndsInTimeOrWhenStopped) {
  EXPECT_THAT(
      Await("env/robot", absl::Milliseconds(20)),
      StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("env/robot did not")));
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    return service_.Await("env/robot", kLong, stop.get_token()).status();
  });
  stop.request_stop();
  EXPECT_THAT(waiting.get(), StatusIs(StatusCode::kCancelled));
}

TEST_F(DialServiceTest, ShutdownEndsStreamsAndThoseWhoWait) {
  RawServer waits(Channel(), "env/a", 1);
  RawServer plays(Channel(), "env/b", 1);
  ASSERT_OK_AND_ASSIGN(const auto taken, Await("env/b"));
  auto waiting =
      std::async(std::launch::async, [&] { return Await("env/c").status(); });
  while (!service_.Waits("env/a")) std::this_thread::yield();
  service_.Shutdown();
  EXPECT_THAT(waits.End(), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(plays.End(), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(waiting.get(), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(RawServer(Channel(), "env/d", 1).End(),
              StatusIs(StatusCode::kUnavailable));
}

// A peer that takes nothing any more cannot be told of the end.
TEST_F(DialServiceTest, WhoDoesNotReadHoldsNobodyUp) {
  RawServer deaf(Channel(), "env/robot", 1);
  ASSERT_OK_AND_ASSIGN(auto transport, Await("env/robot"));
  using Progress = PlayTransport::Progress;
  Progress progress = Progress::kDone;
  while (progress == Progress::kDone) {
    grpc::Slice slice(std::string(1 << 20, 'x'));
    grpc::ByteBuffer message(&slice, 1);
    progress = transport->Write(
        PlayTransport::Clock::now() + std::chrono::milliseconds(200), &message);
  }
  ASSERT_EQ(progress, Progress::kLate);
  const absl::Time begin = SteadyNow();
  transport.reset();
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(1));
  AwaitStreams(0);
}

class HastyDialServiceTest : public DialServiceTest {
 protected:
  HastyDialServiceTest()
      : DialServiceTest({.introduction_timeout = absl::Milliseconds(50)}) {}
};

TEST_F(HastyDialServiceTest, WhoIsSilentIsToldSo) {
  EXPECT_THAT(RawServer(Channel()).End(),
              StatusIs(StatusCode::kDeadlineExceeded,
                       HasSubstr("no introduction came within 50ms")));
}

class ImpatientDialServiceTest : public DialServiceTest {
 protected:
  ImpatientDialServiceTest()
      : DialServiceTest({.patience = absl::Milliseconds(50)}) {}
};

TEST_F(ImpatientDialServiceTest, WhoIsNotAwaitedIsToldSo) {
  EXPECT_THAT(RawServer(Channel(), "env/robot", 1).End(),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("nobody here awaits env server env/robot")));
  EXPECT_THAT(Await("env/robot", absl::ZeroDuration()),
              StatusIs(StatusCode::kDeadlineExceeded));
}

class NarrowDialServiceTest : public DialServiceTest {
 protected:
  NarrowDialServiceTest() : DialServiceTest({.max_streams = 2}) {}
};

TEST_F(NarrowDialServiceTest, StreamsAreLimited) {
  RawServer a(Channel(), "env/a", 1);
  RawServer b(Channel(), "env/b", 1);
  ASSERT_OK_AND_ASSIGN(const auto one, Await("env/a"));
  ASSERT_OK_AND_ASSIGN(const auto two, Await("env/b"));
  EXPECT_THAT(
      RawServer(Channel(), "env/c", 1).End(),
      StatusIs(StatusCode::kResourceExhausted, HasSubstr("2 streams open")));
}

TEST(DialServerTest, ListensOnlyAsServersMay) {
  EXPECT_THAT(DialServer::Start("0.0.0.0:0", "127.0.0.1:1", {}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("env.dial_listen \"0.0.0.0:0\""),
                             HasSubstr("without TLS or a token"))));
  RpcCredentials insecure;
  insecure.insecure = true;
  EXPECT_THAT(DialServer::Start("0.0.0.0:0", "no port", insecure),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no port")));
}

TEST(DialServerTest, TakesWhoShowsTheToken) {
  const TempDir dir;
  WriteFile(dir / "token", "secret\n");
  RpcCredentials credentials;
  credentials.token_file = dir / "token";
  ASSERT_OK_AND_ASSIGN(
      const auto dial,
      DialServer::Start("0.0.0.0:0", "127.0.0.1:1", credentials));
  EXPECT_THAT(dial->address(), testing::StartsWith("127.0.0.1:"));
  ASSERT_OK_AND_ASSIGN(const auto plain, MakeChannel(dial->address(), {}));
  EXPECT_THAT(RawServer(plain, "env/robot", 1).End(),
              StatusIs(StatusCode::kUnauthenticated));
  EXPECT_FALSE(dial->service()->Waits("env/robot"));
  ASSERT_OK_AND_ASSIGN(const auto channel,
                       MakeChannel(dial->address(), credentials));
  RawServer robot(channel, "env/robot", 1);
  EXPECT_OK(dial->service()->Await("env/robot", kLong, {}));
}

}  // namespace
}  // namespace flotilla
