#include "services/env/ring.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace flotilla {
namespace {

// Looks at the counter before the core is offered to somebody else, who may be
// the peer.
constexpr int kPauses = 64;
// A look that takes so long lost the core meanwhile: polling is then paused, the
// longer the more often that happens.
constexpr std::chrono::microseconds kLost(200);
constexpr std::chrono::milliseconds kFirstPause(20);
constexpr std::chrono::milliseconds kLongestPause(5000);
// How long an end polls, whatever the other one asks for.
constexpr uint32_t kMaxSpinUs = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// Of one ring. The bell is what a sleeper sleeps on: whoever rings it, the peer or
// a thread of its own process, changes it first.
struct Ring::Counter {
  alignas(64) std::atomic<uint32_t> posted;
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleeping;
  std::atomic<uint32_t> spin_us;  // of the first counter
};

Ring::Ring(std::span<std::byte> memory, const RingLayout* layout, End end)
    : memory_(memory),
      layout_(*layout),
      end_(end),
      spin_(std::min(reinterpret_cast<Counter*>(memory.data())->spin_us.load(),
                     kMaxSpinUs)),
      out_(reinterpret_cast<Counter*>(memory.data()) + (end == End::kLearner)),
      in_(reinterpret_cast<Counter*>(memory.data()) + (end == End::kServer)) {
  static_assert(sizeof(Counter) == 128);
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
}

void Ring::SetSpin(absl::Duration spin) {
  const int64_t us = absl::ToInt64Microseconds(spin);
  spin_ = std::chrono::microseconds(
      std::clamp<int64_t>(us, 0, static_cast<int64_t>(kMaxSpinUs)));
  reinterpret_cast<Counter*>(memory_.data())
      ->spin_us.store(static_cast<uint32_t>(spin_.count()));
}

std::span<std::byte> Ring::Place(bool step, uint64_t index) const {
  const size_t place = index % static_cast<uint64_t>(layout_.groups);
  return step ? memory_.subspan(layout_.first_step + place * layout_.step_bytes,
                                layout_.step_bytes)
              : memory_.subspan(
                    layout_.first_action + place * layout_.action_bytes,
                    layout_.action_bytes);
}

std::span<std::byte> Ring::NextOut() const {
  return Place(end_ == End::kServer, posted_);
}

std::span<const std::byte> Ring::NextIn() const {
  return Place(end_ == End::kLearner, taken_);
}

void Ring::Post() {
  // Ours, whatever the memory says.
  out_->posted.store(static_cast<uint32_t>(++posted_),
                     std::memory_order_seq_cst);
  if (out_->sleeping.load(std::memory_order_seq_cst) == 0) return;
  out_->bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &out_->bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

uint32_t Ring::Waiting() const {
  return in_->posted.load(std::memory_order_acquire) -
         static_cast<uint32_t>(taken_);
}

bool Ring::Spin(Clock::time_point until) {
  Clock::time_point now = Clock::now();
  if (now < no_spin_until_) return false;
  const Clock::time_point end = std::min(until, now + spin_);
  while (now < end) {
    for (int i = 0; i < kPauses; ++i) {
      if (Waiting() != 0 || interrupted_.load(std::memory_order_relaxed)) {
        no_spin_for_ = {};
        return true;
      }
      Pause();
    }
    sched_yield();
    const Clock::time_point before = std::exchange(now, Clock::now());
    if (now - before < kLost) continue;
    no_spin_for_ = std::clamp(2 * no_spin_for_, kFirstPause, kLongestPause);
    no_spin_until_ = now + no_spin_for_;
    break;
  }
  return Waiting() != 0;
}

void Ring::Await(Clock::time_point until, bool may_spin) {
  if (Waiting() != 0) return;
  if (may_spin && spin_.count() > 0 && Spin(until)) {
    interrupted_.exchange(false);
    return;
  }
  const uint32_t heard = in_->bell.load(std::memory_order_seq_cst);
  in_->sleeping.store(1, std::memory_order_seq_cst);
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      until - Clock::now());
  if (in_->posted.load(std::memory_order_seq_cst) ==
          static_cast<uint32_t>(taken_) &&
      !interrupted_.load(std::memory_order_seq_cst) && left.count() > 0) {
    const timespec timeout = {
        .tv_sec = static_cast<time_t>(left.count() / 1'000'000'000),
        .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};
    syscall(SYS_futex, &in_->bell, FUTEX_WAIT, heard, &timeout, nullptr, 0);
  }
  in_->sleeping.store(0, std::memory_order_relaxed);
  interrupted_.exchange(false);
}

void Ring::Interrupt() {
  interrupted_.store(true, std::memory_order_seq_cst);
  in_->bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &in_->bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace flotilla
