#ifndef FLOTILLA_SERVICES_RPC_TLS_SESSION_H_
#define FLOTILLA_SERVICES_RPC_TLS_SESSION_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The server's half of TLS on one connection, apart from its socket: bytes go in
// and bytes come out.
//
//   wire --> Take() --> what the client says
//   wire <-- Say()  <-- what the server says
//
// Not thread-safe.
class TlsSession {
 public:
  // Appends to `said` what `bytes`, which came over the wire, mean, and to `wire`
  // what has to go back: the handshake's part, or an alert. False: it is over.
  bool Take(absl::string_view bytes, std::string* said, std::string* wire);

  // Appends `text`, and that nothing follows it, to `wire`. After the first bytes
  // that Take() has understood.
  void Say(absl::string_view text, std::string* wire);

  // Those that the client's certificate names (roles.h); none without one.
  std::vector<std::string> Roles() const;

 private:
  friend class TlsServer;
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  explicit TlsSession(SSL* ssl) : ssl_(ssl) {}
  void MoveTo(std::string* wire);

  const std::unique_ptr<SSL, FreeSsl> ssl_;
};

// Makes the sessions of a server that speaks TLS itself: gRPC's do without. TLS
// 1.2 or later, without renegotiation, tickets or a cache: nothing of a
// connection outlives it.
//
// Not thread-safe.
class TlsServer {
 public:
  // With the files of `credentials`. `demand_certificate`: only clients that show
  // one which its authority has signed get through the handshake.
  // Errors: those of CheckTlsFiles; kInvalidArgument where OpenSSL refuses them.
  static absl::StatusOr<std::unique_ptr<TlsServer>> Make(
      const RpcCredentials& credentials, bool demand_certificate);

  // With the files as they are now, if that is `credentials.reload` after they
  // were last read; with those that were good before, where they are not. Null
  // without memory for it.
  std::unique_ptr<TlsSession> NewSession(absl::Time now);

 private:
  struct FreeContext {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  using Context = std::unique_ptr<SSL_CTX, FreeContext>;

  TlsServer(RpcCredentials credentials, bool demand_certificate)
      : credentials_(std::move(credentials)),
        demand_certificate_(demand_certificate) {}

  absl::StatusOr<Context> Read() const;

  const RpcCredentials credentials_;
  const bool demand_certificate_;
  Context context_;
  absl::Time read_at_ = absl::InfinitePast();
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_TLS_SESSION_H_
