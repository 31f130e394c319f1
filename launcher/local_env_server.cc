#include "launcher/local_env_server.h"

#include "absl/strings/str_cat.h"
#include "launcher/programs.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {

absl::StatusOr<std::unique_ptr<LocalEnvServer>> LocalEnvServer::Start(
    const std::vector<std::string>& flags, absl::Duration timeout,
    std::stop_token stop) {
  std::unique_ptr<LocalEnvServer> server(new LocalEnvServer);
  RETURN_IF_ERROR(server->scratch_.status());
  const std::string ready = server->scratch_.path() + "/address";
  SubprocessOptions program;
  ASSIGN_OR_RETURN(const std::string path, FindProgram("flotilla-envserver"));
  program.argv = {path, "--listen=" + server->address(),
                  "--address_file=" + ready};
  program.argv.insert(program.argv.end(), flags.begin(), flags.end());
  program.log_path = server->scratch_.path() + "/log";
  ASSIGN_OR_RETURN(server->process_, Subprocess::Start(program));
  const absl::Status started =
      server->process_->AwaitFile(ready, timeout, stop);
  if (started.ok()) return server;
  if (absl::IsCancelled(started)) return started;
  return absl::Status(started.code(),
                      absl::StrCat("flotilla-envserver ", started.message(),
                                   ": ", server->LastLogLine()));
}

std::string LocalEnvServer::LastLogLine() const {
  return LastLine(scratch_.path() + "/log");
}

}  // namespace flotilla
