#include "services/rpc/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "flotilla/v1/coordinator.grpc.pb.h"
#include "services/rpc/grpc_status.h"
#include "tests/services/rpc/health_client.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/ports.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::grpc::health::v1::Health;
using ::grpc::health::v1::HealthCheckRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RpcServerOptions On(const std::string& address) {
  RpcServerOptions options;
  options.address = address;
  return options;
}

std::chrono::system_clock::time_point In(int seconds) {
  return std::chrono::system_clock::now() + std::chrono::seconds(seconds);
}

// A plain TCP connection that has said nothing yet.
int ConnectTo(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &name.sin_addr);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(colon + 1), &port));
  name.sin_port = htons(port);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

TEST(RpcServerTest, ReportsThePortItGot) {
  ASSERT_OK_AND_ASSIGN(auto server, RpcServer::Start(On("127.0.0.1:0")));
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  EXPECT_NE(server->address(), "127.0.0.1:0");
  EXPECT_OK(CheckHealth(server->address(), RpcCredentials()));
}

TEST(RpcServerTest, KeepsTheNameItWasGivenAndListensAtAllItMeans) {
  ASSERT_OK_AND_ASSIGN(auto server, RpcServer::Start(On("localhost:0")));
  EXPECT_THAT(server->address(), StartsWith("localhost:"));
  EXPECT_OK(CheckHealth(server->address(), RpcCredentials()));
  const std::string port = server->address().substr(strlen("localhost"));
  EXPECT_OK(CheckHealth("127.0.0.1" + port, RpcCredentials()));
  // Nobody else gets what clients may take for this server.
  addrinfo* found = nullptr;
  ASSERT_EQ(getaddrinfo("localhost", nullptr, nullptr, &found), 0);
  for (const addrinfo* i = found; i != nullptr; i = i->ai_next) {
    if (i->ai_family != AF_INET6) continue;
    EXPECT_FALSE(RpcServer::Start(On("[::1]" + port)).ok());
  }
  freeaddrinfo(found);
}

TEST(RpcServerTest, CompressedMessagesAreRefused) {
  InProcessServer server({});
  grpc::ClientContext context;
  context.set_deadline(In(20));
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  HealthCheckRequest request;
  request.set_service(std::string(1 << 20, 'x'));
  HealthResponse response;
  // Not our own channel, which would not compress.
  const auto stub = Health::NewStub(grpc::CreateChannel(
      server.address(), grpc::InsecureChannelCredentials()));
  const grpc::Status status = stub->Check(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED)
      << status.error_message();
  EXPECT_OK(CheckHealth(server.Channel()));
}

TEST(RpcServerTest, BusyPortIsOneClearError) {
  ASSERT_OK_AND_ASSIGN(auto server, RpcServer::Start(On("127.0.0.1:0")));
  EXPECT_THAT(RpcServer::Start(On(server->address())),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr(server->address()),
                             HasSubstr("something listens there already"),
                             HasSubstr("port 0"))));
  EXPECT_OK(CheckHealth(server->address(), RpcCredentials()));
}

TEST(RpcServerTest, PortIsFreeAgainAfterShutdown) {
  const std::string address = AddressToListenAt();
  ASSERT_OK_AND_ASSIGN(auto server, RpcServer::Start(On(address)));
  ASSERT_OK(CheckHealth(address, RpcCredentials()));
  server.reset();
  EXPECT_OK(RpcServer::Start(On(address)));
}

TEST(RpcServerTest, AddressesThatCannotBeBoundSayWhy) {
  EXPECT_THAT(
      RpcServer::Start(On("nonsense")),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("want HOST:PORT")));
  RpcServerOptions elsewhere = On("192.0.2.1:0");  // reserved: never ours
  elsewhere.credentials.insecure = true;
  EXPECT_THAT(
      RpcServer::Start(elsewhere),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("no such address")));
  EXPECT_THAT(RpcServer::Start(On("unix:/nonexistent/folder/socket")),
              StatusIs(StatusCode::kNotFound, HasSubstr("/nonexistent")));
  EXPECT_THAT(RpcServer::Start(On("unix:/tmp/" + std::string(200, 'x'))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bytes")));
}

TEST(RpcServerTest, OpenPlaintextAddressIsRefused) {
  for (const char* open : {"0.0.0.0:0", "[::]:0", ":0"}) {
    EXPECT_THAT(RpcServer::Start(On(open)),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--insecure"), HasSubstr("--tls-cert"),
                               HasSubstr("--token-file"))))
        << open;
  }
}

TEST(RpcServerTest, OpenAddressIsServedWhenAskedForOrProtected) {
  RpcServerOptions insecure = On("0.0.0.0:0");
  insecure.credentials.insecure = true;
  EXPECT_OK(RpcServer::Start(insecure));

  TempDir folder;
  WriteFile(folder / "token", "secret");
  RpcServerOptions token = On(":0");
  token.credentials.token_file = folder / "token";
  ASSERT_OK_AND_ASSIGN(auto server, RpcServer::Start(token));
  EXPECT_THAT(server->address(), StartsWith("0.0.0.0:"));
}

TEST(RpcServerTest, ServesUnixSocketsAndReplacesStaleOnes) {
  TempDir folder;
  const std::string address = "unix:" + (folder / "socket");
  // As a killed process leaves it: bound, with nobody listening.
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, (folder / "socket").c_str());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  close(fd);

  ASSERT_OK_AND_ASSIGN(auto server, RpcServer::Start(On(address)));
  EXPECT_EQ(server->address(), address);
  EXPECT_OK(CheckHealth(address, RpcCredentials()));
  EXPECT_THAT(RpcServer::Start(On(address)),
              StatusIs(StatusCode::kUnavailable, HasSubstr("already")));
  EXPECT_OK(CheckHealth(address, RpcCredentials()));
}

TEST(RpcServerTest, NeverReplacesAFileThatIsNoSocket) {
  TempDir folder;
  WriteFile(folder / "notes", "precious");
  EXPECT_THAT(RpcServer::Start(On("unix:" + (folder / "notes"))),
              StatusIs(StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadFile(folder / "notes"), "precious");
}

TEST(RpcServerTest, HealthKnowsItsServicesByName) {
  InProcessServer server({});
  auto channel = server.Channel();
  ASSERT_OK_AND_ASSIGN(auto status, CheckHealth(channel));
  EXPECT_EQ(status, HealthResponse::SERVING);
  EXPECT_THAT(CheckHealth(channel, "no.such.Service"),
              StatusIs(StatusCode::kNotFound, HasSubstr("no.such.Service")));
}

TEST(RpcServerTest, WatchTellsOfShutdownAndEnds) {
  InProcessServer server({});
  auto stub = Health::NewStub(server.Channel());
  grpc::ClientContext context;
  context.set_deadline(In(10));
  auto reader = stub->Watch(&context, HealthCheckRequest());
  HealthResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthResponse::SERVING);

  std::thread shutdown([&] { server.server()->Shutdown(absl::Seconds(10)); });
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthResponse::NOT_SERVING);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  shutdown.join();
}

TEST(RpcServerTest, WatchOfAnUnknownServiceSaysSo) {
  InProcessServer server({});
  auto stub = Health::NewStub(server.Channel());
  grpc::ClientContext context;
  context.set_deadline(In(10));
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  auto reader = stub->Watch(&context, request);
  HealthResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Asking may take no token.
TEST(RpcServerTest, WatchersAndTheNamesThatAreAskedForAreBounded) {
  struct Watch {
    Watch(Health::Stub* stub, const std::string& service) {
      HealthCheckRequest request;
      request.set_service(service);
      context.set_deadline(In(60));
      reader = stub->Watch(&context, request);
    }
    ~Watch() { context.TryCancel(); }
    bool IsTold() {
      HealthResponse response;
      return reader->Read(&response);
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<HealthResponse>> reader;
  };
  InProcessServer server({});
  auto stub = Health::NewStub(server.Channel());
  const std::string name(100'000, 'x');
  Watch unfit(stub.get(), name);
  EXPECT_FALSE(unfit.IsTold());
  EXPECT_THAT(
      FromGrpc(unfit.reader->Finish()),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("100000 bytes")));
  EXPECT_THAT(
      CheckHealth(server.Channel(), name),
      StatusIs(StatusCode::kNotFound, HasSubstr("100000 bytes in all")));

  std::vector<std::unique_ptr<Watch>> watches;
  while (watches.size() < HealthService::kMaxWatchers) {
    watches.push_back(std::make_unique<Watch>(stub.get(), ""));
    ASSERT_TRUE(watches.back()->IsTold()) << watches.size();
  }
  Watch refused(stub.get(), "");
  EXPECT_FALSE(refused.IsTold());
  EXPECT_THAT(FromGrpc(refused.reader->Finish()),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("250 watch")));
  EXPECT_OK(CheckHealth(server.Channel()));
  watches.back()->context.TryCancel();       // its place is free
  while (!Watch(stub.get(), "").IsTold()) {  // once the server has heard of it
  }
}

TEST(RpcServerTest, ShutdownDrainsFirstAndOnce) {
  int drained = 0;
  InProcessServer server({}, [&] { ++drained; });
  EXPECT_EQ(drained, 0);
  server.server()->Shutdown(absl::Seconds(1));
  server.server()->Shutdown(absl::Seconds(1));
  EXPECT_EQ(drained, 1);
}

// Holds its call until the call is cancelled.
class StuckService final : public v1::CoordinatorService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext*,
                                      const v1::GetStatusRequest*,
                                      v1::Status*) override {
    class Stuck final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    called.count_down();
    return new Stuck;
  }

  std::latch called{1};
};

TEST(RpcServerTest, ShutdownCancelsWhatOutlivesTheGrace) {
  StuckService stuck;
  InProcessServer server(
      {{v1::CoordinatorService::service_full_name(), &stuck}});
  EXPECT_OK(CheckHealth(server.Channel(), "flotilla.v1.CoordinatorService"));
  std::thread client([&] {
    auto stub = v1::CoordinatorService::NewStub(server.Channel());
    grpc::ClientContext context;
    context.set_deadline(In(30));
    v1::Status response;
    const grpc::Status status = stub->GetStatus(&context, {}, &response);
    EXPECT_NE(status.error_code(), grpc::StatusCode::OK);
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  });
  stuck.called.wait();
  server.server()->Shutdown(absl::Milliseconds(10));
  client.join();
}

// A call to the reflection service that has no thread on this side.
class ReflectionCall {
 public:
  explicit ReflectionCall(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(channel) {
    context_.set_deadline(In(60));
    call_ = stub_.PrepareCall(
        &context_,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        &queue_);
    call_->StartCall(nullptr);
    Await();
  }
  ~ReflectionCall() {
    if (!ended_) {
      context_.TryCancel();
      Finish().IgnoreError();
    }
    queue_.Shutdown();
  }

  // The names of all services, and what is between them; "" if the call is over.
  std::string ListServices() {
    // ServerReflectionRequest{list_services: ""}
    const grpc::Slice request(std::string("\x3a\x00", 2));
    call_->Write(grpc::ByteBuffer(&request, 1), nullptr);
    if (!Await()) return "";
    grpc::ByteBuffer response;
    call_->Read(&response, nullptr);
    if (!Await()) return "";
    grpc::Slice slice;
    EXPECT_TRUE(response.DumpToSingleSlice(&slice).ok());
    return std::string(reinterpret_cast<const char*>(slice.begin()),
                       slice.size());
  }

  // Asks nothing more; returns how the call ended.
  absl::Status End() {
    call_->WritesDone(nullptr);
    Await();
    return Finish();
  }

 private:
  bool Await() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  absl::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Await();
    ended_ = true;
    return FromGrpc(status);
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool ended_ = false;
};

TEST(RpcServerTest, ReflectionListsEveryService) {
  InProcessServer server({});
  ReflectionCall call(server.Channel());
  EXPECT_THAT(call.ListServices(), HasSubstr("grpc.health.v1.Health"));
  EXPECT_OK(call.End());
}

// Each has a thread of the server's, and asking may take no token.
TEST(RpcServerTest, SilentReflectionCallsAreBounded) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  InProcessServer server({});
  const auto channel = server.Channel();
  EXPECT_FALSE(ReflectionCall(channel).ListServices().empty());
  const auto before = threads();
  std::vector<std::unique_ptr<ReflectionCall>> calls;
  int refused = 0;
  for (int i = 0; i < 250; ++i) {
    auto call = std::make_unique<ReflectionCall>(channel);
    if (call->ListServices().empty()) {  // if not, it has its thread by now
      ++refused;
      EXPECT_THAT(call->End(), StatusIs(StatusCode::kResourceExhausted));
    }
    calls.push_back(std::move(call));
  }
  EXPECT_GT(refused, 150);
  EXPECT_LT(threads(), before + 150);
  EXPECT_OK(CheckHealth(server.Channel()));

  calls.clear();  // their places are free, once the server has heard of it
  while (ReflectionCall(channel).ListServices().empty()) {
  }
}

TEST(RpcServerTest, ConnectionThatNeverSpeaksIsClosedAndHarmsNobody) {
  InProcessServer server({});
  std::vector<int> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(ConnectTo(server.address()));
  EXPECT_OK(CheckHealth(server.Channel()));

  const timeval timeout = {20, 0};
  setsockopt(silent[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  char buffer[256];
  ssize_t n;
  while ((n = recv(silent[0], buffer, sizeof(buffer), 0)) > 0) {
  }
  EXPECT_EQ(n, 0) << "still open after 20 s";
  for (int fd : silent) close(fd);
}

TEST(RpcServerTest, GarbageOnTheWireHarmsNobody) {
  InProcessServer server({});
  const int fd = ConnectTo(server.address());
  const std::string garbage(4096, '\xfe');
  EXPECT_GT(send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  EXPECT_OK(CheckHealth(server.Channel()));
  close(fd);
}

}  // namespace
}  // namespace flotilla
