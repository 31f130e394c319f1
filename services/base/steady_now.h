#ifndef FLOTILLA_SERVICES_BASE_STEADY_NOW_H_
#define FLOTILLA_SERVICES_BASE_STEADY_NOW_H_

#include <chrono>

#include "absl/time/time.h"

namespace flotilla {

// For waits: a time that nobody sets, to be compared with others of it alone.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_STEADY_NOW_H_
