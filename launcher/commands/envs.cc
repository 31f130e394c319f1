#include <cstdio>

#include "launcher/commands/command.h"
#include "launcher/env_check.h"

namespace flotilla {

int RunEnvs(const Arguments& arguments) {
  CommandLine line("flotilla envs",
                   "Lists the environments that can be trained on here.");
  const ParsedLine parsed = ParseLine("envs", arguments, 0, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const auto known = AskEnvServer("", v1::EnvOptions(), absl::Seconds(60));
  if (!known.ok()) return Report("envs", known.status());
  for (const std::string& id : known->env_id()) std::printf("%s\n", id.c_str());
  std::printf(
      "gym:ID, gym:package:ID   any Gymnasium environment (flotilla doctor "
      "says whether Python has what it takes)\n");
  return kExitDone;
}

}  // namespace flotilla
