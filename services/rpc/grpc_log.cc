#include "services/rpc/grpc_log.h"

#include <glog/logging.h>
#include <grpc/support/log.h>

#include <cstdlib>
#include <mutex>

#include "absl/strings/match.h"

namespace flotilla {

void PrepareGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Its own way to resolve names knows files and DNS alone, and not what else the
    // system asks (mDNS, nss-myhostname, LDAP): a name that ping finds is to be found.
    setenv("GRPC_DNS_RESOLVER", "native", /*overwrite=*/0);
    if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
    gpr_set_log_function([](gpr_log_func_args* args) {
      // What it aborts with has to be seen.
      const bool fatal = absl::StartsWith(args->message, "assertion failed");
      LOG_IF(ERROR, fatal) << "gRPC: " << args->file << ":" << args->line
                           << ": " << args->message;
      VLOG(1) << "gRPC: " << args->file << ":" << args->line << ": "
              << args->message;
    });
  });
}

}  // namespace flotilla
