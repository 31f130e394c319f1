#ifndef FLOTILLA_TESTS_TESTING_FAKE_CLOCK_H_
#define FLOTILLA_TESTS_TESTING_FAKE_CLOCK_H_

#include "absl/time/time.h"

namespace flotilla {

// A clock that only moves when told to, for rules that take their times as
// arguments.
//
// Not thread-safe.
class FakeClock {
 public:
  absl::Time Now() const { return now_; }

  // Moves forward and returns the new time.
  absl::Time Advance(absl::Duration step) { return now_ += step; }

 private:
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_FAKE_CLOCK_H_
