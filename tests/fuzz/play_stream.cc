// services/env/env_service.h: any messages of two learners, well-formed or not,
// to the environments of fake_vector_env.h.
//
// gRPC is faked: a call hands over what it is told to and notes what it is
// given.

#include <glog/logging.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "services/base/mutex.h"
#include "services/env/env_service.h"
#include "services/env/group_layout.h"
#include "services/env/shared_region.h"
#include "services/env/wire.h"
#include "services/rpc/grpc_status.h"
#include "tests/fuzz/input.h"
#include "tests/services/env/fake_vector_env.h"

namespace flotilla {
namespace {

const bool quiet = [] {
  FLAGS_minloglevel = google::GLOG_FATAL;
  return true;
}();

const std::vector<std::string>& Names() {
  static const auto& names = *new std::vector<std::string>{
      "Fake", "Broken", "alice", "bob", "", "four", "\xff"};
  return names;
}

using Buffer = grpc::ByteBuffer;

// One Play call without a network. Writes complete at once.
//
// Thread-safe.
class FakeCall final : public grpc::ServerCallbackReaderWriter<Buffer, Buffer> {
 public:
  explicit FakeCall(EnvService* service) : reactor_(service->Play(&context_)) {
    BindReactor(reactor_);
    AwaitTurn();
  }

  ~FakeCall() override {
    if (Buffer* read = TakeRead()) {
      reactor_->OnReadDone(false);
      static_cast<void>(read);
    }
    AwaitFinish();
    // What was being read when the stream ended comes to nothing.
    if (TakeRead() != nullptr) reactor_->OnReadDone(false);
    reactor_->OnDone();
  }

  // Hands over a message, if one is being read.
  void Deliver(const std::string& bytes) {
    Buffer* read = TakeRead();
    if (read == nullptr) return;
    const grpc::Slice slice(bytes);
    Buffer(&slice, 1).Swap(read);
    reactor_->OnReadDone(true);
    AwaitTurn();
  }

  void Cancel() {
    reactor_->OnCancel();
    AwaitFinish();
  }

  // What was written since the last time.
  std::vector<v1::PlayReply> Replies() {
    MutexLock lock(&mu_);
    return std::exchange(replies_, {});
  }

  bool finished() const {
    MutexLock lock(&mu_);
    return finished_;
  }

  void Read(Buffer* buffer) override {
    MutexLock lock(&mu_);
    read_ = buffer;
    changed_.notify_all();
  }

  void Write(const Buffer* buffer, grpc::WriteOptions) override {
    {
      MutexLock lock(&mu_);
      CHECK(ParseMessage(*buffer, &replies_.emplace_back()));
    }
    reactor_->OnWriteDone(true);
  }

  void Finish(grpc::Status status) override {
    CheckEnd(FromGrpc(status));
    MutexLock lock(&mu_);
    CHECK(!finished_);
    finished_ = true;
    changed_.notify_all();
  }

  void WriteAndFinish(const Buffer*, grpc::WriteOptions,
                      grpc::Status) override {
    LOG(FATAL) << "not used";
  }
  void SendInitialMetadata() override {}

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  // Whoever sent something wrong is told what.
  static void CheckEnd(const absl::Status& status) {
    if (status.ok() || absl::IsCancelled(status)) return;
    CHECK(!status.message().empty()) << status;
    if (!absl::IsInvalidArgument(status) &&
        !absl::IsFailedPrecondition(status)) {
      CHECK(absl::IsNotFound(status) || absl::IsResourceExhausted(status) ||
            absl::IsAborted(status) || absl::IsInternal(status))
          << status;
      return;
    }
    for (const char* name :
         {"hello.", "start.", "actions.", "the request is ", "PlayRequest",
          "the shared region", "the learner closed the stream, want "}) {
      if (absl::StrContains(status.message(), name)) return;
    }
    LOG(FATAL) << "names nothing: " << status;
  }

  Buffer* TakeRead() {
    MutexLock lock(&mu_);
    return std::exchange(read_, nullptr);
  }

  // The stream reads once it has done all that it can do.
  void AwaitTurn() {
    MutexLock lock(&mu_);
    while (read_ == nullptr && !finished_) lock.Wait(&changed_);
  }

  void AwaitFinish() {
    MutexLock lock(&mu_);
    while (!finished_) lock.Wait(&changed_);
  }

  mutable Mutex mu_;
  std::condition_variable changed_;
  Buffer* read_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<v1::PlayReply> replies_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;

  grpc::CallbackServerContext context_;
  grpc::ServerBidiReactor<Buffer, Buffer>* const reactor_;
};

class Learner {
 public:
  Learner(Input* in, std::string id) : in_(in), id_(std::move(id)) {}

  void Act(EnvService* service) {
    if (call_ == nullptr) {
      call_ = std::make_unique<FakeCall>(service);
      welcome_.reset();
      seq_.clear();
      return;
    }
    switch (in_->Below(8)) {
      case 0:
        Send(in_->Bytes());
        break;
      case 1:
        if (in_->Below(4) == 3) call_->Cancel();
        call_.reset();
        return;
      case 2:
        Send(Bent(MakeHello()));
        break;
      case 3:
        Send(Bent(MakeStart()));
        break;
      case 4:
        Send(Bent(MakeActions()));
        break;
      default:
        Send(Next());
    }
    for (const v1::PlayReply& reply : call_->Replies()) Take(reply);
    if (call_->finished()) call_.reset();
  }

 private:
  // What a learner with manners would send.
  v1::PlayRequest Next() {
    if (!hello_sent_ || call_ == nullptr) return MakeHello();
    return started_ ? MakeActions() : MakeStart();
  }

  v1::PlayRequest MakeHello() {
    v1::PlayRequest request;
    v1::Hello* hello = request.mutable_hello();
    hello->set_protocol_version(1);
    hello->set_learner_id(id_);
    hello->set_incarnation(++incarnation_);
    hello->set_env_id("Fake");
    hello->set_num_groups(1 + in_->Below(3));
    hello->set_num_envs(hello->num_groups() * (1 + in_->Below(3)));
    hello->set_offer_shared_memory(in_->Below(2) == 1);
    return request;
  }

  v1::PlayRequest MakeStart() {
    v1::PlayRequest request;
    request.mutable_start();
    if (welcome_ && !welcome_->shared_memory_socket().empty()) {
      v1::SharedRegion* region =
          request.mutable_start()->mutable_shared_memory();
      region->set_slot_bytes(layout_.slot_bytes);
      region->set_num_slots(layout_.groups);
    }
    return request;
  }

  v1::PlayRequest MakeActions() {
    v1::PlayRequest request;
    v1::ActionBatch* actions = request.mutable_actions();
    actions->set_group(in_->Below(std::max(1, layout_.groups)));
    actions->set_seq(seq_[actions->group()]);
    std::string* column = actions->add_action();
    for (int row = 0; row < layout_.rows; ++row) {
      column->push_back(static_cast<char>(in_->Below(3)));
      column->append(7, '\0');
    }
    return request;
  }

  v1::PlayRequest Bent(v1::PlayRequest request) {
    in_->Fill(Names(), &request);
    return request;
  }

  void Send(const v1::PlayRequest& request) {
    Send(request.SerializeAsString());
  }

  void Send(const std::string& bytes) {
    v1::PlayRequest request;
    if (request.ParseFromString(bytes)) Note(request);
    call_->Deliver(bytes);
  }

  // Before the request goes out.
  void Note(const v1::PlayRequest& request) {
    if (request.has_hello()) {
      hello_ = request.hello();
      hello_sent_ = true;
      started_ = false;
    }
    if (!request.has_start()) return;
    started_ = true;
    // A server that is told of a region waits for it.
    if (!welcome_ || !request.start().has_shared_memory()) return;
    const size_t bytes = layout_.slot_bytes * layout_.groups;
    auto region = SharedRegion::Create(bytes + in_->Below(8) / 7 * 4096);
    CHECK(region.ok()) << region.status();
    static_cast<void>(SendRegion(welcome_->shared_memory_socket(),
                                 welcome_->shared_memory_token(),
                                 region->fd()));
    shares_ = true;
  }

  void Take(const v1::PlayReply& reply) {
    if (reply.has_welcome()) {
      CHECK(!welcome_) << "a second welcome";
      welcome_ = reply.welcome();
      shares_ = false;
      layout_ = *MakeGroupLayout(welcome_->spec(), hello_.num_envs(),
                                 hello_.num_groups());
      return;
    }
    const v1::StepBatch& step = reply.step();
    CHECK(welcome_) << "a step before the welcome";
    const bool shared = shares_ && step.payload_case() == v1::StepBatch::kSlot;
    const absl::Status fits =
        CheckStep(welcome_->spec(), layout_, shared, step);
    CHECK(fits.ok()) << fits;
    uint64_t& seq = seq_[step.group()];
    CHECK(step.seq() == 0 || step.seq() == seq + 1) << step.seq();
    seq = step.seq();
  }

  Input* const in_;
  const std::string id_;
  std::unique_ptr<FakeCall> call_;
  uint64_t incarnation_ = 0;
  v1::Hello hello_;
  bool hello_sent_ = false;
  bool started_ = false;
  bool shares_ = false;
  std::optional<v1::Welcome> welcome_;
  GroupLayout layout_;
  std::map<int, uint64_t> seq_;  // of a group's last step
};

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flotilla;
  Input in(data, size);
  FakeFactory factory;
  PlayOptions options;
  options.max_num_envs = 64;
  EnvService service(&factory, options);
  std::array<Learner, 3> learners = {Learner(&in, "alice"), Learner(&in, "bob"),
                                     Learner(&in, "alice")};
  while (!in.empty()) {
    const int who = in.Below(8);
    learners[who < 6 ? 0 : who - 5].Act(&service);
  }
  return 0;
}
