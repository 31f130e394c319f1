#include "launcher/doctor.h"

#include <algorithm>
#include <cstdio>

#include "launcher/commands/command.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {

int RunDoctor(const Arguments& arguments) {
  DoctorOptions options;
  CommandLine line(
      "flotilla doctor [flags]",
      "Checks this machine, and prints the command that mends what "
      "is missing.\nExits with 1 if training could not work.");
  line.Text("--run-dir", "DIR", "also: is this folder on shared storage?",
            &options.run_dir);
  line.Text("--coordinator", "HOST:PORT", "also: does it answer?",
            &options.coordinator);
  AddCredentialFlags(&options.credentials, &line);
  const ParsedLine parsed = ParseLine("doctor", arguments, 0, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const std::vector<Finding> findings = Examine(options);
  std::printf("%s", Describe(findings).c_str());
  const bool bad = std::any_of(
      findings.begin(), findings.end(),
      [](const Finding& f) { return f.state == Finding::State::kBad; });
  return bad ? kExitFailed : kExitDone;
}

}  // namespace flotilla
