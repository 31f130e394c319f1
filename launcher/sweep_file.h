#ifndef FLOTILLA_LAUNCHER_SWEEP_FILE_H_
#define FLOTILLA_LAUNCHER_SWEEP_FILE_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/base/json.h"

namespace flotilla {

// The computer that trials are to run on, as this process may use it.
struct SweepMachine {
  int cores = 1;
  int gpus = 0;
};

// Reads the sweep at `path` (proto/flotilla/v1/sweep.proto) and checks all of it
// that can be known before a trial runs: fields, values and their ranges, every
// point of a grid, the metric, budgets, and whether `machine` has room. The answer
// is what launcher/python/flotilla_sweep takes: the message as JSON with all its
// defaults, the base's text and budget in it.
//
// `base` is used in place of the file that the sweep names, unless it is "", and
// `parallel`, as --parallel has it, in place of placement.parallel.
//
// Errors: kNotFound, kInvalidArgument, one line that begins with the place to change.
absl::StatusOr<Json> ReadSweep(const std::string& path, const std::string& base,
                               const SweepMachine& machine,
                               std::optional<int> parallel = std::nullopt);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_SWEEP_FILE_H_
