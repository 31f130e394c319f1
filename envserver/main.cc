// flotilla-envserver: serves environments to learners. The same program is a
// learner's local worker and a CPU-only host's server.

#include "envserver/env_server_main.h"

int main(int argc, char** argv) {
  return flotilla::EnvServerMain(argc, argv, flotilla::EnvironmentRegistry());
}
