#include "envserver/gym_vector_env.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "flotilla/v1/env.grpc.pb.h"
#include "services/base/status_macros.h"
#include "services/rpc/channel.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

// To make the environments, after Gymnasium is loaded. Whoever asks gives up when it
// likes, a learner after env.reset_timeout_seconds.
constexpr absl::Duration kMakeTimeout = absl::Minutes(10);

}  // namespace

absl::StatusOr<v1::EnvSpec> DescribeGym(const std::string& env_id,
                                        const v1::EnvOptions& options) {
  ASSIGN_OR_RETURN(const auto server, GymServer::Start({}));
  ASSIGN_OR_RETURN(const auto channel, MakeChannel(server->address(), {}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(kMakeTimeout));
  v1::GetSpecRequest request;
  request.set_env_id(env_id);
  *request.mutable_options() = options;
  v1::GetSpecResponse response;
  const auto stub = v1::EnvService::NewStub(channel);
  RETURN_IF_ERROR(
      server->Explain(FromGrpc(stub->GetSpec(&context, request, &response))));
  return response.spec();
}

absl::StatusOr<std::unique_ptr<GymVectorEnv>> GymVectorEnv::Make(
    v1::Hello hello, GymServerOptions options, Listener* listener) {
  options.max_num_envs = hello.num_envs();
  ASSIGN_OR_RETURN(auto server, GymServer::Start(options));
  hello.set_offer_shared_memory(true);
  hello.set_offer_ring(true);
  EnvStreamOptions play;
  play.connect_timeout = kMakeTimeout;
  // How long a step may take is the learner's to say.
  play.reset_timeout = absl::InfiniteDuration();
  play.step_timeout = absl::InfiniteDuration();
  auto stream = OpenEnvStream(server->address(), std::move(hello), play);
  if (!stream.ok()) return server->Explain(stream.status());
  return std::unique_ptr<GymVectorEnv>(
      new GymVectorEnv(std::move(server), *std::move(stream), listener));
}

GymVectorEnv::GymVectorEnv(std::unique_ptr<GymServer> server,
                           std::unique_ptr<EnvStream> stream,
                           Listener* listener)
    : server_(std::move(server)),
      stream_(std::move(stream)),
      listener_(listener),
      thread_([this] { ThreadMain(); }) {}

GymVectorEnv::~GymVectorEnv() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    work_.notify_all();
  }
  stream_->Cancel();
  thread_.join();
}

void GymVectorEnv::Reset(int group, ObservationBuffers observation,
                         v1::StepBatch* out) {
  Begin({nullptr, observation, out, group});
}

void GymVectorEnv::Step(int group, const v1::ActionBatch& actions,
                        ObservationBuffers observation, v1::StepBatch* out) {
  Begin({&actions, observation, out, group});
}

void GymVectorEnv::Begin(const Operation& operation) {
  MutexLock lock(&mu_);
  queue_.push_back(operation);
  work_.notify_all();
}

void GymVectorEnv::ThreadMain() {
  for (;;) {
    Operation operation;
    {
      MutexLock lock(&mu_);
      while (!stop_ && queue_.empty()) lock.Wait(&work_);
      if (stop_) return;
      operation = queue_.front();
      queue_.pop_front();
    }
    if (absl::Status status = Run(operation); !status.ok()) {
      listener_->OnFailure(server_->Explain(status));
      return;
    }
    listener_->OnGroupDone(operation.group, absl::ZeroDuration());
  }
}

// The Python server answers in order: the next batch is the operation's.
absl::Status GymVectorEnv::Run(const Operation& operation) {
  if (operation.actions != nullptr) {
    RETURN_IF_ERROR(stream_->Send(*operation.actions));
  }
  RETURN_IF_ERROR(stream_->Receive(&batch_));
  if (batch_.group() != operation.group) {
    return absl::InternalError(absl::StrCat("step.group is ", batch_.group(),
                                            ", want ", operation.group));
  }
  for (size_t i = 0; i < operation.observation.size(); ++i) {
    const absl::string_view leaf =
        stream_->Observation(batch_, static_cast<int>(i));
    std::memcpy(operation.observation[i].data(), leaf.data(), leaf.size());
  }
  v1::StepBatch* out = operation.out;
  out->mutable_reward()->swap(*batch_.mutable_reward());
  out->mutable_terminated()->swap(*batch_.mutable_terminated());
  out->mutable_truncated()->swap(*batch_.mutable_truncated());
  out->mutable_final_row()->Swap(batch_.mutable_final_row());
  out->mutable_final_observation()->Swap(batch_.mutable_final_observation());
  out->mutable_episode_end()->Swap(batch_.mutable_episode_end());
  out->mutable_error()->Swap(batch_.mutable_error());
  out->mutable_active()->swap(*batch_.mutable_active());
  return absl::OkStatus();
}

}  // namespace flotilla
