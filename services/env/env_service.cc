#include "services/env/env_service.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/version.h"
#include "services/env/replay_call.h"
#include "services/rpc/grpc_status.h"
#include "services/rpc/refused_stream.h"

namespace flotilla {
namespace {

absl::Status ShutDownError() {
  return absl::UnavailableError("the env server shuts down");
}

}  // namespace

EnvService::~EnvService() {
  Shutdown();
  MutexLock lock(&mu_);
  while (!streams_.empty() || replays_ > 0) lock.Wait(&ended_);
}

void EnvService::Shutdown() {
  MutexLock lock(&mu_);
  shut_down_ = true;
  for (PlayStream* stream : streams_) stream->End(ShutDownError());
}

bool EnvService::AwaitStreams(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(&mu_);
  while ((!streams_.empty() || replays_ > 0) && SteadyNow() < deadline) {
    lock.WaitFor(&ended_, deadline - SteadyNow());
  }
  return streams_.empty() && replays_ == 0;
}

bool EnvService::shut_down() const {
  MutexLock lock(&mu_);
  return shut_down_;
}

int64_t EnvService::steps() const {
  MutexLock lock(&mu_);
  return finished_steps_ + (playing_ == nullptr ? 0 : playing_->steps());
}

int EnvService::num_envs() const {
  MutexLock lock(&mu_);
  return playing_ == nullptr ? 0 : player_.num_envs();
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* EnvService::Play(
    grpc::CallbackServerContext* context) {
  MutexLock lock(&mu_);
  if (shut_down_) return new RefusedStream(ShutDownError());
  if (static_cast<int>(streams_.size()) >= options_.max_streams) {
    return new RefusedStream(absl::ResourceExhaustedError(
        absl::StrCat("this server has ", streams_.size(),
                     " streams open, its limit; try again later")));
  }
  // Not make_unique, which cannot see that this is a PlayHost.
  std::unique_ptr<PlayStream> stream(
      new PlayStream(this, factory_, options_, context));
  try {
    stream->Run();
  } catch (const std::system_error& error) {
    return new RefusedStream(absl::ResourceExhaustedError(
        absl::StrCat("no thread for another stream: ", error.what())));
  }
  // The thread cannot end before this lock does.
  streams_.insert(stream.get());
  return stream.release();
}

grpc::Status EnvService::GetSpec(grpc::ServerContext* /*context*/,
                                 const v1::GetSpecRequest* request,
                                 v1::GetSpecResponse* response) {
  return ToGrpc(Describe(*request, response));
}

grpc::Status EnvService::Replay(grpc::ServerContext* context,
                                const v1::ReplayRequest* request,
                                grpc::ServerWriter<v1::ReplayStep>* writer) {
  if (absl::Status begun = BeginReplay(); !begun.ok()) return ToGrpc(begun);
  absl::Status played =
      PlayAgain(*factory_, *request, [&](const v1::ReplayStep& step) {
        return !shut_down() && !context->IsCancelled() && writer->Write(step);
      });
  if (shut_down()) played = ShutDownError();
  MutexLock lock(&mu_);
  --replays_;
  ended_.notify_all();
  return ToGrpc(played);
}

absl::Status EnvService::BeginReplay() {
  MutexLock lock(&mu_);
  if (shut_down_) return ShutDownError();
  if (replays_ >= kMaxReplays) {
    return absl::ResourceExhaustedError(absl::StrCat(
        replays_, " games are played again here, the most; try again later"));
  }
  ++replays_;
  return absl::OkStatus();
}

absl::Status EnvService::Describe(const v1::GetSpecRequest& request,
                                  v1::GetSpecResponse* response) const {
  std::string env_id = request.env_id();
  v1::EnvOptions options = request.options();
  response->set_version(Version());
  for (const std::string& id : factory_->ListEnvironments()) {
    response->add_env_id(id);
  }
  {
    MutexLock lock(&mu_);
    if (playing_ != nullptr) {
      v1::PlaySession* session = response->add_session();
      session->set_learner_id(player_.learner_id());
      session->set_incarnation(player_.incarnation());
      session->set_env_id(player_.env_id());
      session->set_num_envs(player_.num_envs());
      session->set_steps(playing_->steps());
      session->set_episodes(playing_->episodes());
      session->set_seconds(playing_->seconds());
      if (env_id.empty()) {
        env_id = player_.env_id();
        options = player_.options();
      }
    }
  }
  if (env_id.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(*response->mutable_spec(),
                   factory_->Describe(env_id, options));
  return absl::OkStatus();
}

absl::Status EnvService::TakeSeat(PlayStream* stream, const v1::Hello& hello) {
  MutexLock lock(&mu_);
  if (playing_ != nullptr) {
    if (player_.learner_id() != hello.learner_id()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "learner \"", player_.learner_id(), "\" is playing ",
          player_.num_envs(), " x ", player_.env_id(), " here; learner \"",
          hello.learner_id(), "\" has to wait"));
    }
    if (hello.incarnation() <= player_.incarnation()) {
      return absl::AbortedError(
          absl::StrCat("learner \"", hello.learner_id(),
                       "\" is playing here as incarnation ",
                       player_.incarnation(), "; hello.incarnation is ",
                       hello.incarnation(), ", want a newer one"));
    }
    playing_->End(absl::AbortedError(
        absl::StrCat("incarnation ", hello.incarnation(), " of learner \"",
                     hello.learner_id(), "\" took over from incarnation ",
                     player_.incarnation())));
    finished_steps_ += playing_->steps();
  }
  playing_ = stream;
  player_ = hello;
  LOG(INFO) << "learner \"" << hello.learner_id() << "\" plays "
            << hello.num_envs() << " x " << hello.env_id();
  return absl::OkStatus();
}

void EnvService::LeaveSeat(PlayStream* stream) {
  MutexLock lock(&mu_);
  if (playing_ != stream) return;
  finished_steps_ += stream->steps();
  playing_ = nullptr;
}

void EnvService::StreamEnded(PlayStream* stream) {
  // A thread cannot join itself: each ended stream joins the one before it, and
  // the destructor the last.
  std::unique_ptr<PlayStream> previous(stream);
  MutexLock lock(&mu_);
  last_ended_.swap(previous);
  streams_.erase(stream);
  ended_.notify_all();
}

}  // namespace flotilla
