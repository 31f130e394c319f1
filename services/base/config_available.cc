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
  const Absent absent[] = {
      {config.env().id().rfind("gym:", 0) == 0, "env.id=gym:...",
       "a native environment (flotilla envs), or a server of your own that "
       "speaks proto/flotilla/v1/env.proto"},
  };
  for (const Absent& a : absent) {
    if (!a.asked) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        a.field, " is not available in this release; use ", a.instead));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
