#ifndef FLOTILLA_TESTS_SERVICES_ENV_ENV_SERVICE_FIXTURE_H_
#define FLOTILLA_TESTS_SERVICES_ENV_ENV_SERVICE_FIXTURE_H_

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "services/env/env_service.h"
#include "tests/services/env/fake_vector_env.h"
#include "tests/services/env/raw_learner.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {

// An EnvService of fake environments, and learners that say what a test has them say.
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

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_ENV_ENV_SERVICE_FIXTURE_H_
