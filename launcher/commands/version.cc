#include "services/base/version.h"

#include <cstdio>

#include "launcher/commands/command.h"

namespace flotilla {

int RunVersion(const Arguments&) {
  std::printf("flotilla %s\n", Version().c_str());
  return kExitDone;
}

}  // namespace flotilla
