#ifndef FLOTILLA_SERVICES_BASE_RUN_LENGTH_H_
#define FLOTILLA_SERVICES_BASE_RUN_LENGTH_H_

#include <algorithm>
#include <cstdint>

#include "flotilla/v1/config.pb.h"

// How long a run is: total_updates where that is set, else total_env_steps.

namespace flotilla {

// The share of the run that is done, from 0 to 1, after `update` updates that
// took `global_step` environment steps of all learners. What ends with the run
// (schedules, exploration, checkpoints spread over it) follows this.
inline double ShareDone(const v1::RunConfig& config, int64_t update,
                        int64_t global_step) {
  const double done =
      config.has_total_updates()
          ? static_cast<double>(update) / config.total_updates()
          : static_cast<double>(global_step) / config.total_env_steps();
  return std::clamp(done, 0.0, 1.0);
}

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_RUN_LENGTH_H_
