#ifndef FLOTILLA_LEARNER_ALGO_SCHEDULE_H_
#define FLOTILLA_LEARNER_ALGO_SCHEDULE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "flotilla/v1/config.pb.h"

namespace flotilla {

// The factor a schedule puts on the learning rate (and PPO's clip range) once
// `global_step` of `total` environment steps are done. Follows global steps, so
// that it does not change with the world's size.
inline double ScheduleFactor(v1::Schedule schedule, int64_t global_step,
                             int64_t total) {
  const double done =
      std::clamp(static_cast<double>(global_step) / total, 0.0, 1.0);
  switch (schedule) {
    case v1::LINEAR:
      return 1.0 - done;
    case v1::COSINE:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    default:
      return 1.0;
  }
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SCHEDULE_H_
