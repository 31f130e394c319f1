#include "services/env/dial_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "services/base/printable.h"
#include "services/base/steady_now.h"
#include "services/rpc/refused_stream.h"

namespace flotilla {
namespace {

// Who does not listen to the end of its stream cannot hold it back longer.
constexpr absl::Duration kFinishTimeout = absl::Seconds(2);

absl::Status ShutDownError() {
  return absl::UnavailableError("the learner ends");
}

// An EnvStream's hold on a server that dialled in.
class DialTransport final : public PlayTransport {
 public:
  explicit DialTransport(std::shared_ptr<DialStream> stream)
      : stream_(std::move(stream)) {}
  ~DialTransport() override { Cancel(); }

  Progress Connect(Clock::time_point) override { return Progress::kDone; }
  Progress Read(Clock::time_point deadline,
                grpc::ByteBuffer* message) override {
    return stream_->Read(deadline, message);
  }
  bool AwaitReadable(Clock::time_point deadline) override {
    return stream_->AwaitReadable(deadline);
  }
  Progress Write(Clock::time_point deadline,
                 grpc::ByteBuffer* message) override {
    return stream_->Write(deadline, message);
  }
  // The server's half of such a call closes with the whole of it.
  Progress HalfClose(Clock::time_point) override {
    stream_->End(absl::OkStatus());
    return Progress::kDone;
  }
  absl::Status End() override { return stream_->ended(); }
  void Fail(const absl::Status& why) override {
    // What does not fit is the sender's, seen from there.
    stream_->End(absl::Status(
        absl::IsInternal(why) ? absl::StatusCode::kInvalidArgument : why.code(),
        PrintableLine(why.message(), 2048)));
  }
  void Cancel() override { stream_->End(absl::OkStatus()); }

 private:
  const std::shared_ptr<DialStream> stream_;
};

}  // namespace

DialService::DialService(const DialOptions& options)
    : options_(options), thread_([this] { Run(); }) {}

DialService::~DialService() {
  Shutdown();
  {
    MutexLock lock(&mu_);
    while (!streams_.empty()) lock.Wait(&changed_);
    quit_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void DialService::Shutdown() {
  std::vector<Stream> open;
  {
    MutexLock lock(&mu_);
    shut_down_ = true;
    for (const auto& [stream, held] : streams_) open.push_back(stream);
    changed_.notify_all();
  }
  for (const Stream& stream : open) stream->End(ShutDownError());
}

absl::StatusOr<std::unique_ptr<PlayTransport>> DialService::Await(
    const std::string& id, absl::Duration timeout, std::stop_token stop) {
  const absl::Time deadline = SteadyNow() + timeout;
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(&mu_);
    changed_.notify_all();
  });
  MutexLock lock(&mu_);
  while (true) {
    if (shut_down_) return ShutDownError();
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    const auto found = of_server_.find(id);
    if (found != of_server_.end()) {
      Held& held = streams_[found->second];
      if (held.stage == Stage::kWaits) {
        held.stage = Stage::kPlays;
        return std::make_unique<DialTransport>(found->second);
      }
    }
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("env server ", id, " did not dial in within ",
                       absl::FormatDuration(timeout)));
    }
    lock.WaitFor(&changed_, left);
  }
}

bool DialService::Waits(const std::string& id) const {
  MutexLock lock(&mu_);
  const auto found = of_server_.find(id);
  return found != of_server_.end() &&
         streams_.at(found->second).stage == Stage::kWaits;
}

int DialService::streams() const {
  MutexLock lock(&mu_);
  return static_cast<int>(streams_.size());
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* DialService::Dial(
    grpc::CallbackServerContext* context) {
  Stream stream;
  {
    MutexLock lock(&mu_);
    if (shut_down_) return new RefusedStream(ShutDownError());
    if (static_cast<int>(streams_.size()) >= options_.max_streams) {
      return new RefusedStream(absl::ResourceExhaustedError(
          absl::StrCat("this learner has ", streams_.size(),
                       " streams open, its limit; try again later")));
    }
    stream = DialStream::Make(this, context);
    streams_[stream] = {Stage::kNew,
                        SteadyNow() + options_.introduction_timeout,
                        /*server=*/""};
    changed_.notify_all();
  }
  // Not before it is known: it may introduce itself at once.
  stream->Listen();
  return stream.get();
}

void DialService::OnIntroduced(const Stream& stream) {
  const v1::Introduction& who = stream->introduction();
  Stream older;
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    Held& held = streams_[stream];
    if (held.stage == Stage::kEnded) return;  // just before it spoke
    Stream& newest = of_server_[who.server_id()];
    if (newest != nullptr &&
        who.incarnation() <= newest->introduction().incarnation()) {
      refused = absl::AbortedError(absl::StrCat(
          "env server ", who.server_id(), " is here as incarnation ",
          newest->introduction().incarnation(),
          "; introduction.incarnation is ", who.incarnation(),
          ", want a newer one"));
    } else {
      older = std::exchange(newest, stream);
      held = {Stage::kWaits, SteadyNow() + options_.patience, who.server_id()};
      changed_.notify_all();
    }
  }
  if (!refused.ok()) return stream->End(refused);
  LOG(INFO) << "env server " << who.server_id() << " dialled in, version "
            << PrintableLine(who.version());
  if (older == nullptr) return;
  older->End(absl::AbortedError(absl::StrCat(
      "incarnation ", who.incarnation(), " of env server ", who.server_id(),
      " took over from incarnation ", older->introduction().incarnation())));
}

void DialService::OnEnded(const Stream& stream) {
  MutexLock lock(&mu_);
  Held& held = streams_[stream];
  held.stage = Stage::kEnded;
  held.until = SteadyNow() + kFinishTimeout;
  const auto newest = of_server_.find(held.server);
  if (newest != of_server_.end() && newest->second == stream) {
    of_server_.erase(newest);
  }
  changed_.notify_all();
}

void DialService::OnGone(const Stream& stream) {
  MutexLock lock(&mu_);
  streams_.erase(stream);
  changed_.notify_all();
}

void DialService::Run() {
  while (true) {
    {
      MutexLock lock(&mu_);
      if (quit_) return;
      const absl::Duration left = NextDeadline() - SteadyNow();
      if (left == absl::InfiniteDuration()) {
        lock.Wait(&changed_);
        continue;
      }
      if (left > absl::ZeroDuration()) {
        lock.WaitFor(&changed_, left);
        continue;
      }
    }
    EndOverdue(SteadyNow());
  }
}

absl::Time DialService::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [stream, held] : streams_) {
    if (held.stage != Stage::kPlays) next = std::min(next, held.until);
  }
  return next;
}

void DialService::EndOverdue(absl::Time now) {
  std::map<Stream, Stage> overdue;
  {
    MutexLock lock(&mu_);
    for (auto& [stream, held] : streams_) {
      if (held.stage == Stage::kPlays || held.until > now) continue;
      overdue[stream] = held.stage;
      held.until = absl::InfiniteFuture();  // once
    }
  }
  for (const auto& [stream, stage] : overdue) {
    switch (stage) {
      case Stage::kNew:
        stream->End(absl::DeadlineExceededError(
            absl::StrCat("no introduction came within ",
                         absl::FormatDuration(options_.introduction_timeout))));
        break;
      case Stage::kWaits:
        stream->End(absl::NotFoundError(absl::StrCat(
            "nobody here awaits env server ",
            stream->introduction().server_id(),
            "; its coordinator tells it where to dial, and when")));
        break;
      default:
        stream->Cut();
    }
  }
}

}  // namespace flotilla
