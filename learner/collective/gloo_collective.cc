#include "learner/collective/gloo_collective.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "learner/collective/coordinator_store.h"
#include "learner/collective/first_error.h"
#include "learner/collective/host_collective.h"
#include "learner/collective/local_address.h"
#include "learner/collective/rendezvous.h"
#include "services/base/mutex.h"
#include "services/base/status_macros.h"
// Last: learner/torch.h comes before all of Torch's.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace flotilla {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using Work = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::steady_clock;

// Up to here, sending everything to everyone beats a second step.
constexpr int64_t kAtOnceBytes = 128 << 10;
// All ranks have said that they are here when the connections are made.
constexpr absl::Duration kConnectTimeout = absl::Seconds(30);

// Longer than any run, and no overflow in any clock's arithmetic.
constexpr absl::Duration kForever = absl::Hours(24 * 365);

// Gloo's tags are what matches a send to its receive.
enum Step { kExchange = 0, kGather = 1, kNumSteps };
constexpr int kSentinelTag = 1 << 30;

// Part r of `flat` for a world of `world_size`; the last ones may be empty.
torch::Tensor Part(const torch::Tensor& flat, int r, int world_size) {
  const int64_t size = (flat.numel() + world_size - 1) / world_size;
  const int64_t begin = std::min(flat.numel(), size * r);
  return flat.narrow(0, begin, std::min(flat.numel() - begin, size));
}

class GlooCollective : public HostCollective {
 public:
  GlooCollective(const v1::Assignment& assignment,
                 CoordinatorClient* coordinator, Group group,
                 absl::Duration timeout);
  ~GlooCollective() override { Close(); }

  void Abort() override {
    Abort(absl::AbortedError("the collective was aborted"));
  }

 protected:
  absl::Status SumOnHost(torch::Tensor flat) override;
  absl::Status BroadcastOnHost(torch::Tensor bytes, int root) override;

 private:
  // A tensor on its way to or from `peer`.
  struct Transfer {
    int peer;
    torch::Tensor tensor;
    Work work;
    bool done = false;
  };

  // A receive that nobody ever sends to, and the thread that waits for it: it
  // ends when the connection does. Gloo does not tell a receive in the middle
  // of its message that the peer is gone, but it tells those that have not
  // begun.
  struct Sentinel {
    Work work;
    std::thread thread;
  };

  void StartSentinel(int peer);
  void PeerIsLost(int peer, const std::string& reason);
  // Why the connection to `peer` is gone; "" while it is there.
  std::string LossOf(int peer);

  void Abort(absl::Status reason);
  absl::Status Begin(std::string call);
  absl::Status Fail(absl::Status status);
  // Closes the connections, which tells the peers.
  void Close();

  absl::Status SumAtOnce(torch::Tensor flat);
  absl::Status SumInParts(torch::Tensor flat);
  // sum = terms[0] + terms[1] + ..., in that order.
  void AddInRankOrder(const std::vector<torch::Tensor>& terms,
                      torch::Tensor sum);

  // Sends and receives, all at the same time, and waits for all.
  absl::Status Transmit(std::vector<Transfer> sends,
                        std::vector<Transfer> receives, Step step);
  absl::Status Launch(bool is_send, Step step, Transfer* transfer);
  absl::Status WaitAll(std::vector<Transfer>* transfers);
  absl::Status FinishThoseOfLostPeers(std::vector<Transfer>* transfers);
  // Whether it is complete. If not, its connection is lost by asking.
  bool IsComplete(const Transfer& transfer);
  absl::Status Late(const std::vector<Transfer>& transfers);
  absl::Status Lost(int peer, const std::string& reason) const;

  const absl::Duration timeout_;
  FirstError error_;
  Group group_;  // null once closed

  std::string call_;  // "all-reduce of 9250 float32, call 7"
  int64_t calls_ = 0;
  Clock::time_point deadline_;

  Mutex mu_;
  std::vector<Work> in_flight_ ABSL_GUARDED_BY(mu_);
  std::map<int, std::string> losses_ ABSL_GUARDED_BY(mu_);  // by peer

  // Last: they may use the others for as long as they live.
  std::vector<Sentinel> sentinels_;
  std::stop_callback<std::function<void()>> on_fence_;
};

GlooCollective::GlooCollective(const v1::Assignment& assignment,
                               CoordinatorClient* coordinator, Group group,
                               absl::Duration timeout)
    : HostCollective(assignment.rank(), assignment.world_size()),
      timeout_(timeout),
      group_(std::move(group)),
      on_fence_(coordinator->Fence(assignment.generation()),
                [this, generation = assignment.generation()] {
                  Abort(absl::AbortedError(
                      absl::StrCat("generation ", generation, " is fenced")));
                }) {
  try {
    for (int r = 0; r < world_size(); ++r) {
      if (r != rank()) StartSentinel(r);
    }
  } catch (...) {  // a peer is gone already
    Close();       // no destructor will
    throw;
  }
}

void GlooCollective::StartSentinel(int peer) {
  std::vector<torch::Tensor> byte = {torch::empty({1}, torch::kUInt8)};
  Work work = group_->recv(byte, peer, kSentinelTag);
  sentinels_.push_back({work, std::thread([this, work, peer] {
                          try {
                            work->wait(absl::ToChronoMilliseconds(kForever));
                          } catch (const std::exception& e) {
                            PeerIsLost(peer, e.what());
                          }
                        })});
}

void GlooCollective::PeerIsLost(int peer, const std::string& reason) {
  MutexLock lock(&mu_);
  losses_[peer] = reason;
  // Wakes who waits, to look whether that concerns it.
  for (const Work& work : in_flight_) work->abort();
}

std::string GlooCollective::LossOf(int peer) {
  MutexLock lock(&mu_);
  const auto loss = losses_.find(peer);
  return loss == losses_.end() ? "" : loss->second;
}

void GlooCollective::Abort(absl::Status reason) {
  error_.Set(std::move(reason));
  MutexLock lock(&mu_);
  for (const Work& work : in_flight_) work->abort();
}

absl::Status GlooCollective::Begin(std::string call) {
  if (error_.is_set()) return Fail(error_.Get());
  call_ = absl::StrCat(call, ", call ", ++calls_);
  deadline_ = Clock::now() + absl::ToChronoNanoseconds(timeout_);
  return absl::OkStatus();
}

absl::Status GlooCollective::Fail(absl::Status status) {
  error_.Set(std::move(status));
  Close();
  return error_.Get();
}

void GlooCollective::Close() {
  for (Sentinel& sentinel : sentinels_) sentinel.work->abort();
  for (Sentinel& sentinel : sentinels_) sentinel.thread.join();
  sentinels_.clear();
  {
    MutexLock lock(&mu_);
    in_flight_.clear();
  }
  group_.reset();
}

absl::Status GlooCollective::SumOnHost(torch::Tensor flat) {
  RETURN_IF_ERROR(Begin(absl::StrCat("all-reduce of ", flat.numel(), " ",
                                     c10::toString(flat.scalar_type()))));
  const int64_t bytes = flat.numel() * flat.element_size();
  if (bytes == 0) return absl::OkStatus();
  return bytes * (world_size() - 1) <= kAtOnceBytes ? SumAtOnce(flat)
                                                    : SumInParts(flat);
}

absl::Status GlooCollective::SumAtOnce(torch::Tensor flat) {
  std::vector<torch::Tensor> terms;
  std::vector<Transfer> sends, receives;
  for (int r = 0; r < world_size(); ++r) {
    terms.push_back(r == rank() ? flat : torch::empty_like(flat));
    if (r == rank()) continue;
    sends.push_back({r, flat, {}});
    receives.push_back({r, terms.back(), {}});
  }
  RETURN_IF_ERROR(Transmit(std::move(sends), std::move(receives), kExchange));
  AddInRankOrder(terms, flat);
  return absl::OkStatus();
}

absl::Status GlooCollective::SumInParts(torch::Tensor flat) {
  const torch::Tensor mine = Part(flat, rank(), world_size());
  std::vector<torch::Tensor> terms;
  std::vector<Transfer> sends, receives;
  for (int r = 0; r < world_size(); ++r) {
    terms.push_back(r == rank() ? mine : torch::empty_like(mine));
    if (r == rank()) continue;
    sends.push_back({r, Part(flat, r, world_size()), {}});
    receives.push_back({r, terms.back(), {}});
  }
  RETURN_IF_ERROR(Transmit(std::move(sends), std::move(receives), kExchange));
  AddInRankOrder(terms, mine);

  sends.clear();
  receives.clear();
  for (int r = 0; r < world_size(); ++r) {
    if (r == rank()) continue;
    sends.push_back({r, mine, {}});
    receives.push_back({r, Part(flat, r, world_size()), {}});
  }
  return Transmit(std::move(sends), std::move(receives), kGather);
}

void GlooCollective::AddInRankOrder(const std::vector<torch::Tensor>& terms,
                                    torch::Tensor sum) {
  // `sum` may be one of the terms. Bfloat16 is added in float32, and rounded once.
  const bool wide = sum.scalar_type() == torch::kBFloat16;
  torch::Tensor total = terms[0].to(wide ? torch::kFloat32 : sum.scalar_type(),
                                    /*non_blocking=*/false, /*copy=*/true);
  for (size_t r = 1; r < terms.size(); ++r) total.add_(terms[r]);
  sum.copy_(total);
}

absl::Status GlooCollective::BroadcastOnHost(torch::Tensor bytes, int root) {
  RETURN_IF_ERROR(Begin(
      absl::StrCat("broadcast of ", bytes.numel(), " bytes from rank ", root)));
  std::vector<Transfer> sends, receives;
  if (rank() != root) {
    receives.push_back({root, bytes, {}});
  } else {
    for (int r = 0; r < world_size(); ++r) {
      if (r != root) sends.push_back({r, bytes, {}});
    }
  }
  return Transmit(std::move(sends), std::move(receives), kExchange);
}

absl::Status GlooCollective::Transmit(std::vector<Transfer> sends,
                                      std::vector<Transfer> receives,
                                      Step step) {
  const auto is_empty = [](const Transfer& t) { return t.tensor.numel() == 0; };
  std::erase_if(sends, is_empty);
  std::erase_if(receives, is_empty);
  absl::Status status;
  // Receives first: what arrives finds its place.
  for (Transfer& transfer : receives) {
    if (status.ok()) status = Launch(false, step, &transfer);
  }
  for (Transfer& transfer : sends) {
    if (status.ok()) status = Launch(true, step, &transfer);
  }
  if (status.ok()) status = WaitAll(&receives);
  if (status.ok()) status = WaitAll(&sends);
  if (!status.ok()) {
    // Gloo forgets a buffer that is gone: nothing is written to it any more.
    sends.clear();
    receives.clear();
    return Fail(std::move(status));
  }
  MutexLock lock(&mu_);
  in_flight_.clear();
  return absl::OkStatus();
}

absl::Status GlooCollective::Launch(bool is_send, Step step,
                                    Transfer* transfer) {
  const int tag = static_cast<int>(calls_ % (1 << 24)) * kNumSteps + step;
  std::vector<torch::Tensor> tensors = {transfer->tensor};
  try {
    transfer->work = is_send ? group_->send(tensors, transfer->peer, tag)
                             : group_->recv(tensors, transfer->peer, tag);
  } catch (const std::exception& e) {
    return Lost(transfer->peer, e.what());
  }
  MutexLock lock(&mu_);
  in_flight_.push_back(transfer->work);
  if (error_.is_set()) transfer->work->abort();
  return absl::OkStatus();
}

absl::Status GlooCollective::WaitAll(std::vector<Transfer>* transfers) {
  for (Transfer& transfer : *transfers) {
    while (!transfer.done) {
      RETURN_IF_ERROR(FinishThoseOfLostPeers(transfers));
      if (transfer.done) break;
      // At least 1: c10d takes 0 for its own default.
      const auto left = std::max(std::chrono::milliseconds(1),
                                 std::chrono::ceil<std::chrono::milliseconds>(
                                     deadline_ - Clock::now()));
      try {
        // False after Work::abort, which is not always the end.
        transfer.done = transfer.work->wait(left);
      } catch (const std::exception& e) {
        if (error_.is_set()) return error_.Get();
        if (Clock::now() >= deadline_) return Late(*transfers);
        return Lost(transfer.peer, e.what());
      }
      if (error_.is_set()) return error_.Get();
    }
  }
  return absl::OkStatus();
}

absl::Status GlooCollective::FinishThoseOfLostPeers(
    std::vector<Transfer>* transfers) {
  for (Transfer& transfer : *transfers) {
    if (transfer.done) continue;
    const std::string loss = LossOf(transfer.peer);
    if (loss.empty()) continue;
    // Complete, though its peer has left since, or it never will be.
    if (!IsComplete(transfer)) return Lost(transfer.peer, loss);
    transfer.done = true;
  }
  return error_.Get();
}

bool GlooCollective::IsComplete(const Transfer& transfer) {
  try {
    while (!error_.is_set()) {
      if (transfer.work->wait(std::chrono::milliseconds(1))) return true;
    }
  } catch (const std::exception&) {
  }
  return false;
}

absl::Status GlooCollective::Late(const std::vector<Transfer>& transfers) {
  std::vector<std::string> late;
  for (const Transfer& transfer : transfers) {
    if (transfer.done || IsComplete(transfer)) continue;
    late.push_back(absl::StrCat("rank ", transfer.peer));
  }
  return absl::DeadlineExceededError(
      absl::StrCat(call_, ": after ", absl::FormatDuration(timeout_),
                   " still without ", absl::StrJoin(late, ", ")));
}

absl::Status GlooCollective::Lost(int peer, const std::string& reason) const {
  return absl::UnavailableError(
      absl::StrCat(call_, ": lost rank ", peer, " (", reason, ")"));
}

absl::StatusOr<std::shared_ptr<gloo::transport::Device>> MakeDevice(
    const v1::Assignment& assignment) {
  std::string where;
  try {
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (interface != nullptr && *interface != '\0') {
      where = absl::StrCat("interface GLOO_SOCKET_IFNAME=", interface);
      return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
    }
    ASSIGN_OR_RETURN(const std::string address, LocalAddressFor(assignment));
    where = absl::StrCat("address ", address);
    return c10d::ProcessGroupGloo::createDeviceForHostname(address);
  } catch (const std::exception& e) {
    return absl::FailedPreconditionError(absl::StrCat(
        "Gloo cannot use ", where, ": ", e.what(),
        "; name another network interface: GLOO_SOCKET_IFNAME=eth0"));
  }
}

// Gloo writes to connections that a peer has closed. That must be an error to
// it, not the end of this process.
void IgnoreBrokenPipes() {
  struct sigaction current {};
  ::sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> MakeGlooCollective(
    const v1::Assignment& assignment, CoordinatorClient* coordinator,
    absl::Duration timeout) {
  IgnoreBrokenPipes();
  ASSIGN_OR_RETURN(auto device, MakeDevice(assignment));
  RETURN_IF_ERROR(MeetAll(assignment, coordinator, "gloo", timeout));

  const auto connect_timeout =
      absl::ToChronoMilliseconds(std::min(timeout, kConnectTimeout));
  const auto store = c10::make_intrusive<CoordinatorStore>(
      coordinator, assignment.generation(), connect_timeout);
  const auto options = c10d::ProcessGroupGloo::Options::create(connect_timeout);
  options->devices = {std::move(device)};
  options->threads = 1;  // for c10d's own collectives, which are not used
  try {
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", store),
        assignment.rank(), assignment.world_size(), options);
    return std::make_unique<GlooCollective>(assignment, coordinator,
                                            std::move(group), timeout);
  } catch (const std::exception& e) {
    RETURN_IF_ERROR(store->error());
    return absl::UnavailableError(
        absl::StrCat("generation ", assignment.generation(),
                     ": Gloo cannot connect the ranks: ", e.what()));
  }
}

}  // namespace flotilla
