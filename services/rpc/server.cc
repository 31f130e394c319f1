#include "services/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/rpc/grpc_log.h"

namespace flotilla {
namespace {

// The address as we bind it: "localhost" may mean two addresses, of which gRPC
// would be content with one, and no host means every interface.
absl::StatusOr<std::string> Normalised(const std::string& address) {
  if (IsUnixAddress(address)) return address;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on \"", address,
                     "\": want HOST:PORT (port 0 for any free one), unix:PATH "
                     "or unix-abstract:NAME"));
  }
  const std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon);
  if (host.empty()) return absl::StrCat("0.0.0.0", port);
  if (host == "localhost") return absl::StrCat("127.0.0.1", port);
  return address;
}

absl::Status CheckExposure(const std::string& address,
                           const RpcCredentials& credentials) {
  if (IsLocalAddress(address) || credentials.uses_tls() ||
      credentials.uses_token() || credentials.insecure) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "refusing to listen on ", address,
      ", which other hosts can reach, without TLS or a token: give --tls-cert, "
      "--tls-key and --tls-ca, or --token-file, or --insecure to allow anybody "
      "on the network, or listen on 127.0.0.1"));
}

// gRPC does not say why it cannot bind; binding again does. 0 if that works.
int BindErrno(const std::string& address) {
  if (absl::StartsWith(address, "unix-abstract:")) return EADDRINUSE;
  if (absl::StartsWith(address, "unix:")) {
    std::string path = address.substr(5);
    if (absl::StartsWith(path, "//")) path = path.substr(2);
    sockaddr_un name = {};
    if (path.size() >= sizeof(name.sun_path)) return ENAMETOOLONG;
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path.data(), path.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int result =
        bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0 ? 0
                                                                        : errno;
    close(fd);
    if (result == 0) unlink(path.c_str());
    return result;
  }
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) !=
      0) {
    return EDESTADDRREQ;
  }
  int result = 0;
  for (addrinfo* i = found; i != nullptr && result == 0; i = i->ai_next) {
    const int fd = socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, i->ai_addr, i->ai_addrlen) != 0) {
      result = errno;
    } else if (listen(fd, 1) != 0) {
      result = errno;
    }
    close(fd);
  }
  freeaddrinfo(found);
  return result;
}

absl::Status BindError(const std::string& address) {
  const int error = BindErrno(address);
  const std::string what = absl::StrCat("cannot listen on ", address, ": ");
  switch (error) {
    case 0:
      return absl::UnavailableError(
          absl::StrCat(what, "gRPC refused it, although it is free"));
    case EADDRINUSE:
      return absl::UnavailableError(
          absl::StrCat(what,
                       "something listens there already. Stop it, or choose "
                       "another address (port 0 takes any free one)"));
    case EDESTADDRREQ:
      return absl::InvalidArgumentError(
          absl::StrCat(what, "no such host or port"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(
          absl::StrCat(what,
                       "this host has no such address. 0.0.0.0 listens on all "
                       "of its own"));
    default:
      return absl::ErrnoToStatus(error,
                                 absl::StrCat("cannot listen on ", address));
  }
}

// A socket file that a killed process left would make the address busy for
// ever; gRPC itself replaces it even while somebody listens. Removes it if
// nobody does.
absl::Status ClearStaleSocket(const std::string& address) {
  if (!absl::StartsWith(address, "unix:")) return absl::OkStatus();
  std::string path = address.substr(5);
  if (absl::StartsWith(path, "//")) path = path.substr(2);
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", address, ": the path has ", path.size(),
        " bytes, want 1 to ", sizeof(name.sun_path) - 1));
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "cannot listen on ", address, ": there is a file that is no socket"));
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int result =
      connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name));
  const int error = errno;
  close(fd);
  if (result == 0 || error == EAGAIN) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address,
        ": something listens there already. Stop it, or choose another path"));
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

void SetArguments(int max_message_bytes, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(max_message_bytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  // Ports are ours alone: two servers on one port would share its clients.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients ping every 20 s; without these a server calls that abuse.
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  // A connection that never says a word is closed.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000);
  // Only reflection uses these threads; callbacks have their own.
  using Option = grpc::ServerBuilder::SyncServerOption;
  builder->SetSyncServerOption(Option::NUM_CQS, 1);
  builder->SetSyncServerOption(Option::MIN_POLLERS, 1);
  builder->SetSyncServerOption(Option::MAX_POLLERS, 2);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options) {
  QuietGrpcLog();
  ASSIGN_OR_RETURN(const std::string address, Normalised(options.address));
  MethodRoles roles;
  for (const auto& service : options.services) {
    roles.insert(service.roles.begin(), service.roles.end());
  }
  ASSIGN_OR_RETURN(auto credentials,
                   MakeServerCredentials(options.credentials, address, roles));
  RETURN_IF_ERROR(CheckExposure(address, options.credentials));
  RETURN_IF_ERROR(ClearStaleSocket(address));

  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<RpcServer> result(new RpcServer(address, options.on_drain));
  grpc::ServerBuilder builder;
  SetArguments(options.max_message_bytes, &builder);
  int port = 0;
  builder.AddListeningPort(address, credentials, &port);
  builder.RegisterService(&result->health_);
  for (const auto& service : options.services) {
    builder.RegisterService(service.service);
  }
  result->server_ = builder.BuildAndStart();
  if (result->server_ == nullptr) return BindError(address);

  if (!IsUnixAddress(address)) {
    result->address_ =
        absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
  }
  result->health_.SetServing("", true);
  for (const auto& service : options.services) {
    result->health_.SetServing(service.name, true);
  }
  return result;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::Shutdown(absl::Duration grace) {
  health_.Shutdown();
  if (server_ == nullptr) return;
  if (!drained_.exchange(true) && on_drain_) on_drain_();
  server_->Shutdown(std::chrono::system_clock::now() +
                    absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

}  // namespace flotilla
