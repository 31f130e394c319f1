#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/base/steady_now.h"
#include "services/coordinator/session_client.h"
#include "tests/services/coordinator/coordinator_program.h"
#include "tests/testing/status_matchers.h"

// One coordinator with a thousand learners and thousands of env servers, all
// simulated here: nobody is taken for dead, everybody meets in one generation,
// and a fence reaches everybody soon.
//
//   FLOTILLA_LOAD_LEARNERS, FLOTILLA_LOAD_ENV_SERVERS: how many.

namespace flotilla {
namespace {

using Stub = v1::CoordinatorService::Stub;

constexpr int kMembersPerConnection = 100;

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  int value = otherwise;
  if (text != nullptr && !absl::SimpleAtoi(text, &value)) return otherwise;
  return value;
}

// User and system time of a process so far, in seconds.
double CpuSeconds(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(stat.rfind(')') + 2), ' ');
  double user = 0, system = 0;
  EXPECT_TRUE(absl::SimpleAtod(fields[11], &user));
  EXPECT_TRUE(absl::SimpleAtod(fields[12], &system));
  return (user + system) / sysconf(_SC_CLK_TCK);
}

double ResidentBytes(pid_t pid) {
  const std::vector<std::string> fields =
      absl::StrSplit(ReadFile(absl::StrCat("/proc/", pid, "/statm")), ' ');
  double pages = 0;
  EXPECT_TRUE(absl::SimpleAtod(fields[1], &pages));
  return pages * sysconf(_SC_PAGESIZE);
}

// Registers, keeps a session and joins, without a thread.
class FakeMember {
 public:
  FakeMember(v1::Member member, std::shared_ptr<Stub> stub)
      : member_(std::move(member)), stub_(std::move(stub)) {}

  void Register(std::latch* done) {
    auto call =
        std::make_shared<Unary<v1::RegisterRequest, v1::RegisterResponse>>();
    *call->request.mutable_member() = member_;
    stub_->async()->Register(&call->context, &call->request, &call->response,
                             [call, done](const grpc::Status& status) {
                               EXPECT_TRUE(status.ok())
                                   << status.error_message();
                               done->count_down();
                             });
  }

  void Join(std::latch* done) {
    auto call =
        std::make_shared<Unary<v1::JoinGenerationRequest, v1::Assignment>>();
    call->request.set_member_id(member_.id());
    call->request.set_incarnation(member_.incarnation());
    call->request.set_timeout_ms(60'000);
    stub_->async()->JoinGeneration(
        &call->context, &call->request, &call->response,
        [this, call, done](const grpc::Status& status) {
          EXPECT_TRUE(status.ok()) << status.error_message();
          generation_ = call->response.generation();
          done->count_down();
        });
  }

  void OpenSession(std::atomic<int>* answers, std::atomic<int>* fenced,
                   std::latch* over) {
    session_ = SessionClient::Start(
        stub_, {[this, answers, fenced](const v1::Command& command) {
                  ++*answers;
                  if (command.fenced_generation() > 0 && !fenced_) {
                    fenced_ = true;
                    ++*fenced;
                  }
                },
                [over](const absl::Status&) { over->count_down(); }});
  }

  void Beat() {
    v1::Heartbeat beat;
    beat.set_member_id(member_.id());
    beat.set_incarnation(member_.incarnation());
    beat.set_generation(generation_);
    beat.set_phase(v1::STEPPING);
    beat.set_steps_per_second(1);
    session_->Send(beat);
  }

  void CloseSession() { session_->Cancel(); }

 private:
  template <typename Request, typename Response>
  struct Unary {
    grpc::ClientContext context;
    Request request;
    Response response;
  };

  const v1::Member member_;
  const std::shared_ptr<Stub> stub_;
  std::unique_ptr<SessionClient> session_;
  std::atomic<uint64_t> generation_ = 0;
  bool fenced_ = false;  // of the session's reactions
};

TEST(CoordinatorLoadTest, HoldsAThousandLearnersAndTheirEnvServers) {
  const int learners = FromEnvironment("FLOTILLA_LOAD_LEARNERS", 1000);
  const int servers = FromEnvironment("FLOTILLA_LOAD_ENV_SERVERS", 2000);
  const int members = learners + servers;
  CoordinatorProgram program({"--listen=127.0.0.1:0",
                              absl::StrCat("--min_learners=", learners),
                              "--dead_after_seconds=60"});
  const std::string address = program.AwaitAddress();
  ASSERT_NE(address, "") << program.Log();
  const pid_t pid = program.process()->pid();
  const double empty = ResidentBytes(pid);

  std::vector<std::shared_ptr<Stub>> stubs;
  std::vector<std::unique_ptr<FakeMember>> everyone;
  for (int i = 0; i < members; ++i) {
    if (i % kMembersPerConnection == 0) {
      ASSERT_OK_AND_ASSIGN(auto channel,
                           MakeChannel(address, {}, TestMember()));
      stubs.push_back(v1::CoordinatorService::NewStub(channel));
    }
    v1::Member member = TestLearner(i);
    if (i >= learners) {
      member.set_id(absl::StrCat("env/host/", i));
      member.set_role(v1::ENV_SERVER);
    }
    everyone.push_back(
        std::make_unique<FakeMember>(std::move(member), stubs.back()));
  }
  std::latch registered(members);
  for (const auto& member : everyone) member->Register(&registered);
  registered.wait();

  std::atomic<int> answers = 0, fenced = 0;
  std::latch over(members);
  for (const auto& member : everyone) {
    member->OpenSession(&answers, &fenced, &over);
  }
  // Heartbeats, spread over each second as those of real members are.
  std::atomic<bool> quit = false;
  std::atomic<int> sent = 0;
  std::thread beats([&] {
    constexpr int kSlices = 20;
    const absl::Time start = SteadyNow();
    for (int slice = 0; !quit; ++slice) {
      for (size_t i = slice % kSlices; i < everyone.size(); i += kSlices) {
        everyone[i]->Beat();
        ++sent;
      }
      absl::SleepFor(start + (slice + 1) * absl::Seconds(1) / kSlices -
                     SteadyNow());
    }
  });

  const absl::Time joining = SteadyNow();
  std::latch joined(learners);
  for (int i = 0; i < learners; ++i) everyone[i]->Join(&joined);
  joined.wait();
  const absl::Duration forming = SteadyNow() - joining;

  const double cpu = CpuSeconds(pid);
  const int answers_before = answers, sent_before = sent;
  absl::SleepFor(absl::Seconds(4));  // what is measured, not waited for
  const double used = CpuSeconds(pid) - cpu;
  const int answered = answers - answers_before;

  const absl::Time failing = SteadyNow();
  v1::ReportFailureRequest failure;
  failure.set_generation(1);
  failure.set_member_id(TestLearner(0).id());
  failure.set_reason("a test");
  ASSERT_OK(Call(stubs[0].get(), &Stub::ReportFailure, failure));
  EXPECT_TRUE(Eventually([&] { return fenced == members; }));
  const absl::Duration fencing = SteadyNow() - failing;

  ASSERT_OK_AND_ASSIGN(
      const v1::Status status,
      Call(stubs[0].get(), &Stub::GetStatus, v1::GetStatusRequest()));
  EXPECT_EQ(status.learner_size(), learners);
  EXPECT_EQ(status.env_server_size(), servers);
  EXPECT_EQ(status.fence_reason(), "rank 0 (learner/0/0) reported: a test");
  EXPECT_GT(answered, (sent - sent_before) / 2);
  EXPECT_LT(fencing, absl::Seconds(20));

  std::cout << absl::StrFormat(
      "%d learners, %d env servers: generation formed in %.2f s; fence reached "
      "all in %.3f s; %d heartbeats answered in 4 s with %.2f s of CPU, %.0f "
      "us each; %.0f MB resident, %.1f KB a member\n",
      learners, servers, absl::ToDoubleSeconds(forming),
      absl::ToDoubleSeconds(fencing), answered, used, 1e6 * used / answered,
      ResidentBytes(pid) / 1e6, (ResidentBytes(pid) - empty) / members / 1e3);

  quit = true;
  beats.join();
  for (const auto& member : everyone) member->CloseSession();
  over.wait();
}

}  // namespace
}  // namespace flotilla
