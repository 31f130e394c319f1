#include "learner/collective/nccl_collective.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "learner/collective/first_error.h"
#include "learner/collective/rendezvous.h"
#include "services/base/mutex.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kGoodbyePatience = absl::Seconds(5);
constexpr absl::Duration kWatchInterval = absl::Milliseconds(10);

// Ends the process unless it is destroyed in time: NCCL's abort can hang, and a
// learner that hangs helps nobody.
class LastResort {
 public:
  explicit LastResort(const NcclApi& api)
      : thread_([this, patience = absl::Milliseconds(api.abort_patience_ms)] {
          MutexLock lock(&mu_);
          const absl::Time until = SteadyNow() + patience;
          while (!done_ && SteadyNow() < until) {
            lock.WaitFor(&changed_, until - SteadyNow());
          }
          if (done_) return;
          LOG(ERROR) << "NCCL did not abort within "
                     << absl::FormatDuration(patience)
                     << "; ending this learner";
          google::FlushLogFiles(google::GLOG_INFO);
          ::_exit(1);
        }) {}

  ~LastResort() {
    {
      MutexLock lock(&mu_);
      done_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

 private:
  Mutex mu_;
  std::condition_variable changed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class NcclCollective : public Collective {
 public:
  // Takes `comm`, which is connected.
  NcclCollective(const NcclApi* api, NcclComm* comm,
                 const v1::Assignment& assignment,
                 CoordinatorClient* coordinator, absl::Duration timeout,
                 torch::Device device)
      : api_(*api),
        rank_(assignment.rank()),
        world_size_(assignment.world_size()),
        timeout_(timeout),
        device_(device),
        comm_(comm),
        watch_([this](std::stop_token stop) { Watch(stop); }),
        on_fence_(coordinator->Fence(assignment.generation()),
                  [this, generation = assignment.generation()] {
                    Fail(absl::AbortedError(
                        absl::StrCat("generation ", generation, " is fenced")));
                  }) {}

  ~NcclCollective() override;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  absl::Status AllReduceSum(torch::Tensor tensor) override;
  absl::Status Broadcast(torch::Tensor tensor, int root) override;
  void Abort() override {
    Fail(absl::AbortedError("the collective was aborted"));
  }

 private:
  // What was queued and is not known to be complete.
  struct Pending {
    std::string call;
    NcclEvent* event;
    Clock::time_point deadline;
  };

  // Calls `queue(comm, data, stream)` on tensor's memory, in place.
  template <typename Queue>
  absl::Status Run(const std::string& call, torch::Tensor tensor, Queue queue);
  template <typename Queue>
  absl::Status QueueOnStream(const std::string& call, torch::Tensor tensor,
                             Queue queue);
  // Waits until everything queued is complete.
  absl::Status Drain();
  // Before Torch reads what was queued: a stream keeps that order by itself.
  absl::Status FinishWithoutStream();
  absl::Status SumBFloat16(torch::Tensor tensor);
  absl::Status CheckCall(const std::string& call,
                         const torch::Tensor& tensor) const;

  void Fail(absl::Status status);
  void Watch(std::stop_token stop);
  // Looks after what is queued, and the communicator.
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AbortComm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SayGoodbye() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Explain(const std::string& call, int result) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const NcclApi& api_;
  const int rank_;
  const int world_size_;
  const absl::Duration timeout_;
  const torch::Device device_;
  int64_t calls_ = 0;
  FirstError error_;

  // Held in every call on the communicator: it takes one at a time.
  Mutex mu_;
  std::condition_variable changed_;
  NcclComm* comm_ ABSL_GUARDED_BY(mu_);  // null once aborted
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mu_);

  // Last: they use the others for as long as they live.
  std::jthread watch_;
  std::stop_callback<std::function<void()>> on_fence_;
};

absl::Status NcclCollective::Explain(const std::string& call,
                                     int result) const {
  return absl::UnavailableError(
      absl::StrCat(call, ": NCCL: ", api_.describe(comm_, result)));
}

void NcclCollective::Fail(absl::Status status) {
  error_.Set(std::move(status));
  MutexLock lock(&mu_);
  changed_.notify_all();
}

absl::Status NcclCollective::AllReduceSum(torch::Tensor tensor) {
  if (tensor.scalar_type() == torch::kBFloat16) return SumBFloat16(tensor);
  NcclElement element;
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      element = NcclElement::kFloat32;
      break;
    case torch::kFloat64:
      element = NcclElement::kFloat64;
      break;
    case torch::kInt64:
      element = NcclElement::kInt64;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "all-reduce: a tensor is ", c10::toString(tensor.scalar_type()),
          "; only float32, float64, int64 and bfloat16 are summed"));
  }
  return Run(absl::StrCat("all-reduce of ", tensor.numel(), " ",
                          c10::toString(tensor.scalar_type())),
             tensor,
             [this, element, count = tensor.numel()](NcclComm* comm, void* data,
                                                     void* stream) {
               return api_.all_reduce_sum(comm, data, count, element, stream);
             });
}

// NCCL itself would add in bfloat16, and round at every hop: rank r gets part r
// of everyone's, adds it up in float32 and gives it to all. As many bytes travel.
absl::Status NcclCollective::SumBFloat16(torch::Tensor tensor) {
  const std::string call =
      absl::StrCat("all-reduce of ", tensor.numel(), " BFloat16");
  RETURN_IF_ERROR(CheckCall(call, tensor));
  if (tensor.numel() == 0) return absl::OkStatus();
  const std::string name = absl::StrCat(call, ", call ", ++calls_);
  torch::NoGradGuard no_grad;
  const int64_t count = tensor.numel();
  const int64_t part = (count + world_size_ - 1) / world_size_;
  const auto options = tensor.options().device(device_).requires_grad(false);
  const torch::Tensor send = torch::zeros({world_size_ * part}, options);
  const torch::Tensor receive = torch::empty({world_size_, part}, options);
  send.narrow(0, 0, count).copy_(tensor.view(-1));
  const size_t bytes = part * sizeof(c10::BFloat16);
  RETURN_IF_ERROR(
      QueueOnStream(name, send, [&](NcclComm* comm, void* data, void* stream) {
        return api_.all_to_all(comm, data, receive.data_ptr(), bytes, stream);
      }));
  RETURN_IF_ERROR(FinishWithoutStream());
  torch::Tensor sum = receive[0].to(torch::kFloat32);
  for (int r = 1; r < world_size_; ++r) sum.add_(receive[r]);
  const torch::Tensor mine = sum.to(torch::kBFloat16);
  RETURN_IF_ERROR(
      QueueOnStream(name, mine, [&](NcclComm* comm, void* data, void* stream) {
        return api_.all_gather(comm, data, send.data_ptr(), bytes, stream);
      }));
  RETURN_IF_ERROR(tensor.device() == device_ ? FinishWithoutStream() : Drain());
  tensor.view(-1).copy_(send.narrow(0, 0, count));
  return absl::OkStatus();
}

absl::Status NcclCollective::FinishWithoutStream() {
  return device_.is_cpu() ? Drain() : absl::OkStatus();
}

absl::Status NcclCollective::CheckCall(const std::string& call,
                                       const torch::Tensor& tensor) const {
  if (!tensor.is_contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat(call, ": the tensor is not contiguous"));
  }
  return error_.is_set() ? error_.Get() : absl::OkStatus();
}

absl::Status NcclCollective::Broadcast(torch::Tensor tensor, int root) {
  if (root < 0 || root >= world_size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "broadcast from rank ", root, " in a world of ", world_size_));
  }
  return Run(
      absl::StrCat("broadcast of ", tensor.nbytes(), " bytes from rank ", root),
      tensor,
      [this, root, bytes = tensor.nbytes()](NcclComm* comm, void* data,
                                            void* stream) {
        return api_.broadcast(comm, data, bytes, root, stream);
      });
}

template <typename Queue>
absl::Status NcclCollective::Run(const std::string& call, torch::Tensor tensor,
                                 Queue queue) {
  RETURN_IF_ERROR(CheckCall(call, tensor));
  if (tensor.numel() == 0) return absl::OkStatus();
  const std::string name = absl::StrCat(call, ", call ", ++calls_);
  if (tensor.device() == device_) {
    return QueueOnStream(name, tensor, queue);
  }
  torch::NoGradGuard no_grad;
  torch::Tensor on_device = tensor.to(device_);
  RETURN_IF_ERROR(QueueOnStream(name, on_device, queue));
  RETURN_IF_ERROR(Drain());
  tensor.copy_(on_device);
  return absl::OkStatus();
}

template <typename Queue>
absl::Status NcclCollective::QueueOnStream(const std::string& call,
                                           torch::Tensor tensor, Queue queue) {
  void* stream = nullptr;
  if (!device_.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    stream = guard.getStream(device_).native_handle();
  }
  Pending pending{call, nullptr,
                  Clock::now() + absl::ToChronoNanoseconds(timeout_)};
  MutexLock lock(&mu_);
  if (comm_ == nullptr) return error_.Get();
  int result = queue(comm_, tensor.data_ptr(), stream);
  while (result == kNcclInProgress && !error_.is_set() &&
         Clock::now() < pending.deadline) {
    lock.WaitFor(&changed_, absl::Microseconds(20));
    if (comm_ == nullptr) return error_.Get();
    result = api_.state(comm_);
  }
  if (error_.is_set()) return error_.Get();
  if (result == kNcclInProgress) {
    error_.Set(absl::DeadlineExceededError(absl::StrCat(
        call, ": not even queued after ", absl::FormatDuration(timeout_))));
  } else if (result == kNcclOk) {
    result = api_.record(comm_, stream, &pending.event);
    if (result == kNcclOk) {
      pending_.push_back(std::move(pending));
      changed_.notify_all();
      return absl::OkStatus();
    }
  }
  error_.Set(Explain(call, result));  // unless there is one
  changed_.notify_all();
  return error_.Get();
}

absl::Status NcclCollective::Drain() {
  MutexLock lock(&mu_);
  for (int i = 0; !pending_.empty() && !error_.is_set(); ++i) {
    Look();
    // The watcher needs the lock now and then, too.
    if (!pending_.empty()) {
      lock.WaitFor(&changed_, absl::Microseconds(i < 50 ? 1 : 50));
    }
  }
  return error_.Get();
}

void NcclCollective::Watch(std::stop_token stop) {
  std::stop_callback wake(stop, [this] {
    MutexLock lock(&mu_);
    changed_.notify_all();
  });
  MutexLock lock(&mu_);
  while (comm_ != nullptr) {
    Look();
    if (error_.is_set()) return AbortComm();
    if (stop.stop_requested()) return;
    lock.WaitFor(&changed_, kWatchInterval);
  }
}

void NcclCollective::Look() {
  while (!pending_.empty()) {
    const Pending& next = pending_.front();
    const int result = api_.query(next.event);
    if (result == kNcclInProgress) {
      if (Clock::now() >= next.deadline) {
        error_.Set(absl::DeadlineExceededError(
            absl::StrCat(next.call, ": a peer has not come after ",
                         absl::FormatDuration(timeout_))));
      }
      break;
    }
    if (result != kNcclOk) return error_.Set(Explain(next.call, result));
    api_.release(next.event);
    pending_.pop_front();
  }
  const int state = api_.state(comm_);
  if (state != kNcclOk && state != kNcclInProgress) {
    error_.Set(Explain("communicator", state));
  }
}

void NcclCollective::AbortComm() {
  LastResort last_resort(api_);
  api_.abort(comm_);
  comm_ = nullptr;
  for (const Pending& pending : pending_) api_.release(pending.event);
  pending_.clear();
}

// Peers may still need this rank's end of the last call.
void NcclCollective::SayGoodbye() {
  LastResort last_resort(api_);
  const absl::Time until = SteadyNow() + kGoodbyePatience;
  int result = api_.finalize(comm_);
  while (result == kNcclInProgress && SteadyNow() < until) {
    absl::SleepFor(absl::Milliseconds(1));
    result = api_.state(comm_);
  }
  if (result == kNcclOk) {
    api_.destroy(comm_);
  } else {
    api_.abort(comm_);
  }
  comm_ = nullptr;
}

NcclCollective::~NcclCollective() {
  watch_.request_stop();
  watch_.join();
  MutexLock lock(&mu_);
  if (comm_ == nullptr) return;
  // The last call may still run: an abort would take it from healthy peers.
  const absl::Time until = SteadyNow() + kGoodbyePatience;
  Look();
  while (!pending_.empty() && !error_.is_set() && SteadyNow() < until) {
    lock.WaitFor(&changed_, absl::Milliseconds(1));
    Look();
  }
  if (pending_.empty() && !error_.is_set()) {
    SayGoodbye();
  } else {
    AbortComm();
  }
}

absl::Duration TimeoutFromEnvironment(absl::Duration otherwise) {
  const char* text = std::getenv("NCCL_TIMEOUT");
  double seconds = 0;
  if (text == nullptr) return otherwise;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0)) {
    LOG(WARNING) << "NCCL_TIMEOUT=" << text
                 << " is no number of seconds above 0 and is ignored";
    return otherwise;
  }
  // A year is forever, and overflows no clock.
  return std::min(absl::Seconds(seconds), absl::Hours(24 * 365));
}

// Rank 0's id, which everyone learns through the coordinator.
absl::StatusOr<std::string> ShareId(const NcclApi& api,
                                    const v1::Assignment& assignment,
                                    CoordinatorClient* coordinator,
                                    absl::Duration timeout, Told* told) {
  std::string id = "here";
  if (assignment.rank() == 0) {
    id.assign(kNcclIdBytes, '\0');
    const int result = api.make_id(id.data());
    if (result != kNcclOk) {
      return absl::UnavailableError(absl::StrCat(
          "NCCL cannot make an id: ", api.describe(nullptr, result)));
    }
  }
  ASSIGN_OR_RETURN(
      const std::vector<std::string> heard,
      ExchangeAll(assignment, coordinator, "nccl", id, timeout, told));
  return heard[0];
}

}  // namespace

absl::StatusOr<const NcclApi*> LoadNcclApi() {
  constexpr char kFile[] = "libflotilla_nccl.so";
  const std::string folder = ProgramFolder();
  std::string reason;
  for (const std::string& path :
       {absl::StrCat(folder, "/", kFile),
        absl::StrCat(folder, "/../lib/", kFile), std::string(kFile)}) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      // A file that is there and does not load is the better reason.
      if (reason.empty() || ::access(path.c_str(), F_OK) == 0) {
        reason = ::dlerror();
      }
      continue;
    }
    auto* function =
        reinterpret_cast<NcclApiFunction*>(::dlsym(library, kNcclApiFunction));
    if (function != nullptr) return function();
    reason = ::dlerror();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "distributed.backend is NCCL, but this installation cannot load it (",
      reason, "): build with -DFLOTILLA_CUDA=ON, or use --backend gloo"));
}

absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    absl::Duration timeout, torch::Device device) {
  ASSIGN_OR_RETURN(const NcclApi* api, LoadNcclApi());
  return MakeNcclCollective(api, assignment, coordinator, timeout, device);
}

absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(
    const NcclApi* api, const v1::Assignment& assignment,
    CoordinatorClient* coordinator, absl::Duration timeout,
    torch::Device device) {
  timeout = TimeoutFromEnvironment(timeout);
  if (!device.is_cpu()) device.set_index(std::max<int>(device.index(), 0));
  const absl::Time deadline = SteadyNow() + timeout;
  Told told;
  ASSIGN_OR_RETURN(const std::string id,
                   ShareId(*api, assignment, coordinator, timeout, &told));
  if (id.size() != kNcclIdBytes) {
    return absl::InternalError(absl::StrCat("rank 0's NCCL id has ", id.size(),
                                            " bytes, want ", kNcclIdBytes));
  }
  const std::stop_token fence = coordinator->Fence(assignment.generation());
  NcclComm* comm = nullptr;
  int result = api->init(&comm, assignment.world_size(), id.data(),
                         assignment.rank(), std::max<int>(device.index(), 0));
  absl::Time tell_at = SteadyNow() + kTellAgain;
  while (result == kNcclInProgress && !fence.stop_requested() &&
         SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
    // A peer that has not heard the id keeps all others here.
    if (SteadyNow() >= tell_at) {
      TellAgain(assignment, coordinator, told).IgnoreError();
      tell_at = SteadyNow() + kTellAgain;
    }
    result = api->state(comm);
  }
  if (result == kNcclOk) {
    return std::make_unique<NcclCollective>(api, comm, assignment, coordinator,
                                            timeout, device);
  }
  const std::string generation =
      absl::StrCat("generation ", assignment.generation());
  absl::Status status =
      fence.stop_requested()
          ? absl::AbortedError(absl::StrCat(generation, " is fenced"))
      : result == kNcclInProgress
          ? absl::DeadlineExceededError(absl::StrCat(
                generation, ": NCCL has not connected the ranks after ",
                absl::FormatDuration(timeout)))
          : absl::UnavailableError(
                absl::StrCat(generation, ": NCCL cannot connect the ranks: ",
                             api->describe(comm, result)));
  if (comm != nullptr) {
    LastResort last_resort(*api);
    api->abort(comm);
  }
  return status;
}

}  // namespace flotilla
