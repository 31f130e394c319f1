#include "services/base/config_available.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

struct Absent {
  bool asked;
  const char* field;
  const char* instead;
};

}  // namespace

absl::Status CheckAvailable(const v1::RunConfig& config) {
  const v1::DistributedConfig& distributed = config.distributed();
  const Absent absent[] = {
      {distributed.gradients() != v1::FLAT, "distributed.gradients", "FLAT"},
  };
  for (const Absent& a : absent) {
    if (!a.asked) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        a.field, " is not available in this release; use ", a.instead));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
