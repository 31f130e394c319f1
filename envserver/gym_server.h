#ifndef FLOTILLA_ENVSERVER_GYM_SERVER_H_
#define FLOTILLA_ENVSERVER_GYM_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/scratch_folder.h"
#include "services/base/subprocess.h"

namespace flotilla {

// envserver/python/flotilla_gym with `flags`, in the Python that
// FLOTILLA_PYTHON names, else python3 of PATH. What argv[0] names exists.
// Errors: kFailedPrecondition, saying what helps, without Python or the
// package.
absl::StatusOr<std::vector<std::string>> GymServerCommand(
    const std::vector<std::string>& flags);

// What the Python server does for a learner, whoever starts it.
struct GymServerOptions {
  int max_num_envs = 1;
  // Of environments that failed; see ThreadVectorEnv::Options.
  absl::Duration retry_wait = absl::ZeroDuration();
  bool renew_failed = false;

  std::vector<std::string> Flags() const;
};

// A Python server of our own, on a unix socket that only we know.
//
// Thread-safe.
class GymServer {
 public:
  // Blocks until it listens, for as long as Gymnasium takes to load.
  // Errors: those of GymServerCommand; kFailedPrecondition, in its own words,
  // if it cannot start.
  static absl::StatusOr<std::unique_ptr<GymServer>> Start(
      const GymServerOptions& options);

  const std::string& address() const { return address_; }

  // `status` of a call to it, as its own words: without our private address,
  // and with how the process ended, if it has.
  absl::Status Explain(const absl::Status& status);

 private:
  GymServer() = default;

  ScratchFolder folder_;
  std::string address_;
  std::unique_ptr<Subprocess> process_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_GYM_SERVER_H_
