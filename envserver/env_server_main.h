#ifndef FLOTILLA_ENVSERVER_ENV_SERVER_MAIN_H_
#define FLOTILLA_ENVSERVER_ENV_SERVER_MAIN_H_

#include "envserver/registry.h"

namespace flotilla {

// The whole of an env server: serves the environments of `registry` to learners,
// as flotilla-envserver does, with its flags (--help lists them). With one of
// your own a program is
//
//   int main(int argc, char** argv) {
//     flotilla::EnvironmentRegistry registry;
//     registry.Add("Mine-v0", [](const flotilla::EnvironmentArguments&) {
//       return std::make_unique<Mine>();
//     });
//     return flotilla::EnvServerMain(argc, argv, registry);
//   }
//
// and env.server=exec:PROGRAM trains on it. Call it first in main(), before any
// thread starts. Blocks until a signal, or until whoever started it is gone;
// returns the exit code. Logs to stderr.
int EnvServerMain(int argc, char** argv, const EnvironmentRegistry& registry);

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENV_SERVER_MAIN_H_
