#ifndef FLOTILLA_ENVSERVER_COMMAND_LINE_H_
#define FLOTILLA_ENVSERVER_COMMAND_LINE_H_

#include <string>
#include <vector>

namespace flotilla {

enum class Parsed { kRun, kExit, kBadUsage };

// Sets Abseil flags from `arguments`, without the program's name: --name=value,
// --name value, --name and --noname; dashes inside names are underscores.
//
// Prints --help and --version (kExit), or what is wrong to stderr (kBadUsage):
// Abseil's own parser ends the process, with other exit codes than ours.
Parsed ParseCommandLine(const std::string& program, const std::string& usage,
                        const std::vector<std::string>& arguments);

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_COMMAND_LINE_H_
