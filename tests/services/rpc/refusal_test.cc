#include "services/rpc/refusal.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/steady_now.h"
#include "services/rpc/server.h"
#include "tests/services/rpc/certificates.h"
#include "tests/services/rpc/health_client.h"
#include "tests/testing/in_process_server.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RefusalTest : public ::testing::Test {
 protected:
  // What a user of `client` is told of a real call to `server`.
  static absl::Status Ask(const InProcessServer& server,
                          const RpcCredentials& client) {
    return ExplainRefusal(CheckHealth(server.address(), client).status(),
                          "the server", server.address(), client);
  }

  static auto Says(const InProcessServer& server, const std::string& words) {
    return StatusIs(StatusCode::kUnauthenticated,
                    AllOf(HasSubstr(server.address()), HasSubstr(words)));
  }

  Certificates certificates_;
};

TEST_F(RefusalTest, PlaintextAtAServerOfTlsIsToldTheFlags) {
  InProcessServer server({}, nullptr, "127.0.0.1:0",
                         certificates_.Member("server"));
  EXPECT_THAT(Ask(server, {}),
              Says(server,
                   "it speaks TLS: give --tls-cert, --tls-key and "
                   "--tls-ca"));
}

TEST_F(RefusalTest, TlsAtAServerOfPlaintextIsToldToLeaveThem) {
  InProcessServer server({});
  EXPECT_THAT(Ask(server, certificates_.Member("client")),
              Says(server, "it speaks plaintext: leave --tls-cert"));
}

TEST_F(RefusalTest, ServerOfAnotherAuthorityIsNamed) {
  InProcessServer server({}, nullptr, "127.0.0.1:0",
                         certificates_.Member("server"));
  EXPECT_THAT(Ask(server, certificates_.Member("client", "ca", 1, "other")),
              Says(server, "--tls-ca has to be the authority that signed it"));
}

TEST_F(RefusalTest, CertificateThatTheServerDoesNotTakeIsNamed) {
  InProcessServer server({}, nullptr, "127.0.0.1:0",
                         certificates_.Member("server"));
  EXPECT_THAT(Ask(server, certificates_.Member("client", "other", 1, "ca")),
              Says(server, "it does not take our certificate"));
  EXPECT_THAT(Ask(server, certificates_.Member("late", "ca", -1)),
              Says(server, "has expired: renew it"));
}

TEST_F(RefusalTest, ServersOwnExpiredCertificateIsNamed) {
  InProcessServer server({}, nullptr, "127.0.0.1:0",
                         certificates_.Member("server", "ca", -1));
  EXPECT_THAT(Ask(server, certificates_.Member("client")),
              Says(server,
                   "certificate does not hold (certificate has "
                   "expired)"));
}

TEST_F(RefusalTest, ServerUnderAnotherNameSaysItsOwn) {
  InProcessServer server({}, nullptr, "127.0.0.2:0",
                         certificates_.Member("server"));
  EXPECT_THAT(Ask(server, certificates_.Member("client")),
              Says(server, "is for 127.0.0.1, localhost, not for 127.0.0.2"));
}

TEST_F(RefusalTest, WrongTokenIsToldTheFlag) {
  RpcCredentials credentials;
  credentials.token_file = certificates_.folder() / "token";
  WriteFile(credentials.token_file, "right");
  InProcessServer server({}, nullptr, "127.0.0.1:0", credentials);
  EXPECT_THAT(Ask(server, {}), Says(server, "--token-file"));
  credentials.token_file = certificates_.folder() / "other";
  WriteFile(credentials.token_file, "wrong");
  EXPECT_THAT(Ask(server, credentials),
              Says(server, "another token than the one that came"));
}

TEST_F(RefusalTest, WhoAgreesIsToldNothing) {
  const RpcCredentials member = certificates_.Member("member");
  InProcessServer tls({}, nullptr, "127.0.0.1:0", member);
  EXPECT_EQ(WhyRefused(tls.address(), member), "");
  InProcessServer plaintext({});
  EXPECT_EQ(WhyRefused(plaintext.address(), {}), "");
  EXPECT_OK(Ask(tls, member));
  EXPECT_OK(Ask(plaintext, {}));
}

TEST_F(RefusalTest, NobodyAndSilenceStayWhatTheyAre) {
  EXPECT_EQ(WhyRefused("127.0.0.1:1", {}), "");
  EXPECT_EQ(WhyRefused("unix:/no/such", {}), "");
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(fd, 5), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  const std::string address = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  const absl::Time start = SteadyNow();
  for (const RpcCredentials& credentials :
       {RpcCredentials(), certificates_.Member("client")}) {
    EXPECT_THAT(ExplainRefusal(absl::UnavailableError("lost"), "the server",
                               address, credentials),
                StatusIs(StatusCode::kUnavailable, "lost"));
  }
  EXPECT_LT(SteadyNow() - start, absl::Seconds(20));
  close(fd);
}

}  // namespace
}  // namespace flotilla
