#ifndef FLOTILLA_SERVICES_COORDINATOR_RUN_COORDINATOR_H_
#define FLOTILLA_SERVICES_COORDINATOR_RUN_COORDINATOR_H_

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "services/coordinator/coordinator_service.h"
#include "services/rpc/credentials.h"

namespace flotilla {

inline constexpr char kDefaultCoordinatorAddress[] = "127.0.0.1:29400";

struct RunCoordinatorOptions {
  // "" is the default address, or any free port of its host if it is taken.
  std::string listen;
  std::string address_file;  // gets the bound address, atomically; "": none
  CoordinatorServiceOptions service;
  // Where Prometheus finds /metrics, as `listen`; "": nowhere. With the TLS of
  // `credentials` over https, for scrapers with the token or, without one, a
  // certificate that may look on. With neither only on loopback, and only where
  // looking on is open, unless `insecure`.
  std::string metrics_listen;
  std::string metrics_token_file;    // what scrapers show; "": nothing
  std::string metrics_address_file;  // gets the bound address
  // Somebody has to be kept from changing the run: TLS, a token or `insecure`.
  // With open_reading, the token's file is made where there is none.
  RpcCredentials credentials;
};

// The body of flotilla-coordinator: serves until `stop`, then lets everybody go
// within two seconds. Blocks.
//
// Errors: kInvalidArgument if the options make no sense; what RpcServer::Start
// and CoordinatorService::Make refuse with; what WriteFileAtomically says, unless
// it takes over another's run: its journal and addresses may stay as they are.
absl::Status RunCoordinator(const RunCoordinatorOptions& options,
                            std::stop_token stop);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_RUN_COORDINATOR_H_
