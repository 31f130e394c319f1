#include "learner/checkpoint/save_schedule.h"

#include <algorithm>
#include <cmath>

namespace flotilla {
namespace {

// Saving takes a twentieth of the time at most.
constexpr double kLeastPeriods = 20;

// How many of `count` points, spread evenly, lie in the first `share`.
int64_t PointsPassed(double share, int64_t count) {
  constexpr double kRounding = 1e-9;  // a third times three is one
  return static_cast<int64_t>(
      std::floor(share * static_cast<double>(count) + kRounding));
}

}  // namespace

bool IsSaveDue(const v1::CheckpointConfig& config, int64_t update,
               double share_before, double share_after, bool voted) {
  if (config.has_count()) {
    return share_after < 1 && PointsPassed(share_after, config.count()) >
                                  PointsPassed(share_before, config.count());
  }
  const int64_t every = config.every_updates();
  return voted || (every > 0 && update % every == 0);
}

bool SaveClock::Asks(const v1::CheckpointConfig& config, double now) const {
  if (config.has_count() || config.every_seconds() == 0) return false;
  return now - since_ >=
         std::max(config.every_seconds(), kLeastPeriods * cost_);
}

void SaveClock::Began(double now, double cost_seconds) {
  since_ = now;
  cost_ = cost_seconds;
}

int NumKept(const v1::CheckpointConfig& config) {
  return static_cast<int>(std::max<int64_t>(config.keep(), config.count()));
}

}  // namespace flotilla
