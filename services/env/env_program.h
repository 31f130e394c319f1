#ifndef FLOTILLA_SERVICES_ENV_ENV_PROGRAM_H_
#define FLOTILLA_SERVICES_ENV_ENV_PROGRAM_H_

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/subprocess.h"

namespace flotilla {

// A program that serves environments to this process alone: flotilla-envserver,
// or another's (env.server=exec:COMMAND). It is told, after its own arguments:
//
//   --listen=unix:PATH    where to serve flotilla.v1.EnvService
//   --address-file=PATH   to be written, a line, as soon as it serves: that
//                         address, or 127.0.0.1:PORT where its gRPC has no unix
//                         sockets
//   --env=ID              the environment that will be played, if it is known;
//                         the hello says it again
//
// Nothing else is asked of it: it is killed when it is not needed any more, or
// when we are gone.
struct EnvProgram {
  std::unique_ptr<Subprocess> process;
  std::string address;
};

struct EnvProgramOptions {
  std::vector<std::string> command;  // its name, perhaps on PATH, and arguments
  std::string called;     // what people know it by: "env.server \"exec:...\""
  bool foreign = true;    // it may know nothing of lifelines
  std::string env_id;     // "": not known
  std::string socket;     // a path nobody else has, in a folder of ours
  std::string log_path;   // "": inherited
  bool keeps_log = true;  // else an error does not name it
};

// Blocks until it serves.
// Errors, each naming the program and its log: kFailedPrecondition if there is no
// such program, or what it says is no address of this host; kUnavailable if it
// ends, with its exit and its last words; kDeadlineExceeded; kResourceExhausted
// if it floods its log; kCancelled when `stop` is requested.
absl::StatusOr<EnvProgram> StartEnvProgram(const EnvProgramOptions& options,
                                           absl::Duration timeout,
                                           std::stop_token stop);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_ENV_PROGRAM_H_
