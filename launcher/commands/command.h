#ifndef FLOTILLA_LAUNCHER_COMMANDS_COMMAND_H_
#define FLOTILLA_LAUNCHER_COMMANDS_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/base/command_line.h"
#include "services/base/exit_codes.h"

namespace flotilla {

using Arguments = std::vector<std::string>;

// The subcommands, one a file. Each takes what follows its name, blocks until
// it is done and returns the process's exit code.
int RunTrain(const Arguments& arguments);
int RunEvaluate(const Arguments& arguments);
int RunReplay(const Arguments& arguments);
int RunStatus(const Arguments& arguments);
int RunStop(const Arguments& arguments);
int RunSet(const Arguments& arguments);
int RunRuns(const Arguments& arguments);
int RunPlot(const Arguments& arguments);
int RunDashboard(const Arguments& arguments);
int RunSweep(const Arguments& arguments);
int RunExport(const Arguments& arguments);
int RunPush(const Arguments& arguments);
int RunEnvs(const Arguments& arguments);
int RunCheckEnv(const Arguments& arguments);
int RunConfigs(const Arguments& arguments);
int RunNew(const Arguments& arguments);
int RunInstall(const Arguments& arguments);
int RunExplain(const Arguments& arguments);
int RunCompletion(const Arguments& arguments);
int RunDoctor(const Arguments& arguments);
int RunCoordinator(const Arguments& arguments);
int RunServeEnvs(const Arguments& arguments);
int RunHealth(const Arguments& arguments);
int RunVersion(const Arguments& arguments);

// Prints "flotilla COMMAND: message" to stderr and returns the exit code that
// fits: 2 for what the user can put right on the command line or in a file of
// configuration, else 1.
int Report(const std::string& command, const absl::Status& status);

// As Report, for a wrong command line: 2, with a pointer to --help.
int ReportUsage(const std::string& command, const absl::Status& status);

// Parses `arguments`, or answers what a shell's completion or the manual asks
// with them; afterwards either `exit_code` is to be returned, or
// `positional` holds the arguments, of which there are at most `most`.
struct ParsedLine {
  std::optional<int> exit_code;
  std::vector<std::string> positional;
};
ParsedLine ParseLine(const std::string& command, const Arguments& arguments,
                     size_t most, CommandLine* line);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_COMMANDS_COMMAND_H_
