#ifndef FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_SERVICE_FIXTURE_H_
#define FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_SERVICE_FIXTURE_H_

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/testing/status_matchers.h"

// The service on the wire, as a client that is not ours sees it.

namespace flotilla {

// A Session call by hand.
class RawSession {
 public:
  explicit RawSession(v1::CoordinatorService::Stub* stub) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(60));
    stream_ = stub->Session(&context_);
  }

  bool Send(
      const v1::Member& member, uint64_t generation = 0,
      const google::protobuf::RepeatedPtrField<v1::Change>& changes = {}) {
    v1::Heartbeat beat;
    beat.set_member_id(member.id());
    beat.set_incarnation(member.incarnation());
    beat.set_generation(generation);
    beat.set_phase(v1::STEPPING);
    *beat.mutable_change() = changes;
    return stream_->Write(beat);
  }
  bool Read(v1::Command* command) { return stream_->Read(command); }

  // Reads on until a command fits: there may be older ones on the way. False,
  // with the last one, if none does.
  bool ReadUntil(const std::function<bool(const v1::Command&)>& fits,
                 v1::Command* command) {
    while (stream_->Read(command)) {
      if (fits(*command)) return true;
    }
    return false;
  }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  absl::Status Finish() {
    v1::Command rest;
    while (stream_->Read(&rest)) {
    }
    return FromGrpc(stream_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::Heartbeat, v1::Command>> stream_;
};

// A WatchStatus call by hand: told of every change, and each `interval_ms`.
class RawWatch {
 public:
  explicit RawWatch(v1::CoordinatorService::Stub* stub,
                    int64_t interval_ms = 60'000) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(60));
    v1::WatchStatusRequest request;
    request.set_interval_ms(interval_ms);
    stream_ = stub->WatchStatus(&context_, request);
  }
  ~RawWatch() { Cancel(); }

  bool Read(v1::Status* status) { return stream_->Read(status); }
  void Cancel() { context_.TryCancel(); }
  absl::Status Finish() {
    v1::Status rest;
    while (stream_->Read(&rest)) {
    }
    return FromGrpc(stream_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Status>> stream_;
};

class CoordinatorServiceTest : public ::testing::Test {
 protected:
  using Stub = v1::CoordinatorService::Stub;

  void Start(int min, int max) { Start(TestCoordinator::Options(min, max)); }
  void Start(const CoordinatorServiceOptions& options) {
    coordinator_.reset();
    coordinator_ = std::make_unique<TestCoordinator>(options);
    stub_ = coordinator_->Stub();
  }

  absl::StatusOr<v1::RegisterResponse> Register(const v1::Member& member) {
    v1::RegisterRequest request;
    *request.mutable_member() = member;
    return Call(stub_.get(), &Stub::Register, request);
  }

  absl::StatusOr<v1::Assignment> Join(const v1::Member& member,
                                      int64_t timeout_ms = 10'000,
                                      uint64_t after = 0) {
    v1::JoinGenerationRequest request;
    request.set_member_id(member.id());
    request.set_incarnation(member.incarnation());
    request.set_timeout_ms(timeout_ms);
    request.set_after_generation(after);
    return Call(stub_.get(), &Stub::JoinGeneration, request);
  }

  absl::Status Fail(const v1::Member& member, uint64_t generation) {
    v1::ReportFailureRequest request;
    request.set_member_id(member.id());
    request.set_generation(generation);
    request.set_reason("it broke");
    return Call(stub_.get(), &Stub::ReportFailure, request).status();
  }

  absl::Status Set(uint64_t generation, const std::string& key,
                   const std::string& value) {
    v1::KvSetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_value(value);
    return Call(stub_.get(), &Stub::KvSet, request).status();
  }

  absl::StatusOr<std::string> Get(uint64_t generation, const std::string& key,
                                  int64_t timeout_ms = 10'000) {
    v1::KvGetRequest request;
    request.set_generation(generation);
    request.set_key(key);
    request.set_timeout_ms(timeout_ms);
    auto response = Call(stub_.get(), &Stub::KvGet, request);
    if (!response.ok()) return response.status();
    return response->value();
  }

  v1::Status GetStatus() {
    return *Call(stub_.get(), &Stub::GetStatus, v1::GetStatusRequest());
  }

  // A world of one, whose member sends no heartbeats.
  void FormOne() {
    ASSERT_OK(Register(TestLearner(0)));
    ASSERT_OK(Join(TestLearner(0)));
  }

  std::unique_ptr<TestCoordinator> coordinator_;
  std::unique_ptr<Stub> stub_;
};

// Declares nobody dead, nor suspect for a silence.
inline CoordinatorServiceOptions Patient(int min, int max) {
  CoordinatorServiceOptions options = TestCoordinator::Options(min, max);
  options.roster.heartbeat = absl::Seconds(20);
  options.roster.dead_after = absl::Seconds(60);
  return options;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_SERVICE_FIXTURE_H_
