#include "services/rpc/credentials.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/steady_now.h"
#include "services/rpc/server.h"
#include "tests/services/rpc/certificates.h"
#include "tests/services/rpc/health_client.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RpcCredentials TokenFrom(const std::string& path) {
  RpcCredentials credentials;
  credentials.token_file = path;
  return credentials;
}

TEST(CredentialsTest, LocalAddressesAreThoseOnlyThisHostReaches) {
  for (const char* local : {"127.0.0.1:1", "127.8.9.1:1", "localhost:29400",
                            "[::1]:1", "unix:/tmp/x", "unix-abstract:x"}) {
    EXPECT_TRUE(IsLocalAddress(local)) << local;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "node0:1", ":1",
                           "127.evil.example.com:1", "127.0.0.1.com:1"}) {
    EXPECT_FALSE(IsLocalAddress(open)) << open;
  }
}

TEST(CredentialsTest, OnlyAPathHasAFolder) {
  EXPECT_TRUE(HasFolder("unix:/tmp/x"));
  for (const char* open : {"unix-abstract:x", "127.0.0.1:1", "unix"}) {
    EXPECT_FALSE(HasFolder(open)) << open;
  }
}

TEST(CredentialsTest, APageOfMetricsShowsWhatMayBeSeenAnyway) {
  TempDir folder;
  RpcCredentials closed = TokenFrom(folder / "token");
  RpcCredentials open = closed, insecure = closed;
  open.open_reading = insecure.insecure = true;
  for (const char* local : {"127.0.0.1:0", "unix-abstract:x"}) {
    EXPECT_THAT(CheckMetricsReaders(local, "", closed),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("everybody on this host")))
        << local;
    EXPECT_OK(CheckMetricsReaders(local, "", open)) << local;
    EXPECT_OK(CheckMetricsReaders(local, "", insecure)) << local;
  }
  EXPECT_OK(CheckMetricsReaders("unix:/tmp/x", "", closed));
  EXPECT_THAT(CheckMetricsReaders("0.0.0.0:0", "", open),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("other hosts")));
  const std::string scrapers = folder / "scrapers";
  EXPECT_THAT(CheckMetricsReaders("0.0.0.0:0", scrapers, closed),
              StatusIs(StatusCode::kNotFound, HasSubstr(scrapers)));
  WriteFile(scrapers, "secret");
  EXPECT_OK(CheckMetricsReaders("0.0.0.0:0", scrapers, closed));
}

TEST(CredentialsTest, TlsNeedsAllThreeFiles) {
  RpcCredentials credentials;
  credentials.tls_cert = "cert.pem";
  EXPECT_THAT(CheckCredentials(credentials),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("missing: --tls-key --tls-ca")));
  credentials.tls_key = "key.pem";
  credentials.tls_ca = "ca.pem";
  EXPECT_OK(CheckCredentials(credentials));
  EXPECT_OK(CheckCredentials({}));
}

TEST(CredentialsTest, FilesThatCannotBeUsedAreNamed) {
  TempDir folder;
  RpcCredentials credentials;
  credentials.tls_cert = folder / "missing.pem";
  credentials.tls_key = credentials.tls_ca = credentials.tls_cert;
  EXPECT_THAT(MakeChannel("127.0.0.1:1", credentials),
              StatusIs(StatusCode::kNotFound, HasSubstr("missing.pem")));
  WriteFile(credentials.tls_cert, "not a certificate");
  EXPECT_THAT(MakeChannel("127.0.0.1:1", credentials),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("PEM")));
}

TEST(CredentialsTest, TokenIsReadWithoutTheWhiteSpaceAroundIt) {
  TempDir folder;
  WriteFile(folder / "token", "  secret-1\n");
  ASSERT_OK_AND_ASSIGN(std::string token,
                       ReadToken(TokenFrom(folder / "token")));
  EXPECT_EQ(token, "secret-1");
  ASSERT_OK_AND_ASSIGN(token, ReadToken({}));
  EXPECT_EQ(token, "");
}

TEST(CredentialsTest, UnusableTokenFilesAreRefusedByName) {
  TempDir folder;
  EXPECT_THAT(ReadToken(TokenFrom(folder / "none")),
              StatusIs(StatusCode::kNotFound, HasSubstr("none")));
  for (const char* nothing : {"", " \n"}) {
    WriteFile(folder / "empty", nothing);
    EXPECT_THAT(ReadToken(TokenFrom(folder / "empty")),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty")));
  }
  WriteFile(folder / "two", "one\ntwo\n");
  EXPECT_THAT(ReadToken(TokenFrom(folder / "two")),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("two")));
  EXPECT_THAT(ReadToken(TokenFrom(folder.path())), Not(IsOk()));
}

class TokenTest : public ::testing::TestWithParam<const char*> {
 protected:
  TempDir folder_;
};

TEST_P(TokenTest, OnlyTheRunsTokenGetsIn) {
  WriteFile(folder_ / "token", "right\n");
  WriteFile(folder_ / "other", "wrong\n");
  std::string address = GetParam();
  if (address == "unix:") address = "unix:" + (folder_ / "socket");
  InProcessServer server({}, nullptr, address, TokenFrom(folder_ / "token"));

  EXPECT_OK(CheckHealth(server.address(), TokenFrom(folder_ / "token")));
  EXPECT_THAT(CheckHealth(server.address(), TokenFrom(folder_ / "other")),
              StatusIs(StatusCode::kUnauthenticated, HasSubstr("token")));
  EXPECT_THAT(CheckHealth(server.address(), RpcCredentials()),
              StatusIs(StatusCode::kUnauthenticated, HasSubstr("token")));
}

INSTANTIATE_TEST_SUITE_P(Addresses, TokenTest,
                         ::testing::Values("127.0.0.1:0", "unix:"));

TEST(TokenTest, WhereReadingIsOpenOnlyWhatChangesSomethingTakesIt) {
  TempDir folder;
  RpcCredentials credentials = TokenFrom(folder / "token");
  credentials.open_reading = true;
  WriteFile(credentials.token_file, "right");
  WriteFile(folder / "other", "wrong");
  const std::string check = "/grpc.health.v1.Health/Check";
  const std::pair<MethodRoles, bool> cases[] = {
      {{}, true},
      {{{check, {{kClientRole}, /*only_reads=*/true}}}, true},
      {{{check, {{kClientRole}}}}, false}};
  for (const auto& [methods, open] : cases) {
    ASSERT_OK_AND_ASSIGN(
        const auto made,
        MakeServerCredentials(credentials, "127.0.0.1:0", methods));
    HealthService service;
    service.SetServing("", true);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", made, &port);
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    const std::string address = absl::StrCat("127.0.0.1:", port);
    EXPECT_OK(CheckHealth(address, credentials));
    for (const RpcCredentials& stranger :
         {RpcCredentials(), TokenFrom(folder / "other")}) {
      const absl::Status status = CheckHealth(address, stranger).status();
      if (open) {
        EXPECT_OK(status);
      } else {
        EXPECT_THAT(status, StatusIs(StatusCode::kUnauthenticated,
                                     HasSubstr("RUN/token")));
      }
    }
  }
}

TEST(TokenTest, IsForLoopbackWhereReadingIsOpen) {
  TempDir folder;
  RpcServerOptions options;
  options.address = "0.0.0.0:0";
  options.credentials = TokenFrom(folder / "token");
  options.credentials.open_reading = true;
  WriteFile(folder / "token", "right");
  EXPECT_THAT(RpcServer::Start(options), StatusIs(StatusCode::kInvalidArgument,
                                                  HasSubstr("--token-file")));
}

TEST(TokenTest, IsNotNeededByAServerWithoutOne) {
  TempDir folder;
  WriteFile(folder / "token", "any\n");
  InProcessServer server({});
  EXPECT_OK(CheckHealth(server.address(), TokenFrom(folder / "token")));
}

TEST(TlsTest, MembersOfOneAuthorityTalk) {
  Certificates certificates;
  InProcessServer server({}, nullptr, "127.0.0.1:0",
                         certificates.Member("server"));
  EXPECT_OK(CheckHealth(server.address(), certificates.Member("client")));
}

TEST(TlsTest, TokenIsDemandedOnTopOfACertificate) {
  Certificates certificates;
  WriteFile(certificates.folder() / "token", "right");
  RpcCredentials with_token = certificates.Member("server");
  with_token.token_file = certificates.folder() / "token";
  InProcessServer server({}, nullptr, "127.0.0.1:0", with_token);
  EXPECT_OK(CheckHealth(server.address(), with_token));
  EXPECT_THAT(CheckHealth(server.address(), certificates.Member("client")),
              StatusIs(StatusCode::kUnauthenticated));
}

TEST(TlsTest, ClientWithoutACertificateIsRefused) {
  Certificates certificates;
  const RpcCredentials member = certificates.Member("server");
  InProcessServer server({}, nullptr, "127.0.0.1:0", member);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ReadFile(member.tls_ca);
  EXPECT_THAT(CheckHealth(grpc::CreateChannel(server.address(),
                                              grpc::SslCredentials(options))),
              StatusIs(StatusCode::kUnavailable));
}

TEST(TlsTest, ClientOfAnotherAuthorityIsRefused) {
  Certificates certificates;
  InProcessServer server({}, nullptr, "127.0.0.1:0",
                         certificates.Member("server"));
  // Believes the server, but is not believed.
  EXPECT_THAT(CheckHealth(server.address(),
                          certificates.Member("client", "other", 1, "ca")),
              StatusIs(StatusCode::kUnavailable));
}

TEST(TlsTest, ServerOfAnotherAuthorityIsRefused) {
  Certificates certificates;
  InProcessServer server({}, nullptr, "127.0.0.1:0",
                         certificates.Member("server"));
  // Is believed, but does not believe the server.
  EXPECT_THAT(CheckHealth(server.address(),
                          certificates.Member("client", "ca", 1, "other")),
              StatusIs(StatusCode::kUnavailable));
}

TEST(TlsTest, ExpiredCertificatesAreRefusedOnEitherSide) {
  Certificates certificates;
  const RpcCredentials expired = certificates.Member("expired", "ca", -1);
  const RpcCredentials good = certificates.Member("good");
  InProcessServer server({}, nullptr, "127.0.0.1:0", good);
  EXPECT_THAT(CheckHealth(server.address(), expired),
              StatusIs(StatusCode::kUnavailable));
  InProcessServer late({}, nullptr, "127.0.0.1:0", expired);
  EXPECT_THAT(CheckHealth(late.address(), good),
              StatusIs(StatusCode::kUnavailable));
}

TEST(TlsTest, PlaintextAndTlsDoNotMeet) {
  Certificates certificates;
  const RpcCredentials member = certificates.Member("member");
  InProcessServer tls({}, nullptr, "127.0.0.1:0", member);
  EXPECT_THAT(CheckHealth(tls.address(), RpcCredentials()),
              StatusIs(StatusCode::kUnavailable));
  InProcessServer plaintext({});
  EXPECT_THAT(CheckHealth(plaintext.address(), member),
              StatusIs(StatusCode::kUnavailable));
  EXPECT_OK(CheckHealth(tls.address(), member));  // and it lives
}

TEST(TlsTest, KeyOfAnotherCertificateIsRefusedAtTheStart) {
  Certificates certificates;
  RpcServerOptions options;
  options.address = "127.0.0.1:0";
  options.credentials = certificates.Member("one");
  options.credentials.tls_key = certificates.Member("two").tls_key;
  EXPECT_THAT(RpcServer::Start(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("two.key")));
}

TEST(TlsTest, ReplacedFilesServeTheNextConnections) {
  Certificates certificates;
  RpcCredentials server_files = certificates.Member("server");
  server_files.reload = absl::Seconds(1);
  InProcessServer server({}, nullptr, "127.0.0.1:0", server_files);
  const RpcCredentials other = certificates.Member("client", "other");
  EXPECT_THAT(CheckHealth(server.address(), other),
              StatusIs(StatusCode::kUnavailable));
  const RpcCredentials renewed = certificates.Member("renewed", "other");
  for (const auto& [from, to] :
       {std::pair(renewed.tls_key, server_files.tls_key),
        std::pair(renewed.tls_cert, server_files.tls_cert),
        std::pair(renewed.tls_ca, server_files.tls_ca)}) {
    WriteFile(to, ReadFile(from));
  }
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  while (!CheckHealth(server.address(), other).ok()) {
    ASSERT_LT(SteadyNow(), deadline);
  }
}

TEST(TlsTest, RolesSayWhoMayCallWhat) {
  Certificates certificates;
  ASSERT_OK_AND_ASSIGN(
      const auto credentials,
      MakeServerCredentials(
          certificates.Member("server"), "127.0.0.1:0",
          {{"/grpc.health.v1.Health/Check", {{kEnvServerRole, kClientRole}}}}));
  HealthService service;
  service.SetServing("", true);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto ask = [&](const std::vector<std::string>& roles) {
    return CheckHealth(absl::StrCat("127.0.0.1:", port),
                       certificates.Member("caller", roles));
  };
  EXPECT_OK(ask({kClientRole}));
  EXPECT_OK(ask({kLearnerRole, kEnvServerRole}));
  EXPECT_THAT(ask({kLearnerRole}),
              StatusIs(StatusCode::kPermissionDenied,
                       HasSubstr("envserver or client; yours has learner")));
  EXPECT_THAT(ask({}), StatusIs(StatusCode::kPermissionDenied,
                                HasSubstr("yours has none")));
}

TEST(TlsTest, SocketsWithoutAFolderAreRefused) {
  Certificates certificates;
  const RpcCredentials member = certificates.Member("member");
  const auto refused =
      StatusIs(StatusCode::kInvalidArgument,
               AllOf(HasSubstr("unix-abstract:x"), HasSubstr("unix:PATH")));
  EXPECT_THAT(MakeServerCredentials(member, "unix-abstract:x"), refused);
  EXPECT_THAT(MakeChannel("unix-abstract:x", member), refused);
}

TEST(TlsTest, UnixSocketsGoWithout) {
  Certificates certificates;
  const RpcCredentials member = certificates.Member("member");
  InProcessServer server({}, nullptr, "unix:" + (certificates.folder() / "s"),
                         member);
  EXPECT_OK(CheckHealth(server.address(), member));
}

}  // namespace
}  // namespace flotilla
