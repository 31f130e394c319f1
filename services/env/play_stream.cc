#include "services/env/play_stream.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/version.h"
#include "services/env/wire.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

// The descriptor is on its way before the start that names it.
constexpr absl::Duration kRegionTimeout = absl::Seconds(2);
// A learner that does not read cannot hold back the end of its stream longer.
constexpr absl::Duration kFinishTimeout = absl::Seconds(5);
// A learner that has no fences may forget to wake whoever sleeps on its ring.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);

const char* RequestName(const v1::PlayRequest& request) {
  switch (request.request_case()) {
    case v1::PlayRequest::kHello:
      return "hello";
    case v1::PlayRequest::kStart:
      return "start";
    case v1::PlayRequest::kActions:
      return "actions";
    default:
      return "nothing";
  }
}

absl::Status Unexpected(const v1::PlayRequest& request, const char* want) {
  return absl::InvalidArgumentError(
      absl::StrCat("the request is ", RequestName(request), ", want ", want));
}

absl::Status Silence(const char* want, absl::Duration timeout) {
  return absl::DeadlineExceededError(absl::StrCat(
      "no ", want, " came within ", absl::FormatDuration(timeout)));
}

}  // namespace

PlayStream::PlayStream(PlayHost* host, const VectorEnvFactory* factory,
                       const PlayOptions& options,
                       grpc::CallbackServerContext* context)
    : host_(host), factory_(factory), options_(options), context_(context) {}

PlayStream::~PlayStream() {
  if (thread_.joinable()) thread_.join();
}

void PlayStream::Run() {
  thread_ = std::thread([this] { ThreadMain(); });
}

void PlayStream::End(absl::Status status) {
  MutexLock lock(&mu_);
  if (end_.ok()) end_ = std::move(status);
  Notify();
}

void PlayStream::Notify() {
  wake_.notify_one();
  if (bell_ != nullptr) bell_->Interrupt();
}

double PlayStream::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begun_.load()).count();
}

void PlayStream::OnReadDone(bool ok) {
  MutexLock lock(&mu_);
  read_done_ = true;
  read_ok_ = ok;
  Notify();
}

void PlayStream::OnWriteDone(bool ok) {
  MutexLock lock(&mu_);
  writing_ = false;
  if (!ok && end_.ok()) end_ = absl::CancelledError("the learner went away");
  // Usually nothing waits to be written, and nobody needs to wake.
  if (!ready_.empty() || !end_.ok()) Notify();
}

void PlayStream::OnCancel() {
  End(absl::CancelledError("the learner cancelled the stream"));
}

void PlayStream::OnDone() {
  MutexLock lock(&mu_);
  done_ = true;
  // Under the lock: once the thread has seen it, this may be deleted.
  Notify();
}

void PlayStream::OnGroupDone(int group, absl::Duration delay) {
  MutexLock lock(&mu_);
  const Clock::time_point at =
      delay == absl::ZeroDuration()
          ? Clock::time_point()
          : Clock::now() + absl::ToChronoNanoseconds(delay);
  ready_.push_back({group, at});
  if (std::this_thread::get_id() != thread_.get_id()) Notify();
}

void PlayStream::ThreadMain() {
  // Delays of environments that sleep are met to the microsecond.
  prctl(PR_SET_TIMERSLACK, 1);
  const absl::Status status = Play();
  host_->LeaveSeat(this);
  Finish(ToGrpc(status));
  env_.reset();  // waits for what is still stepping
  AwaitDone();
  FreeMemory();
  host_->StreamEnded(this);
}

void PlayStream::AwaitDone() {
  {
    MutexLock lock(&mu_);
    while (!done_ && lock.WaitFor(&wake_, kFinishTimeout)) {
    }
    if (done_) return;
  }
  context_->TryCancel();
  MutexLock lock(&mu_);
  while (!done_) lock.Wait(&wake_);
}

// The host may keep an ended stream for long.
void PlayStream::FreeMemory() {
  {
    MutexLock lock(&mu_);
    bell_ = nullptr;
  }
  ring_.reset();
  groups_ = {};
  region_.reset();
  request_.Clear();
  in_.Clear();
  out_.Clear();
}

absl::Status PlayStream::Play() {
  RETURN_IF_ERROR(Handshake());
  return Serve();
}

absl::Status PlayStream::Handshake() {
  RETURN_IF_ERROR(ReceiveHello());
  RETURN_IF_ERROR(host_->TakeSeat(this, hello_));
  begun_ = Clock::now();
  ASSIGN_OR_RETURN(env_, factory_->Make(hello_, this));
  ASSIGN_OR_RETURN(layout_, MakeGroupLayout(env_->spec(), hello_.num_envs(),
                                            hello_.num_groups()));
  RETURN_IF_ERROR(SendWelcome());
  RETURN_IF_ERROR(ReceiveStart());
  PlaceObservations();
  return absl::OkStatus();
}

absl::Status PlayStream::ReceiveHello() {
  RETURN_IF_ERROR(ReadRequest("hello", options_.hello_timeout));
  if (!request_.has_hello()) return Unexpected(request_, "hello");
  hello_ = request_.hello();
  return CheckHello(hello_, options_.max_num_envs);
}

absl::Status PlayStream::SendWelcome() {
  v1::PlayReply reply;
  v1::Welcome* welcome = reply.mutable_welcome();
  welcome->set_protocol_version(1);
  welcome->set_version(Version());
  *welcome->mutable_spec() = env_->spec();
  welcome->set_autoreset_mode("same_step");
  if (hello_.offer_shared_memory()) {
    // A server that cannot share memory still plays.
    auto receiver = RegionReceiver::Listen();
    if (receiver.ok()) {
      receiver_ = *std::move(receiver);
      welcome->set_shared_memory_socket(receiver_->socket());
      welcome->set_shared_memory_token(receiver_->token());
      welcome->set_ring(hello_.offer_ring());
    }
  }
  Write(Serialize(reply));
  return absl::OkStatus();
}

absl::Status PlayStream::ReceiveStart() {
  RETURN_IF_ERROR(ReadRequest("start", options_.start_timeout));
  if (!request_.has_start()) return Unexpected(request_, "start");
  if (!request_.start().has_shared_memory()) return absl::OkStatus();
  const v1::SharedRegion& shared = request_.start().shared_memory();
  if (receiver_ == nullptr) {
    return absl::InvalidArgumentError(
        "start.shared_memory is given, but the welcome announced no socket");
  }
  if (shared.num_slots() != static_cast<uint32_t>(layout_.groups)) {
    return absl::InvalidArgumentError(
        absl::StrCat("start.shared_memory.num_slots is ", shared.num_slots(),
                     ", want ", layout_.groups, " (num_groups)"));
  }
  if (shared.slot_bytes() != layout_.slot_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("start.shared_memory.slot_bytes is ", shared.slot_bytes(),
                     ", want ", layout_.slot_bytes));
  }
  ring_layout_ = MakeRingLayout(env_->spec(), layout_);
  const uint64_t ring_bytes = hello_.offer_ring() ? ring_layout_.bytes : 0;
  if (shared.ring_bytes() != 0 && shared.ring_bytes() != ring_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "start.shared_memory.ring_bytes is ", shared.ring_bytes(), ", want ",
        ring_bytes == 0 ? "0: hello offered no ring"
                        : absl::StrCat("0 or ", ring_bytes)));
  }
  ASSIGN_OR_RETURN(OwnedFd fd, receiver_->Receive(kRegionTimeout));
  const size_t slots = layout_.slot_bytes * layout_.groups;
  ASSIGN_OR_RETURN(
      region_, SharedRegion::Map(std::move(fd), slots + shared.ring_bytes()));
  if (shared.ring_bytes() == 0) return absl::OkStatus();
  ring_ = std::make_unique<Ring>(region_->bytes().subspan(slots), &ring_layout_,
                                 Ring::End::kServer);
  MutexLock lock(&mu_);
  bell_ = ring_.get();
  return absl::OkStatus();
}

void PlayStream::PlaceObservations() {
  receiver_.reset();
  groups_.resize(layout_.groups);
  for (int g = 0; g < layout_.groups; ++g) {
    v1::StepBatch* step = groups_[g].reply.mutable_step();
    step->set_group(g);
    if (region_) step->set_slot(static_cast<uint32_t>(g));
    for (size_t leaf = 0; leaf < layout_.observation_bytes.size(); ++leaf) {
      const size_t bytes = layout_.rows * layout_.observation_bytes[leaf];
      std::byte* memory;
      if (region_) {
        memory = region_->bytes().data() + g * layout_.slot_bytes +
                 layout_.slot_offset[leaf];
      } else {
        std::string* column = step->mutable_inline_()->add_leaf();
        column->resize(bytes);
        memory = reinterpret_cast<std::byte*>(column->data());
      }
      groups_[g].observation.emplace_back(memory, bytes);
    }
  }
}

absl::Status PlayStream::Serve() {
  for (int g = 0; g < layout_.groups; ++g) {
    groups_[g].stepping = true;
    env_->Reset(g, groups_[g].observation, groups_[g].reply.mutable_step());
  }
  for (;;) {
    // Write before reading: the learner waits for the one, not for the other.
    if (const std::optional<int> group = TakeReady()) {
      SendStep(*group);
      continue;
    }
    BeginRead();
    const absl::Duration patience = Patience();
    ASSIGN_OR_RETURN(const Wake wake, Wait(patience));
    if (wake == Wake::kTimeout) return Silence("actions", patience);
    if (wake == Wake::kHalfClosed) return absl::OkStatus();
    if (wake == Wake::kMessage) {
      RETURN_IF_ERROR(ParseRequest());
      RETURN_IF_ERROR(TakeMessage());
    } else if (wake == Wake::kActions) {
      flotilla::TakeActions(layout_, ring_layout_, ring_->NextIn(),
                            &ring_actions_);
      ring_->Take();
      RETURN_IF_ERROR(TakeActions(&ring_actions_));
    }
  }
}

absl::Status PlayStream::TakeMessage() {
  if (!request_.has_actions()) return Unexpected(request_, "actions");
  if (ring_ == nullptr) return TakeActions(request_.mutable_actions());
  return Unexpected(request_,
                    "nothing: start.shared_memory has a ring for actions");
}

absl::Status PlayStream::TakeActions(v1::ActionBatch* batch) {
  const v1::ActionBatch& actions = *batch;
  if (actions.group() < 0 || actions.group() >= layout_.groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("actions.group is ", actions.group(), ", want 0 to ",
                     layout_.groups - 1));
  }
  Group& group = groups_[actions.group()];
  if (group.stepping) {
    return absl::InvalidArgumentError(absl::StrCat(
        "actions.seq ", actions.seq(), " of group ", actions.group(),
        " came before its step ", group.seq, " was sent"));
  }
  if (actions.seq() != group.seq) {
    return absl::InvalidArgumentError(
        absl::StrCat("actions.seq is ", actions.seq(), ", want ", group.seq,
                     ", the last step of group ", actions.group()));
  }
  RETURN_IF_ERROR(
      CheckActions(env_->spec(), layout_, group.reply.step(), actions));
  group.stepping = true;
  ++group.seq;
  steps_ += layout_.rows;
  // Its own copy: another group's actions may come while it steps.
  group.actions.Swap(batch);
  env_->Step(group.actions.group(), group.actions, group.observation,
             group.reply.mutable_step());
  return absl::OkStatus();
}

void PlayStream::SendStep(int group_index) {
  Group& group = groups_[group_index];
  v1::StepBatch* step = group.reply.mutable_step();
  step->set_seq(group.seq);
  if (step->episode_end_size() > 0) episodes_ += step->episode_end_size();
  // From here on its actions may come, and change the step: it is serialized.
  group.stepping = false;
  if (ring_ != nullptr) {
    const bool put =
        PutStep(env_->spec(), layout_, ring_layout_, *step, ring_->NextOut());
    ring_->Post();
    if (put) return;
  }
  Write(Serialize(group.reply));
}

void PlayStream::Write(grpc::ByteBuffer buffer) {
  {
    MutexLock lock(&mu_);
    writing_ = true;
  }
  out_.Swap(&buffer);
  StartWrite(&out_);
}

absl::Status PlayStream::ReadRequest(const char* what, absl::Duration timeout) {
  BeginRead();
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const absl::Duration left =
        timeout - absl::FromChrono(Clock::now() - begin);
    ASSIGN_OR_RETURN(const Wake wake, Wait(left));
    switch (wake) {
      case Wake::kMessage:
        return ParseRequest();
      case Wake::kHalfClosed:
        return absl::InvalidArgumentError(
            absl::StrCat("the learner closed the stream, want ", what));
      case Wake::kTimeout:
        return Silence(what, timeout);
      case Wake::kProgress:
      case Wake::kActions:
        break;
    }
  }
}

absl::StatusOr<PlayStream::Wake> PlayStream::Wait(absl::Duration timeout) {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    Clock::time_point until;
    {
      MutexLock lock(&mu_);
      if (!end_.ok()) return end_;
      // What was posted before a half-close comes before it.
      if (ring_ != nullptr && ring_->Waiting() != 0) return Wake::kActions;
      if (read_done_) {
        read_done_ = false;
        if (!read_ok_) return Wake::kHalfClosed;
        reading_ = false;
        return Wake::kMessage;
      }
      const Clock::time_point now = Clock::now();
      absl::Duration pause = timeout - absl::FromChrono(now - begin);
      if (!writing_ && !ready_.empty()) {
        Clock::time_point next = ready_.front().at;
        for (const Ready& ready : ready_) next = std::min(next, ready.at);
        if (next <= now) return Wake::kProgress;
        pause = std::min(pause, absl::FromChrono(next - now));
      }
      if (pause <= absl::ZeroDuration()) return Wake::kTimeout;
      if (ring_ == nullptr) {
        if (pause == absl::InfiniteDuration()) {
          lock.Wait(&wake_);
        } else {
          lock.WaitFor(&wake_, pause);
        }
        continue;
      }
      until = now + absl::ToChronoNanoseconds(std::min(pause, kLookInterval));
    }
    ring_->Await(until, /*may_spin=*/!Steps());
  }
}

// Polling would take a core from what steps.
bool PlayStream::Steps() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const Group& group) { return group.stepping; });
}

std::optional<int> PlayStream::TakeReady() {
  MutexLock lock(&mu_);
  if (writing_ || !end_.ok()) return std::nullopt;
  for (auto it = ready_.begin(); it != ready_.end(); ++it) {
    if (it->at != Clock::time_point() && it->at > Clock::now()) continue;
    const int group = it->group;
    ready_.erase(it);
    return group;
  }
  return std::nullopt;
}

absl::Duration PlayStream::Patience() const {
  if (options_.action_timeout == absl::InfiniteDuration()) {
    return absl::InfiniteDuration();
  }
  const bool learners_turn =
      std::any_of(groups_.begin(), groups_.end(),
                  [](const Group& group) { return !group.stepping; });
  return learners_turn ? options_.action_timeout : absl::InfiniteDuration();
}

void PlayStream::BeginRead() {
  if (reading_) return;
  reading_ = true;
  StartRead(&in_);
}

absl::Status PlayStream::ParseRequest() {
  const bool parsed = ParseMessage(in_, &request_);
  if (parsed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a message of ", in_.Length(),
                   " bytes is not a flotilla.v1.PlayRequest"));
}

}  // namespace flotilla
