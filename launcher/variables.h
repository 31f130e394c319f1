#ifndef FLOTILLA_LAUNCHER_VARIABLES_H_
#define FLOTILLA_LAUNCHER_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/topology.h"

namespace flotilla {

// More ranks, nodes or learners than this are a mistake.
inline constexpr int kMostRanks = 1 << 20;

// An environment whose values are read as numbers, and whose gaps and nonsense
// are named. Borrows the environment.
class Variables {
 public:
  explicit Variables(const Environment& environment)
      : environment_(environment) {}

  bool Has(const std::string& name) const;
  std::string Text(const std::string& name) const;  // "" if it is not there

  // Errors: kInvalidArgument unless it is an integer in [low, high].
  absl::StatusOr<int> Int(const std::string& name, int low, int high) const;

  // Errors: kInvalidArgument naming those of `names` that are not there; they
  // are "part of `set_name`".
  absl::Status Require(const std::vector<std::string>& names,
                       const std::string& set_name) const;

  // The first of two names that is there, else the first.
  std::string Either(const std::string& first, const std::string& second) const;

 private:
  const Environment& environment_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_VARIABLES_H_
