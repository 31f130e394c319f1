#ifndef FLOTILLA_LEARNER_ALGO_SCHEDULE_H_
#define FLOTILLA_LEARNER_ALGO_SCHEDULE_H_

#include <cmath>
#include <numbers>

#include "flotilla/v1/config.pb.h"

namespace flotilla {

// The factor a schedule puts on the learning rate (and PPO's clip range) once
// the share `done` of the run is; see ShareDone of services/base/run_length.h.
inline double ScheduleFactor(const v1::OptimizerConfig& optimizer,
                             double done) {
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
