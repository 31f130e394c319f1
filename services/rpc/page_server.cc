#include "services/rpc/page_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/base/descriptors.h"
#include "services/base/secret.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/rpc/credentials.h"
#include "services/rpc/listener.h"
#include "services/rpc/roles.h"

namespace flotilla {
namespace {

// What the other end gets to hang up once it has its answer.
constexpr absl::Duration kHangUpWithin = absl::Seconds(1);

const char* ReasonOf(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Bad Request";
  }
}

// The only header of that name; "" if there is none or are several.
std::string HeaderOf(const std::vector<absl::string_view>& lines,
                     absl::string_view name) {
  std::string found;
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t colon = lines[i].find(':');
    if (colon == lines[i].npos ||
        !absl::EqualsIgnoreCase(lines[i].substr(0, colon), name)) {
      continue;
    }
    if (!found.empty()) return "";
    found = std::string(absl::StripAsciiWhitespace(lines[i].substr(colon + 1)));
  }
  return found;
}

bool ShowsToken(const std::string& header, const std::string& token) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(header, kScheme)) return false;
  return EqualInConstantTime(
      absl::StripAsciiWhitespace(
          absl::string_view(header).substr(kScheme.size())),
      token);
}

}  // namespace

PageRequest ReadPageRequest(absl::string_view request,
                            const PageServerOptions& options) {
  const size_t end = request.find("\r\n\r\n");
  if (end == request.npos) {
    if (request.size() >= options.max_request_bytes) return {.code = 431};
    return {.whole = false};
  }
  if (end + 4 > options.max_request_bytes) return {.code = 431};
  const std::vector<absl::string_view> lines =
      absl::StrSplit(request.substr(0, end), "\r\n");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/")) {
    return {.code = 400};
  }
  if (!absl::StartsWith(words[2], "HTTP/1.")) return {.code = 505};
  PageRequest result = {.body = words[0] != "HEAD"};
  if (options.token.empty()) {
    // "unix:9" is a name and a port, as a browser says them.
    const std::string host = HeaderOf(lines, "host");
    if (!options.tls.uses_tls() && IsLocalAddress(options.address) &&
        !IsUnixAddress(options.address) &&
        (IsUnixAddress(host) || !IsLocalAddress(host))) {
      result.code = 421;
      return result;
    }
  } else if (!ShowsToken(HeaderOf(lines, "authorization"), options.token)) {
    result.code = 401;
    return result;
  }
  if (words[1].substr(0, words[1].find('?')) != options.path) {
    result.code = 404;
  } else if (words[0] != "GET" && words[0] != "HEAD") {
    result.code = 405;
  }
  return result;
}

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(
    PageServerOptions options) {
  ASSIGN_OR_RETURN(Listener listener, Listener::Bind(options.address));
  std::unique_ptr<PageServer> server(
      new PageServer(std::move(options), listener.address()));
  if (server->options_.tls.uses_tls()) {
    ASSIGN_OR_RETURN(
        server->tls_,
        TlsServer::Make(server->options_.tls, server->options_.token.empty()));
  }
  server->wake_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (server->wake_.get() < 0) {
    return absl::ErrnoToStatus(errno, "cannot make an eventfd");
  }
  AcceptorLimits limits = AcceptorLimits::Of(DescriptorLimit());
  const int most = static_cast<int>(server->options_.max_connections);
  limits.silent = std::min(limits.silent, most);
  limits.per_host = std::min(limits.per_host, most);
  limits.patience = server->options_.read_within;
  server->thread_ = std::thread([server = server.get()] { server->Run(); });
  ASSIGN_OR_RETURN(server->acceptor_,
                   Acceptor::Start(std::move(listener), limits,
                                   [server = server.get()](int fd, int) {
                                     server->Take(fd);
                                   }));
  return server;
}

PageServer::~PageServer() {
  acceptor_.reset();
  {
    MutexLock lock(&mu_);
    quit_ = true;
  }
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void PageServer::Take(int fd) {
  OwnedFd taken(fd);
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return;
  {
    MutexLock lock(&mu_);
    new_.push_back(std::move(taken));
  }
  eventfd_write(wake_.get(), 1);
}

void PageServer::Run() {
  while (true) {
    std::vector<pollfd> entries = {
        {.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    absl::Time next = absl::InfiniteFuture();
    for (const Connection& c : connections_) {
      const short events = c.out.empty() ? POLLIN : POLLOUT;
      entries.push_back({.fd = c.fd.get(), .events = events, .revents = 0});
      next = std::min(next, c.until);
    }
    const absl::Duration wait = next - SteadyNow();
    const int wait_ms =
        next == absl::InfiniteFuture()
            ? -1
            : static_cast<int>(std::clamp<int64_t>(
                  absl::ToInt64Milliseconds(wait) + 1, 0, 60'000));
    poll(entries.data(), entries.size(), wait_ms);
    // Before what it tells of is looked at: what is told later wakes it again.
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
    {
      MutexLock lock(&mu_);
      if (quit_) return;
    }
    const absl::Time now = SteadyNow();
    size_t i = 1;
    for (auto c = connections_.begin(); c != connections_.end(); ++i) {
      const bool over =
          now >= c->until || (entries[i].revents != 0 && !Serve(&*c));
      c = over ? connections_.erase(c) : std::next(c);
    }
    TakeNew();
  }
}

void PageServer::TakeNew() {
  std::vector<OwnedFd> fresh;
  {
    MutexLock lock(&mu_);
    fresh.swap(new_);
  }
  for (OwnedFd& fd : fresh) {
    if (connections_.size() >= options_.max_connections) return;  // dropped
    const absl::Time now = SteadyNow();
    Connection connection = {.fd = std::move(fd),
                             .until = now + options_.read_within};
    if (tls_ != nullptr) {
      connection.tls = tls_->NewSession(now);
      if (connection.tls == nullptr) continue;
    }
    connections_.push_back(std::move(connection));
  }
}

bool PageServer::Serve(Connection* connection) {
  return connection->out.empty() ? Read(connection) : Write(connection);
}

bool PageServer::Read(Connection* connection) {
  char bytes[4096];
  const ssize_t got = recv(connection->fd.get(), bytes, sizeof(bytes), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  if (connection->drains) return true;
  const absl::string_view heard(bytes, static_cast<size_t>(got));
  if (connection->tls != nullptr) return TakeTls(heard, connection);
  connection->in.append(heard.data(), heard.size());
  const PageRequest request = ReadPageRequest(connection->in, options_);
  if (!request.whole) return true;
  Answer(request, connection);
  return Write(connection);
}

bool PageServer::TakeTls(absl::string_view bytes, Connection* connection) {
  const bool first = !std::exchange(connection->heard, true);
  if (first && absl::ascii_isupper(static_cast<unsigned char>(bytes[0]))) {
    connection->tls.reset();  // "GET ": no TLS, where a hello begins with 22
    Answer({.code = 400, .why = "this page is served over https"}, connection);
    return Write(connection);
  }
  const bool goes_on =
      connection->tls->Take(bytes, &connection->in, &connection->out);
  PageRequest request = ReadPageRequest(connection->in, options_);
  if (!request.whole) {
    connection->answered = !goes_on;  // with an alert, if anything
    return Write(connection);         // or the handshake's next part
  }
  if (request.code == 200 && options_.token.empty()) {
    const absl::Status may = CheckShownRoles(connection->tls->Roles(),
                                             options_.roles, options_.path);
    if (!may.ok()) {
      request.code = 403;
      request.why = std::string(may.message());
    }
  }
  Answer(request, connection);
  return Write(connection);
}

void PageServer::Answer(const PageRequest& request, Connection* connection) {
  const bool good = request.code == 200;
  const std::string body =
      good ? options_.page()
           : absl::StrCat(request.code, " ", ReasonOf(request.code),
                          request.why.empty() ? "" : ": ", request.why, "\n");
  std::string answer = absl::StrCat(
      "HTTP/1.1 ", request.code, " ", ReasonOf(request.code),
      "\r\nContent-Type: ", good ? options_.content_type : "text/plain",
      "\r\nContent-Length: ", body.size(), "\r\nConnection: close",
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
      request.code == 401 ? "WWW-Authenticate: Bearer\r\n" : "",
      request.code == 405 ? "Allow: GET, HEAD\r\n" : "", "\r\n");
  if (request.body) answer += body;
  if (connection->tls == nullptr) {
    connection->out = std::move(answer);
  } else {
    connection->tls->Say(answer, &connection->out);
  }
  connection->answered = true;
  connection->until = SteadyNow() + options_.write_within;
}

bool PageServer::Write(Connection* connection) {
  while (connection->written < connection->out.size()) {
    const ssize_t sent =
        send(connection->fd.get(), connection->out.data() + connection->written,
             connection->out.size() - connection->written, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection->written += static_cast<size_t>(sent);
  }
  connection->out.clear();
  connection->out.shrink_to_fit();
  connection->written = 0;
  if (!connection->answered) return true;
  // With bytes unread, closing now would take the answer back.
  shutdown(connection->fd.get(), SHUT_WR);
  connection->drains = true;
  connection->until = SteadyNow() + kHangUpWithin;
  return true;
}

}  // namespace flotilla
