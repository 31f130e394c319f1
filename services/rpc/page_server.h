#ifndef FLOTILLA_SERVICES_RPC_PAGE_SERVER_H_
#define FLOTILLA_SERVICES_RPC_PAGE_SERVER_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/base/mutex.h"
#include "services/base/owned_fd.h"
#include "services/rpc/acceptor.h"
#include "services/rpc/credentials.h"
#include "services/rpc/tls_session.h"

namespace flotilla {

struct PageServerOptions {
  std::string address;  // as Listener::Bind takes it
  std::string path;     // "/metrics"
  std::string content_type;
  // "": open. Else who asks has to show it: "Authorization: Bearer TOKEN".
  std::string token;
  // Its TLS files, if it has any, make the page https, for which a client has to
  // show a certificate with one of `roles` where there is no token.
  RpcCredentials tls;
  std::vector<std::string> roles;
  // Makes the page; on the server's thread, one call at a time.
  std::function<std::string()> page;

  size_t max_connections = 64;  // that have spoken
  size_t max_request_bytes = 8 << 10;
  absl::Duration read_within = absl::Seconds(5);    // the whole request
  absl::Duration write_within = absl::Seconds(10);  // the whole answer
};

// What an HTTP/1.x request asks for, and what there is to answer but the page.
struct PageRequest {
  int code = 200;     // or 400, 401, 403, 404, 405, 421, 431, 505
  bool body = true;   // HEAD: false
  bool whole = true;  // false: more of it has to come
  std::string why = "";
};
PageRequest ReadPageRequest(absl::string_view request,
                            const PageServerOptions& options);

// One page for whoever scrapes it, over HTTP/1.1: GET and HEAD of one path, one
// request a connection. Without TLS it is plain text on the wire: what goes beyond
// this host is for a network that is trusted then. Who says too much or too slowly,
// a handshake included, or reads too slowly, is dropped; so are those above
// `max_connections`, the newest first. On loopback, with neither TLS nor a token, a
// page of the web that a browser here shows cannot read it: the Host asked for has
// to be this one.
//
// Thread-safe.
class PageServer {
 public:
  // Errors: those of Listener::Bind, Acceptor::Start and TlsServer::Make.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(
      PageServerOptions options);

  // Drops who is connected.
  ~PageServer();

  const std::string& address() const { return address_; }

 private:
  struct Connection {
    OwnedFd fd;
    absl::Time until;
    std::unique_ptr<TlsSession> tls = nullptr;
    std::string in = "", out = "";  // what was asked; what goes over the wire
    size_t written = 0;             // of `out`
    bool heard = false;
    bool answered = false;  // all is in `out`, or said
    bool drains = false;    // all is said; waits for the other end to hang up
  };

  PageServer(PageServerOptions options, std::string address)
      : options_(std::move(options)), address_(std::move(address)) {}

  void Take(int fd);
  void Run();
  void TakeNew();
  bool Serve(Connection* connection);  // false: it is over
  bool Read(Connection* connection);
  bool TakeTls(absl::string_view bytes, Connection* connection);
  bool Write(Connection* connection);
  void Answer(const PageRequest& request, Connection* connection);

  const PageServerOptions options_;
  const std::string address_;
  OwnedFd wake_;  // an eventfd

  Mutex mu_;
  std::vector<OwnedFd> new_ ABSL_GUARDED_BY(mu_);
  bool quit_ ABSL_GUARDED_BY(mu_) = false;

  std::unique_ptr<TlsServer> tls_;     // the thread's own; null: plain
  std::list<Connection> connections_;  // the thread's own
  std::thread thread_;
  std::unique_ptr<Acceptor> acceptor_;  // last: it uses the rest
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_PAGE_SERVER_H_
