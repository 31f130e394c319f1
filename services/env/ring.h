#ifndef FLOTILLA_SERVICES_ENV_RING_H_
#define FLOTILLA_SERVICES_ENV_RING_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/time/time.h"
#include "services/env/ring_layout.h"

namespace flotilla {

// One end of the two rings that carry a stream's steps and actions between
// processes (env.proto, "Rings"): the learner's posts actions and takes steps,
// the server's the other way round.
//
// One thread posts and takes; Interrupt may be called from any.
class Ring {
 public:
  using Clock = std::chrono::steady_clock;
  enum class End { kLearner, kServer };

  // `memory`: layout.bytes bytes, aligned to 64, all zero at first. Both must
  // outlive this.
  Ring(std::span<std::byte> memory, const RingLayout* layout, End end);

  // How long both ends poll before they sleep, a millisecond at most. The
  // learner's to say, before the server's end is made.
  void SetSpin(absl::Duration spin);

  // Where the next entry is to be written, and that it is there.
  std::span<std::byte> NextOut() const;
  void Post();

  // Entries that have been posted to us and not taken. A peer that errs may say
  // any number.
  uint32_t Waiting() const;
  // The oldest of them, and that it has been read.
  std::span<const std::byte> NextIn() const;
  void Take() { ++taken_; }

  // Blocks until Waiting() is not 0, Interrupt is called or `until`; now and then
  // it returns for no reason. Polls for the ring's spin first, if it `may_spin`,
  // and not where polling has lately cost this thread its core: then others want
  // it, and whoever sleeps gets it sooner.
  void Await(Clock::time_point until, bool may_spin = true);

  // Has Await, now or the next one, return.
  void Interrupt();

 private:
  struct Counter;

  std::span<std::byte> Place(bool step, uint64_t index) const;
  bool Spin(Clock::time_point until);

  std::span<std::byte> memory_;
  const RingLayout& layout_;
  const End end_;
  std::chrono::microseconds spin_;
  Clock::time_point no_spin_until_ = {};
  std::chrono::milliseconds no_spin_for_{};
  Counter* const out_;
  Counter* const in_;
  uint64_t posted_ = 0;  // the counters wrap, places do not
  uint64_t taken_ = 0;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_RING_H_
