#include <cstdio>
#include <fstream>
#include <iostream>

#include "launcher/commands/command.h"
#include "launcher/config_finder.h"

namespace flotilla {

int RunConfigs(const Arguments& arguments) {
  CommandLine line(
      "flotilla configs [CONFIG]",
      "Lists the configurations that come with Flotilla, or prints "
      "one.");
  const ParsedLine parsed = ParseLine("configs", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (!parsed.positional.empty()) {
    const auto path = FindConfig(parsed.positional[0]);
    if (!path.ok()) return Report("configs", path.status());
    std::cout << std::ifstream(*path).rdbuf();
    return kExitDone;
  }
  const auto configs = ShippedConfigs();
  if (!configs.ok()) return Report("configs", configs.status());
  for (const ShippedConfig& config : *configs) {
    std::printf("%-20s %s\n", config.name.c_str(), config.about.c_str());
  }
  return kExitDone;
}

}  // namespace flotilla
