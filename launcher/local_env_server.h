#ifndef FLOTILLA_LAUNCHER_LOCAL_ENV_SERVER_H_
#define FLOTILLA_LAUNCHER_LOCAL_ENV_SERVER_H_

#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/scratch_folder.h"
#include "services/base/subprocess.h"

namespace flotilla {

// A flotilla-envserver of our own, for as long as this object lives: on a unix
// socket in a folder that only we can enter.
//
// Thread-safe.
class LocalEnvServer {
 public:
  // Blocks until it serves, `timeout` at most. `flags`: more of its flags.
  // Errors: kNotFound if it is not built; how it ended, with its last log line,
  // if it died; kDeadlineExceeded; kCancelled when `stop` is requested.
  static absl::StatusOr<std::unique_ptr<LocalEnvServer>> Start(
      const std::vector<std::string>& flags, absl::Duration timeout,
      std::stop_token stop = {});

  std::string address() const { return "unix:" + scratch_.path() + "/socket"; }
  Subprocess* process() { return process_.get(); }
  std::string LastLogLine() const;

 private:
  LocalEnvServer() = default;

  const ScratchFolder scratch_;
  std::unique_ptr<Subprocess> process_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_LOCAL_ENV_SERVER_H_
