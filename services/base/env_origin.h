#ifndef FLOTILLA_SERVICES_BASE_ENV_ORIGIN_H_
#define FLOTILLA_SERVICES_BASE_ENV_ORIGIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace flotilla {

// Who makes a run's environments: env.server, taken apart.
struct EnvOrigin {
  enum class Kind {
    kOwn,      // flotilla-envserver, one for each worker
    kProgram,  // another program, one for each worker
    kRunning,  // one server, for all workers, that runs already
  };
  Kind kind = Kind::kOwn;
  std::vector<std::string> command;  // kProgram: its name and arguments
  std::string address;               // kRunning: "unix:PATH" or "HOST:PORT"
};

// Errors: kInvalidArgument, to be read after "env.server ".
absl::StatusOr<EnvOrigin> ParseEnvOrigin(const std::string& server);

// The words of a command line as a shell has them: white space parts them, but
// not inside of quotes ('...', "...") or behind a backslash. Nothing is
// expanded. Errors: kInvalidArgument if a quote is not closed.
absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& line);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_ENV_ORIGIN_H_
