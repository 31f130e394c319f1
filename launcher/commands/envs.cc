#include <cstdio>

#include "launcher/commands/command.h"
#include "launcher/env_check.h"
#include "services/base/printable.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {

int RunEnvs(const Arguments& arguments) {
  v1::EnvConfig env;
  env.set_id("");  // all of them
  CommandLine line("flotilla envs [--server SERVER]",
                   "Lists the environments that can be trained on here, or "
                   "those of a server of yours.");
  line.Text("--server", "SERVER",
            "as env.server: exec:COMMAND ARGS, unix:PATH or HOST:PORT",
            env.mutable_server());
  RpcCredentials credentials;
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed = ParseLine("envs", arguments, 0, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const auto known = AskEnvServer(env, credentials, absl::Seconds(60));
  if (!known.ok()) return Report("envs", known.status());
  for (const std::string& id : known->env_id()) {
    std::printf("%s\n", PrintableLine(id).c_str());
  }
  if (!env.server().empty()) return kExitDone;
  std::printf(
      "gym:ID, gym:package:ID   any Gymnasium environment (flotilla doctor "
      "says whether Python has what it takes)\n"
      "pettingzoo:MODULE        any of PettingZoo's, or like them, with "
      "several "
      "agents: pettingzoo:classic/connect_four_v3\n");
  return kExitDone;
}

}  // namespace flotilla
