#ifndef FLOTILLA_SERVICES_COORDINATOR_METRICS_PAGE_H_
#define FLOTILLA_SERVICES_COORDINATOR_METRICS_PAGE_H_

#include <string>

#include "flotilla/v1/coordinator.pb.h"

namespace flotilla {

// What there is to say of a run to Prometheus, in its text format (version 0.0.4).
// Counts go back where the run does: when it starts over, or goes on from a
// checkpoint. Workers are counted by state, not named, so that there are as many
// series as learners, not as environments.
std::string MetricsPage(const v1::Status& status);

inline constexpr char kMetricsContentType[] =
    "text/plain; version=0.0.4; charset=utf-8";

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_METRICS_PAGE_H_
