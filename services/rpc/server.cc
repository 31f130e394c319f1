#include "services/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/descriptors.h"
#include "services/base/status_macros.h"
#include "services/rpc/grpc_log.h"
#include "services/rpc/listener.h"

namespace flotilla {
namespace {

// Calls at a time on one connection. A process has a handful.
constexpr int kMaxStreams = 1000;

// Calls at a time that have a thread each while they last: reflection's, which may
// take no token and may say nothing for as long as they like, and an env server's
// GetSpec and Replay, a handful. Those beyond get RESOURCE_EXHAUSTED.
constexpr int kMaxSyncCalls = 64;

absl::Status CheckExposure(const std::string& address,
                           const RpcCredentials& credentials) {
  if (IsLocalAddress(address) || credentials.uses_tls() ||
      (credentials.uses_token() && !credentials.open_reading) ||
      credentials.insecure) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "refusing to listen on ", address,
      ", which other hosts can reach, without TLS or a token: give --tls-cert, "
      "--tls-key and --tls-ca, or --token-file, or --insecure to allow anybody "
      "on the network, or listen on 127.0.0.1"));
}

void SetArguments(int max_message_bytes, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(max_message_bytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  // A few bytes could stand for gigabytes. We send nothing compressed either.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  // Clients ping every 20 s; without these a server calls that abuse.
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  // Whoever begins to speak gets so long for a handshake, and then may stay
  // without a call for so long: connections cost descriptors.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 60'000);
  // Callbacks have threads of their own. One more is for who waits for calls.
  builder->SetResourceQuota(
      grpc::ResourceQuota("flotilla").SetMaxThreads(kMaxSyncCalls + 1));
  using Option = grpc::ServerBuilder::SyncServerOption;
  builder->SetSyncServerOption(Option::NUM_CQS, 1);
  builder->SetSyncServerOption(Option::MIN_POLLERS, 1);
  builder->SetSyncServerOption(Option::MAX_POLLERS, 2);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options) {
  PrepareGrpc();
  MethodRoles roles;
  for (const auto& service : options.services) {
    roles.insert(service.roles.begin(), service.roles.end());
  }
  ASSIGN_OR_RETURN(
      auto credentials,
      MakeServerCredentials(options.credentials, options.address, roles));
  ASSIGN_OR_RETURN(Listener listener, Listener::Bind(options.address));
  RETURN_IF_ERROR(CheckExposure(listener.address(), options.credentials));

  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<RpcServer> result(
      new RpcServer(listener.address(), options.on_drain));
  grpc::ServerBuilder builder;
  SetArguments(options.max_message_bytes, &builder);
  using Builder = grpc::ServerBuilder::experimental_type;
  result->connections_ = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(&result->health_);
  for (const auto& service : options.services) {
    builder.RegisterService(service.service);
  }
  result->server_ = builder.BuildAndStart();
  if (result->server_ == nullptr) {
    return absl::InternalError(
        absl::StrCat("gRPC cannot serve ", listener.address()));
  }
  result->health_.SetServing("", true);
  for (const auto& service : options.services) {
    result->health_.SetServing(service.name, true);
  }
  ASSIGN_OR_RETURN(
      result->acceptor_,
      Acceptor::Start(std::move(listener),
                      AcceptorLimits::Of(DescriptorLimit()),
                      [connections = result->connections_.get()](int fd, int) {
                        grpc::experimental::ExternalConnectionAcceptor::
                            NewConnectionParameters connection;
                        connection.fd = fd;
                        connections->HandleNewConnection(&connection);
                      }));
  return result;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::Shutdown(absl::Duration grace) {
  health_.Shutdown();
  if (server_ == nullptr) return;
  if (!drained_.exchange(true)) {
    if (on_drain_) on_drain_();
    acceptor_.reset();
  }
  server_->Shutdown(std::chrono::system_clock::now() +
                    absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

}  // namespace flotilla
