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
inline double ScheduleFactor(const v1::OptimizerConfig& optimizer,
                             int64_t global_step, int64_t total) {
  const double done =
      std::clamp(static_cast<double>(global_step) / total, 0.0, 1.0);
  const auto from_one_to_end = [&](double left) {
    return optimizer.schedule_end() + (1 - optimizer.schedule_end()) * left;
  };
  switch (optimizer.schedule()) {
    case v1::LINEAR:
      return from_one_to_end(1.0 - done);
    case v1::COSINE:
      return from_one_to_end(0.5 * (1.0 + std::cos(std::numbers::pi * done)));
    case v1::CONSTANT:
      break;
  }
  return 1.0;
}

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_SCHEDULE_H_
