#include "services/rpc/refusal.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/printable.h"
#include "services/rpc/freed.h"

namespace flotilla {
namespace {

constexpr int kPatienceMs = 1000;  // with each step of a look
constexpr size_t kNamedNames = 5;
constexpr size_t kMaxWords = 200;  // of the server's

struct Endpoint {
  std::string host;
  std::string port;
};

std::optional<Endpoint> Parse(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (IsUnixAddress(address) || colon == address.npos) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  return Endpoint{host, address.substr(colon + 1)};
}

// A socket that blocks for kPatienceMs at most; -1 if nothing accepts.
int ConnectTo(const addrinfo& target) {
  const int fd =
      socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  connect(fd, target.ai_addr, target.ai_addrlen);
  pollfd entry = {.fd = fd, .events = POLLOUT, .revents = 0};
  int error = 1;
  socklen_t size = sizeof(error);
  if (poll(&entry, 1, kPatienceMs) == 1 &&
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

int ConnectTo(const Endpoint& server) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found) !=
      0) {
    return -1;
  }
  int fd = -1;
  for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = ConnectTo(*at);
  }
  freeaddrinfo(found);
  return fd;
}

// OpenSSL writes to sockets that may be closed.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now = {};
    sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
};

// The names that a certificate is good for, for people.
std::string NamesOf(X509* certificate) {
  std::vector<std::string> names;
  auto* all = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all, i);
    if (name->type == GEN_DNS) {
      names.emplace_back(
          reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
          ASN1_STRING_length(name->d.dNSName));
    } else if (name->type == GEN_IPADD) {
      char text[INET6_ADDRSTRLEN] = "";
      const int length = ASN1_STRING_length(name->d.iPAddress);
      inet_ntop(length == 4 ? AF_INET : AF_INET6,
                ASN1_STRING_get0_data(name->d.iPAddress), text, sizeof(text));
      names.emplace_back(text);
    }
  }
  GENERAL_NAMES_free(all);
  if (names.empty()) return "no host";
  if (names.size() > kNamedNames) {
    names.resize(kNamedNames);
    names.emplace_back("others");
  }
  return PrintableLine(absl::StrJoin(names, ", "), kMaxWords);
}

// One look: a TLS handshake that believes everything, and then judges.
class Look {
 public:
  Look(const Endpoint& server, const RpcCredentials& credentials)
      : server_(server), credentials_(credentials) {}

  std::string Judge() {
    fd_ = ConnectTo(server_);
    if (fd_ < 0) return "";
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (context_ == nullptr) return "";
    if (credentials_.uses_tls()) UseFiles();
    ssl_.reset(SSL_new(context_.get()));
    if (ssl_ == nullptr) return "";
    static const unsigned char kH2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl_.get(), kH2, sizeof(kH2));
    SSL_set_tlsext_host_name(ssl_.get(), server_.host.c_str());
    BecomeBlocking();
    SSL_set_fd(ssl_.get(), fd_);
    ERR_clear_error();
    const bool agreed = SSL_connect(ssl_.get()) == 1;
    const unsigned long error = ERR_peek_error();
    if (!credentials_.uses_tls()) {
      return agreed || IsAlert(error)
                 ? "it speaks TLS: give --tls-cert, --tls-key and --tls-ca"
                 : "";
    }
    if (!agreed) return WhyNoHandshake(error);
    const std::string about_it = JudgeCertificate();
    return about_it.empty() ? JudgeAnswer() : about_it;
  }

  ~Look() {
    ssl_.reset();
    if (fd_ >= 0) close(fd_);
    ERR_clear_error();
  }

 private:
  void UseFiles() {
    SSL_CTX_load_verify_locations(context_.get(), credentials_.tls_ca.c_str(),
                                  nullptr);
    SSL_CTX_use_certificate_chain_file(context_.get(),
                                       credentials_.tls_cert.c_str());
    SSL_CTX_use_PrivateKey_file(context_.get(), credentials_.tls_key.c_str(),
                                SSL_FILETYPE_PEM);
  }

  void BecomeBlocking() {
    int flags = fcntl(fd_, F_GETFL);
    fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK);
    const timeval patience = {kPatienceMs / 1000, kPatienceMs % 1000 * 1000};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  }

  // What the other side said against us, in TLS.
  static bool IsAlert(unsigned long error) {
    return ERR_GET_LIB(error) == ERR_LIB_SSL &&
           ERR_GET_REASON(error) >= SSL_AD_REASON_OFFSET;
  }

  static std::string Words(unsigned long error) {
    const char* words = ERR_reason_error_string(error);
    return words == nullptr ? "no reason given" : words;
  }

  std::string WhyNoHandshake(unsigned long error) const {
    if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
        ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER) {
      return "it speaks plaintext: leave --tls-cert, --tls-key and --tls-ca "
             "out, or start it with them too";
    }
    return IsAlert(error) ? TakesNotOurs(Words(error)) : "";
  }

  std::string TakesNotOurs(const std::string& why) const {
    const X509* ours = SSL_CTX_get0_certificate(context_.get());
    if (ours != nullptr &&
        X509_cmp_current_time(X509_get0_notAfter(ours)) < 0) {
      return absl::StrCat("our certificate (--tls-cert ", credentials_.tls_cert,
                          ") has expired: renew it");
    }
    return absl::StrCat("it does not take our certificate (", why,
                        "): --tls-cert has to be one that its authority "
                        "signed");
  }

  std::string JudgeCertificate() {
    std::unique_ptr<X509, Freed<X509, X509_free>> certificate(
        SSL_get1_peer_certificate(ssl_.get()));
    if (certificate == nullptr) return "";
    const long verdict = SSL_get_verify_result(ssl_.get());
    if (verdict != X509_V_OK) {
      return absl::StrCat("its certificate does not hold (",
                          X509_verify_cert_error_string(verdict),
                          "): --tls-ca has to be the authority that signed it, "
                          "and it has to be renewed when it has expired");
    }
    const bool fits =
        X509_check_ip_asc(certificate.get(), server_.host.c_str(), 0) == 1 ||
        X509_check_host(certificate.get(), server_.host.c_str(),
                        server_.host.size(), 0, nullptr) == 1;
    if (fits) return "";
    return absl::StrCat("its certificate is for ", NamesOf(certificate.get()),
                        ", not for ", server_.host,
                        ": call it by such a name, or make it another "
                        "certificate");
  }

  // A server of TLS 1.3 judges our certificate after the handshake. One that
  // takes it speaks first; gRPC's ends the connection without a word if not.
  std::string JudgeAnswer() {
    char byte;
    ERR_clear_error();
    if (SSL_read(ssl_.get(), &byte, 1) == 1) return "";
    const unsigned long error = ERR_peek_error();
    if (IsAlert(error)) return TakesNotOurs(Words(error));
    const bool ended =
        ERR_GET_LIB(error) == ERR_LIB_SSL &&
        ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    return ended ? TakesNotOurs("it ended the connection when it saw it") : "";
  }

  const Endpoint server_;
  const RpcCredentials& credentials_;
  int fd_ = -1;
  std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Freed<SSL, SSL_free>> ssl_;
};

}  // namespace

std::string WhyRefused(const std::string& address,
                       const RpcCredentials& credentials) {
  const std::optional<Endpoint> server = Parse(address);
  if (!server) return "";
  const WithoutSigpipe without_sigpipe;
  return Look(*server, credentials).Judge();
}

absl::Status ExplainRefusal(const absl::Status& status,
                            const std::string& server,
                            const std::string& address,
                            const RpcCredentials& credentials) {
  const std::string refuses =
      absl::StrCat(server, " at ", address, " refuses us: ");
  if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) {
    return absl::Status(status.code(),
                        absl::StrCat(refuses, PrintableLine(status.message())));
  }
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
    return status;
  }
  const std::string why = WhyRefused(address, credentials);
  return why.empty()
             ? status
             : absl::UnauthenticatedError(absl::StrCat(
                   "cannot talk to ", server, " at ", address, ": ", why));
}

}  // namespace flotilla
