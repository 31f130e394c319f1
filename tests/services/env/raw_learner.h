#ifndef FLOTILLA_TESTS_SERVICES_ENV_RAW_LEARNER_H_
#define FLOTILLA_TESTS_SERVICES_ENV_RAW_LEARNER_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {

inline v1::Hello MakeHello(int num_envs = 4, int num_groups = 2) {
  v1::Hello hello;
  hello.set_protocol_version(1);
  hello.set_learner_id("alice");
  hello.set_incarnation(5);
  hello.set_env_id("Fake");
  hello.set_num_envs(num_envs);
  hello.set_num_groups(num_groups);
  return hello;
}

inline v1::ActionBatch MakeActions(int group, uint64_t seq,
                                   const std::vector<int64_t>& actions) {
  v1::ActionBatch batch;
  batch.set_group(group);
  batch.set_seq(seq);
  batch.add_action(std::string(reinterpret_cast<const char*>(actions.data()),
                               actions.size() * sizeof(int64_t)));
  return batch;
}

// A Play stream without EnvStream's manners: sends whatever it is told to.
class RawLearner {
 public:
  explicit RawLearner(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::EnvService::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(60));
    stream_ = stub_->Play(&context_);
  }
  ~RawLearner() { context_.TryCancel(); }

  void Send(const v1::PlayRequest& request) { stream_->Write(request); }
  void Send(const v1::Hello& hello) {
    v1::PlayRequest request;
    *request.mutable_hello() = hello;
    Send(request);
  }
  void Send(const v1::Start& start) {
    v1::PlayRequest request;
    *request.mutable_start() = start;
    Send(request);
  }
  void Send(const v1::ActionBatch& actions) {
    v1::PlayRequest request;
    *request.mutable_actions() = actions;
    Send(request);
  }

  // Nullopt: the stream has ended.
  std::optional<v1::PlayReply> Receive() {
    v1::PlayReply reply;
    if (!stream_->Read(&reply)) return std::nullopt;
    return reply;
  }

  // Through the handshake and the reset batches of all groups.
  void Begin(const v1::Hello& hello) {
    Send(hello);
    Receive();
    Send(v1::Start());
    for (int g = 0; g < hello.num_groups(); ++g) Receive();
  }

  // Reads what is left and returns how the stream ended.
  absl::Status End() {
    while (Receive()) {
    }
    return FromGrpc(stream_->Finish());
  }

  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

 private:
  std::unique_ptr<v1::EnvService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PlayRequest, v1::PlayReply>>
      stream_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_ENV_RAW_LEARNER_H_
