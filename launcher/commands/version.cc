#include "services/base/version.h"

#include <cstdio>

#include "launcher/commands/command.h"

namespace flotilla {

int RunVersion(const Arguments& arguments) {
  CommandLine line("flotilla version", "Prints the version.");
  const ParsedLine parsed = ParseLine("version", arguments, 0, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  std::printf("flotilla %s\n", Version().c_str());
  return kExitDone;
}

}  // namespace flotilla
