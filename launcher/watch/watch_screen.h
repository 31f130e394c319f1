#ifndef FLOTILLA_LAUNCHER_WATCH_WATCH_SCREEN_H_
#define FLOTILLA_LAUNCHER_WATCH_WATCH_SCREEN_H_

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "flotilla/v1/coordinator.pb.h"
#include "launcher/coordinator_calls.h"
#include "launcher/find_coordinator.h"

namespace flotilla {

// Shows a run on the whole terminal until it is over, its person has enough or
// `stop` is requested, and gives the terminal back. Blocks. A coordinator that
// does not answer is waited for, unless the run's folder says that it is over.
//
// Returns the last status if the run has ended, nullopt if it goes on.
// Errors: of the terminal; kUnavailable if the coordinator is gone and the run is
// over.
absl::StatusOr<std::optional<v1::Status>> WatchOnScreen(const RunAddress& run,
                                                        const v1::Status& first,
                                                        CoordinatorCalls* calls,
                                                        std::stop_token stop);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_WATCH_WATCH_SCREEN_H_
