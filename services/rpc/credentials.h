#ifndef FLOTILLA_SERVICES_RPC_CREDENTIALS_H_
#define FLOTILLA_SERVICES_RPC_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rpc/roles.h"

namespace flotilla {

// How this process proves who it is, and whom it believes. The same for all of
// a run's services. Everything is a path: secrets are never on a command line.
//
// TLS is mutual: both sides show a certificate that `tls_ca` signed, the
// server's good for its host, the client's with a role (roles.h). It needs all
// three files, which may be replaced while the process runs: connections made
// `reload` later use the new ones. It protects host:port addresses; a unix
// socket goes without, for its folder's permissions do that: an abstract one,
// which has no folder, is refused.
//
// The token is a shared secret, sent with every call as the metadata
// `authorization: Bearer TOKEN`, on any kind of address. Without TLS it crosses
// the network in the clear.
struct RpcCredentials {
  std::string tls_cert;    // PEM: this process's certificate and its chain
  std::string tls_key;     // PEM: its private key
  std::string tls_ca;      // PEM: who signs everybody's certificates
  std::string token_file;  // surrounding white space is ignored
  // Serve others with neither TLS nor token. Calls take what there is of them all
  // the same; a page of metrics may go without a token.
  bool insecure = false;
  // A server asks for the token only where a call changes something: on
  // loopback everybody may look.
  bool open_reading = false;
  absl::Duration reload = absl::Seconds(10);  // whole seconds, at least one

  bool uses_tls() const { return !tls_cert.empty(); }
  bool uses_token() const { return !token_file.empty(); }
};

// Checks that the TLS files are all there or none, without reading them.
// Errors: kInvalidArgument, naming the flag that is missing.
absl::Status CheckCredentials(const RpcCredentials& credentials);

// Whether a page of metrics at `listen`, which asks for what `token_file` holds, if it
// is named, shows a run to nobody who may not look at it: everybody who gets there
// without a token or TLS reads it, and with TLS alone those who may look at the run.
// Errors: kInvalidArgument, with the remedies; those of ReadToken, of `token_file`.
absl::Status CheckMetricsReaders(const std::string& listen,
                                 const std::string& token_file,
                                 const RpcCredentials& credentials);

// Checks that the TLS files belong together, by reading them. gRPC reads them
// itself, again and again, and says nothing of what is wrong with them.
// Errors: kNotFound or kPermissionDenied; kInvalidArgument if one is no PEM, or
// has another's key.
absl::Status CheckTlsFiles(const RpcCredentials& credentials);

// What a server at `address` demands from its clients: a certificate, a token,
// both or neither. A call without the right token ends with UNAUTHENTICATED,
// one whose certificate lacks the role for it with PERMISSION_DENIED, before
// any handler sees it. Errors: kInvalidArgument, kNotFound or
// kPermissionDenied, naming the file; kInvalidArgument if key and certificate
// do not belong together, or TLS does not protect `address`.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const RpcCredentials& credentials, const std::string& address,
    const MethodRoles& roles = {});

// The channel's half of TLS. Errors are those of MakeServerCredentials.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const RpcCredentials& credentials,
                       const std::string& address);

// The token in `token_file`; "" if none is named.
// Errors: kNotFound or kPermissionDenied; kInvalidArgument if it is empty or
// has white space inside.
absl::StatusOr<std::string> ReadToken(const RpcCredentials& credentials);

// Whether `address` is a unix socket: "unix:path" or "unix-abstract:name".
bool IsUnixAddress(const std::string& address);

// Whether a folder's permissions say who reaches `address`: "unix:path". An
// abstract socket is open to every user of this host, as loopback is.
bool HasFolder(const std::string& address);

// Whether only this host can reach `address`: a unix socket, localhost, 127.*
// or ::1. Names are not resolved.
bool IsLocalAddress(const std::string& address);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_CREDENTIALS_H_
