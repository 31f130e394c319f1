#ifndef FLOTILLA_LAUNCHER_COORDINATOR_PROCESS_H_
#define FLOTILLA_LAUNCHER_COORDINATOR_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/restart_budget.h"
#include "services/base/run_folder.h"
#include "services/base/subprocess.h"
#include "services/rpc/credentials.h"

namespace flotilla {

struct CoordinatorOptions {
  std::string address;  // HOST:PORT
  // Takes another free port of the host if that one is taken.
  bool any_port = false;
  RunFolder folder{""};
  std::vector<std::string> flags;  // about the run: --min_learners=2, ...
  // With neither TLS nor a token, nor `insecure`: what changes the run takes
  // folder.token(), which is then there.
  RpcCredentials credentials;
  std::function<void(const std::string&)> notice = [](const std::string&) {};
};

// The run's coordinator as a child of its launcher. It outlives its own
// crashes: a new one takes over on the same port, from the journal in the run's
// folder.
//
// Not thread-safe.
class CoordinatorProcess {
 public:
  // Starts it and blocks until it serves. An earlier run's journal is removed:
  // this is a new world.
  // Errors: kUnavailable, with the coordinator's own words, if it cannot serve.
  static absl::StatusOr<std::unique_ptr<CoordinatorProcess>> Start(
      const CoordinatorOptions& options);

  // Asks it to finish, then kills it.
  ~CoordinatorProcess();

  // HOST:PORT, with the port it got.
  const std::string& address() const { return address_; }

  // Starts it again if it has died. Does not block. Call it often.
  // Errors: kUnavailable when it keeps dying.
  absl::Status Check();

 private:
  explicit CoordinatorProcess(const CoordinatorOptions& options);

  absl::Status Launch(const std::string& address);
  absl::Status Begin(const std::string& address);

  const CoordinatorOptions options_;
  std::string address_;
  RestartBudget budget_;
  std::optional<absl::Time> restart_at_;
  std::unique_ptr<Subprocess> process_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_COORDINATOR_PROCESS_H_
