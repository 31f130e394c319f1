#ifndef FLOTILLA_TESTS_SERVICES_ENV_DEFECTIVE_SERVICE_H_
#define FLOTILLA_TESTS_SERVICES_ENV_DEFECTIVE_SERVICE_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/sync_stream.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/base/mutex.h"

namespace flotilla {

// What is wrong with one stream. Each function is the stream's own, so that it
// may remember; unset ones change nothing.
struct Defect {
  // Changes what the learner sent.
  std::function<void(v1::PlayRequest*)> request;
  // What the learner gets instead of a reply.
  std::function<std::vector<v1::PlayReply>(v1::PlayReply)> reply;
  // How the stream ends instead.
  std::function<grpc::Status(grpc::Status)> end;
  std::function<void(v1::GetSpecResponse*)> get_spec;
  // The learner's cancellation goes nowhere.
  bool ignores_cancel = false;
  // Where the stream is played; null: where all are.
  std::shared_ptr<grpc::Channel> backend;
};

// A server with a defect: real streams of a real server behind it, changed on
// their way.
class DefectiveService final
    : public v1::EnvService::WithCallbackMethod_Play<v1::EnvService::Service> {
 public:
  DefectiveService(std::shared_ptr<grpc::Channel> backend,
                   std::function<Defect()> make)
      : backend_(std::move(backend)), make_(std::move(make)) {}

  // Once its server has shut down.
  ~DefectiveService() override {
    for (std::thread& thread : threads_) thread.join();
  }

  grpc::ServerBidiReactor<v1::PlayRequest, v1::PlayReply>* Play(
      grpc::CallbackServerContext* context) override {
    Defect defect = make_();
    const auto channel = defect.backend ? defect.backend : backend_;
    auto* relay = new Relay(context, channel, std::move(defect));
    MutexLock lock(&mu_);
    threads_.emplace_back([relay] { relay->Run(); });
    return relay;
  }

  grpc::Status GetSpec(grpc::ServerContext*, const v1::GetSpecRequest* request,
                       v1::GetSpecResponse* response) override {
    grpc::ClientContext context;
    const grpc::Status status = v1::EnvService::NewStub(backend_)->GetSpec(
        &context, *request, response);
    if (const Defect defect = make_(); defect.get_spec) {
      defect.get_spec(response);
    }
    return status;
  }

 private:
  class Relay final
      : public grpc::ServerBidiReactor<v1::PlayRequest, v1::PlayReply> {
   public:
    Relay(grpc::CallbackServerContext* learner,
          const std::shared_ptr<grpc::Channel>& backend, Defect defect)
        : learner_(learner),
          defect_(std::move(defect)),
          stub_(v1::EnvService::NewStub(backend)),
          stream_(stub_->Play(&context_)) {
      StartRead(&request_);
    }

    // Until the stream is over; deletes this.
    void Run() {
      v1::PlayReply reply;
      while (stream_->Read(&reply)) {
        std::vector<v1::PlayReply> replies = {reply};
        if (defect_.reply) replies = defect_.reply(std::move(reply));
        for (const v1::PlayReply& changed : replies) WriteAndWait(changed);
      }
      grpc::Status status = stream_->Finish();
      if (defect_.end) status = defect_.end(std::move(status));
      Finish(status);
      {
        MutexLock lock(&mu_);
        while (!done_) lock.Wait(&changed_);
      }
      delete this;
    }

   private:
    void WriteAndWait(const v1::PlayReply& reply) {
      MutexLock lock(&mu_);
      if (cancelled_) return;
      writing_ = true;
      reply_ = reply;
      StartWrite(&reply_);
      while (writing_) lock.Wait(&changed_);
    }

    void OnReadDone(bool ok) override {
      if (!ok) {
        const bool stays = defect_.ignores_cancel && learner_->IsCancelled();
        if (!stays) stream_->WritesDone();
        return;
      }
      if (defect_.request) defect_.request(&request_);
      stream_->Write(request_);
      StartRead(&request_);
    }
    void OnWriteDone(bool) override {
      MutexLock lock(&mu_);
      writing_ = false;
      changed_.notify_all();
    }
    void OnCancel() override {
      {
        MutexLock lock(&mu_);
        cancelled_ = true;
      }
      if (!defect_.ignores_cancel) context_.TryCancel();
    }
    void OnDone() override {
      MutexLock lock(&mu_);
      done_ = true;
      changed_.notify_all();
    }

    grpc::CallbackServerContext* const learner_;
    const Defect defect_;
    grpc::ClientContext context_;
    const std::unique_ptr<v1::EnvService::Stub> stub_;
    const std::unique_ptr<
        grpc::ClientReaderWriter<v1::PlayRequest, v1::PlayReply>>
        stream_;
    v1::PlayRequest request_;
    v1::PlayReply reply_;  // gRPC's while it is written

    Mutex mu_;
    std::condition_variable changed_;
    bool writing_ ABSL_GUARDED_BY(mu_) = false;
    bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
    bool done_ ABSL_GUARDED_BY(mu_) = false;
  };

  const std::shared_ptr<grpc::Channel> backend_;
  const std::function<Defect()> make_;
  Mutex mu_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_ENV_DEFECTIVE_SERVICE_H_
