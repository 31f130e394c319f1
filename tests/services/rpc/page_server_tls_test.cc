#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/rpc/page_server.h"
#include "tests/services/rpc/certificates.h"
#include "tests/services/rpc/page_client.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

using Roles = std::vector<std::string>;

struct FreeOpenSsl {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

// A client of its own with OpenSSL, as curl and Python's are. It verifies the
// server by `trusted`; with `member` it shows a certificate.
class TlsClient {
 public:
  TlsClient(const PageServer& server, const std::string& trusted,
            const RpcCredentials& member = {}, int newest = TLS1_3_VERSION)
      : fd_(Connect(server)), context_(SSL_CTX_new(TLS_client_method())) {
    const timeval patience = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), newest);
    SSL_CTX_set_cipher_list(context_.get(), "ALL:@SECLEVEL=0");
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    EXPECT_EQ(SSL_CTX_load_verify_file(context_.get(), trusted.c_str()), 1);
    if (member.uses_tls()) {
      EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_.get(),
                                                   member.tls_cert.c_str()),
                1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey_file(
                    context_.get(), member.tls_key.c_str(), SSL_FILETYPE_PEM),
                1);
    }
    ssl_.reset(SSL_new(context_.get()));
    SSL_set1_host(ssl_.get(), "localhost");
    SSL_set_fd(ssl_.get(), fd_.get());
    shaken_ = SSL_connect(ssl_.get()) == 1;
    if (!shaken_) error_ = Error();
  }

  // The server's certificate was believed; of its opinion of ours TLS 1.3 lets a
  // client know with the first answer only.
  bool shaken() const { return shaken_; }
  // Why the handshake failed, or what Hear() met.
  const std::string& error() const { return error_; }
  std::string protocol() const { return SSL_get_version(ssl_.get()); }

  void Say(const std::string& text) {
    EXPECT_EQ(SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())),
              static_cast<int>(text.size()));
  }

  // Nothing follows; what the server says is heard all the same.
  void HangUp() { EXPECT_EQ(SSL_shutdown(ssl_.get()), 0); }

  // Until the server says that nothing follows; an error() is all else.
  std::string Hear() {
    std::string all;
    std::vector<char> bytes(65536);
    int n = 0;
    while ((n = SSL_read(ssl_.get(), bytes.data(),
                         static_cast<int>(bytes.size()))) > 0) {
      all.append(bytes.data(), static_cast<size_t>(n));
    }
    if (SSL_get_error(ssl_.get(), n) != SSL_ERROR_ZERO_RETURN) error_ = Error();
    return all;
  }

  std::string Ask(const std::string& request) {
    if (!shaken_) return "";
    Say(request);
    return Hear();
  }

 private:
  static std::string Error() {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    const std::string text = reason == nullptr ? "hung up" : reason;
    ERR_clear_error();
    return text;
  }

  const OwnedFd fd_;
  const std::unique_ptr<SSL_CTX, FreeOpenSsl> context_;
  std::unique_ptr<SSL, FreeOpenSsl> ssl_;
  bool shaken_ = false;
  std::string error_;
};

class PageServerTlsTest : public testing::Test {
 protected:
  PageServerOptions Options(const std::string& token = "") {
    PageServerOptions options = PageOptions();
    options.tls = certificates_.Member("server", Roles{});
    options.token = token;
    options.roles = {kClientRole};
    return options;
  }

  std::string ca() { return certificates_.folder() / "ca.pem"; }

  // What a client says first, as a client of OpenSSL's says it.
  std::string Hello() {
    const std::unique_ptr<SSL_CTX, FreeOpenSsl> context(
        SSL_CTX_new(TLS_client_method()));
    const std::unique_ptr<SSL, FreeOpenSsl> ssl(SSL_new(context.get()));
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_connect(ssl.get());
    ERR_clear_error();
    char* data = nullptr;
    const long size = BIO_get_mem_data(SSL_get_wbio(ssl.get()), &data);
    return std::string(data, static_cast<size_t>(size));
  }

  Certificates certificates_;
};

std::string With(const std::string& token) {
  return absl::StrCat("GET /metrics HTTP/1.1\r\nHost: prometheus\r\n",
                      "Authorization: Bearer ", token, "\r\n\r\n");
}

TEST_F(PageServerTlsTest, WithATokenTheTokenIsAskedFor) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(Options("abc")));
  for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient good(*server, ca(), {}, newest);
    EXPECT_THAT(good.Ask(With("abc")), EndsWith("\r\n\r\nthe page\n"));
    EXPECT_EQ(good.error(), "");  // told that it was all
    EXPECT_EQ(good.protocol(),
              newest == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
  }
  EXPECT_THAT(TlsClient(*server, ca()).Ask(kGet), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(TlsClient(*server, ca()).Ask(With("abcd")),
              StartsWith("HTTP/1.1 401"));
  const RpcCredentials member =
      certificates_.Member("alice", Roles{kClientRole});
  EXPECT_THAT(TlsClient(*server, ca(), member).Ask(kGet),
              StartsWith("HTTP/1.1 401"));
}

TEST_F(PageServerTlsTest, WhoSaysNothingMoreIsAnsweredToo) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(Options("abc")));
  TlsClient client(*server, ca());
  client.Say(With("abc"));
  client.HangUp();
  EXPECT_THAT(client.Hear(), EndsWith("the page\n"));
  TlsClient silent(*server, ca());
  silent.HangUp();
  EXPECT_EQ(silent.Hear(), "");
}

TEST_F(PageServerTlsTest, WithoutATokenACertificateWithTheRoleIs) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(Options()));
  const RpcCredentials alice =
      certificates_.Member("alice", Roles{kClientRole});
  const RpcCredentials bob = certificates_.Member("bob", Roles{kEnvServerRole});
  const RpcCredentials mallory =
      certificates_.Member("mallory", Roles{kClientRole}, "other");
  const RpcCredentials late =
      certificates_.Member("late", Roles{kClientRole}, "ca", -1);
  for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    EXPECT_THAT(TlsClient(*server, ca(), alice, newest).Ask(kGet),
                EndsWith("the page\n"));
    const std::string refused = TlsClient(*server, ca(), bob, newest).Ask(kGet);
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 403 Forbidden"));
    EXPECT_THAT(refused,
                HasSubstr("/metrics takes a certificate with the role client; "
                          "yours has envserver"));
    TlsClient none(*server, ca(), {}, newest);
    EXPECT_EQ(none.Ask(kGet), "");
    EXPECT_THAT(none.error(),
                HasSubstr(newest == TLS1_2_VERSION ? "handshake failure"
                                                   : "certificate required"));
    TlsClient stranger(*server, ca(), mallory, newest);
    EXPECT_EQ(stranger.Ask(kGet), "");
    EXPECT_THAT(stranger.error(), HasSubstr("unknown ca"));
    TlsClient expired(*server, ca(), late, newest);
    EXPECT_EQ(expired.Ask(kGet), "");
    EXPECT_THAT(expired.error(), HasSubstr("certificate expired"));
  }
}

TEST_F(PageServerTlsTest, WhoBelievesAnotherAuthorityDoesNotAsk) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(Options("abc")));
  const RpcCredentials other =
      certificates_.Member("stranger", Roles{}, "other");
  TlsClient client(*server, other.tls_ca);
  EXPECT_FALSE(client.shaken());
  EXPECT_THAT(client.error(), HasSubstr("certificate verify failed"));
}

TEST_F(PageServerTlsTest, WhoSpeaksNoTlsIsToldSo) {
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(Options("abc")));
  const OwnedFd plain = Connect(*server);
  Say(plain, With("abc"));
  const std::string answer = Hear(plain);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(answer, EndsWith("400 Bad Request: this page is served over "
                               "https\n"));
  // Neither HTTP nor TLS; a hello that is cut into by nonsense.
  for (const std::string& nonsense :
       {std::string(64, '\0'),
        Hello().substr(0, 40) + std::string(4000, '\xff'),
        std::string("\x16\x03\x01\xff\xff") + std::string(4000, 'x')}) {
    const OwnedFd strange = Connect(*server);
    Say(strange, nonsense);
    EXPECT_LT(Hear(strange).size(), size_t{64});  // an alert at most
  }
  TlsClient old(*server, ca(), {}, TLS1_1_VERSION);
  EXPECT_FALSE(old.shaken());
  EXPECT_THAT(TlsClient(*server, ca()).Ask(With("abc")),
              EndsWith("the page\n"));
}

TEST_F(PageServerTlsTest, WhoIsSlowIsDropped) {
  PageServerOptions options = Options("abc");
  options.read_within = absl::Seconds(2);
  options.write_within = absl::Milliseconds(100);
  std::promise<void> asked;
  options.page = [&] {
    asked.set_value();
    // More than the kernel keeps for a reader who does not read.
    return std::string(64 << 20, 'x');
  };
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  // Half a hello; a hello and nothing more; half a request.
  const OwnedFd half = Connect(*server);
  Say(half, Hello().substr(0, 60));
  const OwnedFd silent = Connect(*server);
  Say(silent, Hello());
  TlsClient loris(*server, ca());
  loris.Say("GET /metrics HTTP/1.1\r\nHost: l");
  EXPECT_EQ(Hear(half), "");
  EXPECT_THAT(Hear(silent), StartsWith("\x16\x03\x03"));  // the server's half
  EXPECT_EQ(loris.Hear(), "");
  TlsClient slow(*server, ca());
  slow.Say(With("abc"));
  ASSERT_EQ(asked.get_future().wait_for(std::chrono::seconds(20)),
            std::future_status::ready);
  // Its answer is cut: who comes later, once it is being answered, is dropped
  // later.
  const OwnedFd later = Connect(*server);
  Say(later, Hello().substr(0, 60));
  EXPECT_EQ(Hear(later), "");
  EXPECT_LT(slow.Hear().size(), size_t{64} << 20);
  EXPECT_NE(slow.error(), "");  // not told that it was all
}

// A hundred connections that begin a handshake and say no more.
std::vector<OwnedFd> Flood(const PageServer& server, const std::string& hello) {
  const std::string begin = hello.substr(0, 60);
  std::vector<OwnedFd> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(Connect(server));
    send(flood.back().get(), begin.data(), begin.size(), MSG_NOSIGNAL);
  }
  return flood;
}

TEST_F(PageServerTlsTest, HandshakesThatNeverEndAreFew) {
  PageServerOptions options = Options("abc");
  options.max_connections = 8;
  options.read_within = absl::Minutes(1);
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  const std::vector<OwnedFd> flood = Flood(*server, Hello());
  std::vector<pollfd> there;
  for (const OwnedFd& fd : flood) {
    there.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
  }
  // The rest are turned away while the first still have their time.
  while (there.size() > 8) {
    ASSERT_GT(poll(there.data(), there.size(), 30000), 0) << there.size();
    std::erase_if(there, [](const pollfd& fd) { return fd.revents != 0; });
  }
  EXPECT_EQ(there.size(), 8);
}

TEST_F(PageServerTlsTest, HandshakesThatNeverEndLeaveRoomForTheNext) {
  PageServerOptions options = Options("abc");
  options.max_connections = 8;
  options.read_within = absl::Seconds(2);
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  const std::vector<OwnedFd> flood = Flood(*server, Hello());
  for (const OwnedFd& fd : flood) EXPECT_EQ(Hear(fd), "");
  EXPECT_THAT(TlsClient(*server, ca()).Ask(With("abc")),
              EndsWith("the page\n"));
}

TEST_F(PageServerTlsTest, ALargePageArrivesWholeAndARequestMayComeInPieces) {
  PageServerOptions options = Options("abc");
  std::string large;
  for (int i = 0; large.size() < (8 << 20); ++i)
    absl::StrAppend(&large, i, "\n");
  options.page = [large] { return large; };
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  TlsClient client(*server, ca());
  for (const char c : With("abc")) client.Say(std::string(1, c));
  const std::string answer = client.Hear();
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), large);
  EXPECT_THAT(TlsClient(*server, ca())
                  .Ask("GET / HTTP/1.1\r\nX: " + std::string(9000, 'x')),
              StartsWith("HTTP/1.1 431"));
}

TEST_F(PageServerTlsTest, FilesThatAreReplacedCountForTheNextConnection) {
  PageServerOptions options = Options("abc");
  options.tls.reload = absl::ZeroDuration();
  ASSERT_OK_AND_ASSIGN(const auto server, PageServer::Start(options));
  const RpcCredentials other =
      certificates_.Member("stranger", Roles{}, "other");
  EXPECT_FALSE(TlsClient(*server, other.tls_ca).shaken());
  WriteFile(options.tls.tls_cert, ReadFile(other.tls_cert));
  // Not its key: those of before go on.
  EXPECT_TRUE(TlsClient(*server, ca()).shaken());
  WriteFile(options.tls.tls_key, ReadFile(other.tls_key));
  EXPECT_THAT(TlsClient(*server, other.tls_ca).Ask(With("abc")),
              EndsWith("the page\n"));
  EXPECT_FALSE(TlsClient(*server, ca()).shaken());
}

TEST_F(PageServerTlsTest, FilesThatDoNotFitAreNamed) {
  PageServerOptions options = Options("abc");
  options.tls.tls_key = certificates_.Member("other", Roles{}).tls_key;
  EXPECT_THAT(PageServer::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is not that of the certificate")));
}

}  // namespace
}  // namespace flotilla
