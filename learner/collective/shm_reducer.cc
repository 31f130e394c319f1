#include "learner/collective/shm_reducer.h"

#include <glog/logging.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Slots of a few ranks fit a core's second-level cache.
constexpr size_t kSlotBytes = kShmPart * sizeof(float);
constexpr uint32_t kSlots = 4;  // of a rank: a power of two, as chunk_ wraps
// A rank that would read no more than this from its peers adds everything
// itself: a second wait is dearer than the additions.
constexpr size_t kAtOnceBytes = 128 << 10;
constexpr size_t kAlign = 64;

// While the core has nothing else to run, yielding is as quick as spinning.
constexpr auto kSpin = std::chrono::microseconds(3);
constexpr auto kYield = std::chrono::microseconds(200);
constexpr auto kSleep = std::chrono::milliseconds(20);

enum CallKind : uint32_t { kAllReduce = 1, kBroadcast };

const char* NameOf(Element element) {
  switch (element) {
    case Element::kFloat32:
      return "float32";
    case Element::kFloat64:
      return "float64";
    case Element::kInt64:
      return "int64";
    case Element::kByte:
      return "bytes";
    case Element::kBFloat16:
      return "bfloat16";
  }
  return "?";
}

// The upper half of a float32.
struct BFloat16 {
  uint16_t bits;
};

// What an element is added in, and what the sum becomes.
template <typename T>
T Widen(T value) {
  return value;
}
float Widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
template <typename T>
void Narrow(T sum, T* out) {
  *out = sum;
}
// To the nearest, of two the even one, as Torch does.
void Narrow(float sum, BFloat16* out) {
  const uint32_t bits = std::bit_cast<uint32_t>(sum);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  out->bits = static_cast<uint16_t>(std::isnan(sum) ? 0x7fc0 : rounded);
}

// Not FUTEX_PRIVATE: the word is shared between processes.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
               std::chrono::nanoseconds timeout) {
  const timespec wait{
      .tv_sec = static_cast<time_t>(timeout.count() / 1'000'000'000),
      .tv_nsec = static_cast<long>(timeout.count() % 1'000'000'000)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &wait, nullptr, 0);
}

void FutexWakeAll(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Counters wrap; they are never 2^31 apart.
bool HasReached(uint32_t arrived, uint32_t step) {
  return static_cast<int32_t>(arrived - step) >= 0;
}

}  // namespace

size_t ShmReducer::SegmentBytes(int world_size) {
  return world_size * (sizeof(Seat) + kSlots * kSlotBytes);
}

ShmReducer::ShmReducer(std::byte* segment, int rank, int world_size,
                       std::vector<PeerProcess> peer, absl::Duration timeout)
    : segment_(segment),
      rank_(rank),
      world_size_(world_size),
      peer_(std::move(peer)),
      timeout_(timeout) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  static_assert(sizeof(Seat) % kAlign == 0);
  CHECK_EQ(peer_.size(), static_cast<size_t>(world_size));
  CHECK(rank >= 0 && rank < world_size);
}

ShmReducer::~ShmReducer() { Abort(absl::CancelledError("destroyed")); }

ShmReducer::Seat& ShmReducer::seat(int rank) const {
  return reinterpret_cast<Seat*>(segment_)[rank];
}

std::byte* ShmReducer::slot(int rank, uint32_t chunk) const {
  return segment_ + world_size_ * sizeof(Seat) +
         (kSlots * rank + chunk % kSlots) * kSlotBytes;
}

absl::Status ShmReducer::AllReduceSum(void* data, size_t count, Element element,
                                      const Summed& summed) {
  RETURN_IF_ERROR(Begin({kAllReduce, element, count, 0}));
  switch (element) {
    case Element::kFloat32:
      return Sum(static_cast<float*>(data), count, summed);
    case Element::kFloat64:
      return Sum(static_cast<double*>(data), count, summed);
    case Element::kInt64:
      // Unsigned: overflow wraps, as Torch's does, instead of being undefined.
      return Sum(static_cast<uint64_t*>(data), count, summed);
    case Element::kBFloat16:
      return Sum(static_cast<BFloat16*>(data), count, summed);
    case Element::kByte:
      break;
  }
  Abort(absl::InvalidArgumentError("cannot add bytes"));
  return error_.Get();
}

absl::Status ShmReducer::Broadcast(void* data, size_t bytes, int root) {
  CHECK(root >= 0 && root < world_size_);
  RETURN_IF_ERROR(Begin({kBroadcast, Element::kByte, bytes, root}));
  auto* at = static_cast<std::byte*>(data);
  for (size_t left = bytes; left > 0;) {
    const size_t size = std::min(left, kSlotBytes);
    StartChunk();
    if (rank_ == root) std::memcpy(slot(root), at, size);
    RETURN_IF_ERROR(MeetPeers());
    if (rank_ != root) std::memcpy(at, slot(root), size);
    at += size;
    left -= size;
  }
  return absl::OkStatus();
}

absl::Status ShmReducer::Begin(const Call& call) {
  if (error_.is_set()) return error_.Get();
  call_ = call;
  ++calls_;
  deadline_ = Clock::now() + absl::ToChronoNanoseconds(timeout_);
  return absl::OkStatus();
}

// The next chunk is brought to its slot before this one is waited for: a peer that is
// a little late then costs nothing.
template <typename T>
absl::Status ShmReducer::Sum(T* data, size_t count, const Summed& summed) {
  constexpr size_t kChunk = kSlotBytes / sizeof(T);
  const auto size_at = [&](size_t at) { return std::min(count - at, kChunk); };
  const auto give = [&](uint32_t chunk, size_t at) {
    if (at == count) return;
    std::memcpy(slot(rank_, chunk), data + at, size_at(at) * sizeof(T));
  };
  give(chunk_ + 1, 0);
  for (size_t at = 0; at < count; at += kChunk) {
    const size_t size = size_at(at);
    StartChunk();
    Arrive();
    give(chunk_ + 1, at + size);
    RETURN_IF_ERROR(AwaitPeers());
    if (size * sizeof(T) * (world_size_ - 1) <= kAtOnceBytes) {
      AddSlots(data + at, 0, size);
    } else {
      RETURN_IF_ERROR(AddInParts(data + at, size));
    }
    if (summed != nullptr) summed(at, size);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ShmReducer::AddInParts(T* data, size_t count) {
  // Part r is [part * r, part * (r + 1)), whole cache lines but for the last.
  constexpr size_t kLine = kAlign / sizeof(T);
  const size_t part = (count / world_size_ + kLine) / kLine * kLine;
  const auto begin = [&](int r) { return std::min(count, part * r); };

  // Into the own slot, where nobody else reads this part before the next step.
  AddSlots(reinterpret_cast<T*>(slot(rank_)), begin(rank_), begin(rank_ + 1));
  RETURN_IF_ERROR(MeetPeers());
  for (int r = 0; r < world_size_; ++r) {
    std::memcpy(data + begin(r), reinterpret_cast<const T*>(slot(r)) + begin(r),
                (begin(r + 1) - begin(r)) * sizeof(T));
  }
  return absl::OkStatus();
}

// out[i] = slot 0[i] + slot 1[i] + ..., in that order, for i in [begin, end).
// `out` may be a slot: a block is read before it is written.
template <typename T>
void ShmReducer::AddSlots(T* out, size_t begin, size_t end) const {
  if (world_size_ == 2) {  // which needs no room for sums
    const T* const first = reinterpret_cast<const T*>(slot(0));
    const T* const second = reinterpret_cast<const T*>(slot(1));
    for (size_t i = begin; i < end; ++i) {
      Narrow(Widen(first[i]) + Widen(second[i]), &out[i]);
    }
    return;
  }
  constexpr size_t kBlock = 4096 / sizeof(T);
  using Wide = decltype(Widen(T()));
  alignas(kAlign) Wide sum[kBlock];
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t size = std::min(kBlock, end - at);
    const T* const first = reinterpret_cast<const T*>(slot(0)) + at;
    for (size_t i = 0; i < size; ++i) sum[i] = Widen(first[i]);
    for (int r = 1; r < world_size_; ++r) {
      const T* const next = reinterpret_cast<const T*>(slot(r)) + at;
      for (size_t i = 0; i < size; ++i) sum[i] += Widen(next[i]);
    }
    for (size_t i = 0; i < size; ++i) Narrow(sum[i], &out[at + i]);
  }
}

void ShmReducer::StartChunk() {
  ++chunk_;
  seat(rank_).call[chunk_ & 1] = call_;
}

absl::Status ShmReducer::MeetPeers() {
  Arrive();
  return AwaitPeers();
}

void ShmReducer::Arrive() {
  ++step_;
  Seat& mine = seat(rank_);
  // Sequentially consistent, as in WaitFor: either the sleeper sees the new
  // count, or it is seen among the waiters and woken.
  mine.arrived.store(step_);
  if (mine.waiters.load() > 0) FutexWakeAll(mine.arrived);
}

absl::Status ShmReducer::AwaitPeers() {
  for (int r = 0; r < world_size_; ++r) {
    if (r == rank_) continue;
    absl::Status status = WaitFor(r, step_);
    if (status.ok()) status = CompareCalls(r);
    if (!status.ok()) {
      if (!error_.is_set()) Abort(std::move(status));
      return error_.Get();
    }
  }
  return absl::OkStatus();
}

absl::Status ShmReducer::CompareCalls(int rank) const {
  const Call& theirs = seat(rank).call[chunk_ & 1];
  if (theirs == call_) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("rank ", rank_, " is in ", Describe(call_), ", but rank ",
                   rank, " is in ", Describe(theirs),
                   ": ranks must make the same calls in the same order"));
}

absl::Status ShmReducer::WaitFor(int rank, uint32_t step) {
  Seat& theirs = seat(rank);
  const auto start = Clock::now();
  while (!HasCome(rank, step)) {
    if (error_.is_set()) return error_.Get();
    const auto waited = Clock::now() - start;
    if (waited < kSpin) {
      for (int i = 0; i < 8; ++i) Pause();
    } else if (waited < kYield) {
      ::sched_yield();
    } else {
      RETURN_IF_ERROR(WhyGone(step));
      if (Clock::now() >= deadline_) return Missing(step);
      theirs.waiters.fetch_add(1);
      const uint32_t arrived = theirs.arrived.load();
      if (!HasReached(arrived, step)) {
        FutexWait(theirs.arrived, arrived, kSleep);
      }
      theirs.waiters.fetch_sub(1);
    }
  }
  return absl::OkStatus();
}

bool ShmReducer::HasCome(int rank, uint32_t step) const {
  return rank == rank_ || HasReached(seat(rank).arrived.load(), step);
}

// Of two lost peers, the one whose process ended is the cause.
absl::Status ShmReducer::WhyGone(uint32_t step) const {
  for (const bool look_for_ended : {true, false}) {
    for (int r = 0; r < world_size_; ++r) {
      const bool gone =
          look_for_ended ? peer_[r].Ended() : seat(r).left.load() != 0;
      // In this order: it may have arrived, then gone.
      if (!gone || HasCome(r, step)) continue;
      return absl::UnavailableError(absl::StrCat(
          Describe(call_), ": lost rank ", r, " (", peer_[r].Describe(), ")",
          look_for_ended ? "" : ": it left after an error of its own"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmReducer::Missing(uint32_t step) const {
  std::vector<std::string> missing;
  for (int r = 0; r < world_size_; ++r) {
    if (HasCome(r, step)) continue;
    missing.push_back(absl::StrCat("rank ", r, " (", peer_[r].Describe(), ")"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat(Describe(call_), ": after ", absl::FormatDuration(timeout_),
                   " still without ", absl::StrJoin(missing, ", ")));
}

std::string ShmReducer::Describe(const Call& call) const {
  if (call.kind == kBroadcast) {
    return absl::StrCat("broadcast of ", call.count, " bytes from rank ",
                        call.root, ", call ", calls_);
  }
  return absl::StrCat("all-reduce of ", call.count, " ", NameOf(call.element),
                      ", call ", calls_);
}

void ShmReducer::Abort(absl::Status reason) {
  error_.Set(std::move(reason));
  seat(rank_).left.store(1);
  WakeAll();
}

void ShmReducer::End(absl::Status reason) {
  error_.Set(std::move(reason));
  WakeAll();
}

void ShmReducer::WakeAll() const {
  for (int r = 0; r < world_size_; ++r) FutexWakeAll(seat(r).arrived);
}

}  // namespace flotilla
