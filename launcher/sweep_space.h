#ifndef FLOTILLA_LAUNCHER_SWEEP_SPACE_H_
#define FLOTILLA_LAUNCHER_SWEEP_SPACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/sweep.pb.h"

namespace flotilla {

// One searched field, and the values that it may have.
struct SweepParameterSpace {
  std::string where;  // "sweep.textproto:3:1: parameter ppo.epochs"
  std::string field;
  std::string kind;  // "uniform", "log_uniform", "integer" or "choice"
  double low = 0, high = 0;
  int64_t int_low = 0, int_high = 0, step = 1;
  std::vector<std::string>
      values;  // of a grid or a choice, as --set takes them
  // What is checked of it: its ends, or all of `values`.
  std::vector<std::string> probes;
};

// kInvalidArgument: what is wrong, and where it stands.
absl::Status InvalidAt(const std::string& where, const std::string& message);

// What `sweep`, of the file `path`, searches; `at` says where its parameter with that
// index stands. `config` is the base with what every trial overrides.
// Errors: kInvalidArgument for a field or value that is none.
absl::StatusOr<std::vector<SweepParameterSpace>> ReadSpace(
    const v1::Sweep& sweep, const v1::RunConfig& config,
    const std::string& path, absl::FunctionRef<std::string(int)> at);

// Whether every point of a grid, up to 2,000, is a configuration. Others pass.
// Errors: kInvalidArgument for too many points, or naming one that is none.
absl::Status CheckGrid(const v1::Sweep& sweep, const v1::RunConfig& config,
                       const std::string& path,
                       const std::vector<SweepParameterSpace>& parameters);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_SWEEP_SPACE_H_
