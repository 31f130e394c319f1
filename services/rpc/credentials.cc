#include "services/rpc/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/status_macros.h"
#include "services/rpc/freed.h"
#include "services/rpc/token_credentials.h"

namespace flotilla {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& what,
                                     const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.bad() || errno == EISDIR) {
    const int error = errno == 0 ? EIO : errno;
    return absl::ErrnoToStatus(
        error, absl::StrCat("cannot read the ", what, " \"", path, "\""));
  }
  return text.str();
}

using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;

std::unique_ptr<BIO, Freed<BIO, BIO_vfree>> Reader(const std::string& text) {
  return std::unique_ptr<BIO, Freed<BIO, BIO_vfree>>(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<Certificate> ReadCertificate(const std::string& what,
                                            const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(what, path));
  Certificate result(
      PEM_read_bio_X509(Reader(text).get(), nullptr, nullptr, nullptr));
  if (result != nullptr) return result;
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " \"", path, "\" is no certificate in PEM"));
}

// Whether what goes to `address` goes over TLS.
// Errors: kInvalidArgument if there is TLS, and neither it nor a folder protects
// `address`.
absl::StatusOr<bool> TakesTls(const RpcCredentials& credentials,
                              const std::string& address) {
  if (!credentials.uses_tls() || HasFolder(address)) return false;
  if (!IsUnixAddress(address)) return true;
  return absl::InvalidArgumentError(
      absl::StrCat("TLS does not protect ", address,
                   ", which every user of this host can reach: use HOST:PORT, "
                   "or unix:PATH in a folder that others cannot enter"));
}

// Reads the files again every `credentials.reload`.
absl::StatusOr<
    std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider>>
WatchTlsFiles(const RpcCredentials& credentials) {
  RETURN_IF_ERROR(CheckTlsFiles(credentials));
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      credentials.tls_key, credentials.tls_cert, credentials.tls_ca,
      static_cast<unsigned>(absl::ToInt64Seconds(credentials.reload)));
}

// "127.0.0.1" of "127.0.0.1:29400", "::1" of "[::1]:29400".
std::string HostOf(const std::string& address) {
  if (absl::StartsWith(address, "[")) {
    return address.substr(1, address.find(']') - 1);
  }
  return address.substr(0, address.rfind(':'));
}

// Whether `host` is an IPv4 address in 127.0.0.0/8, not a name that looks so.
bool IsLoopbackV4(const std::string& host) {
  const std::vector<std::string> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (const std::string& part : parts) {
    int value;
    if (!absl::SimpleAtoi(part, &value) || value < 0 || value > 255) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckCredentials(const RpcCredentials& credentials) {
  const std::pair<const char*, const std::string*> flags[] = {
      {"--tls-cert", &credentials.tls_cert},
      {"--tls-key", &credentials.tls_key},
      {"--tls-ca", &credentials.tls_ca}};
  std::string given, missing;
  for (const auto& [flag, path] : flags) {
    absl::StrAppend(path->empty() ? &missing : &given, " ", flag);
  }
  if (!given.empty() && !missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS needs --tls-cert, --tls-key and --tls-ca together;",
                     " missing:", missing));
  }
  return absl::OkStatus();
}

absl::Status CheckMetricsReaders(const std::string& listen,
                                 const std::string& token_file,
                                 const RpcCredentials& credentials) {
  if (!token_file.empty()) {
    RpcCredentials scrapers;
    scrapers.token_file = token_file;
    return ReadToken(scrapers).status();
  }
  if (credentials.insecure || HasFolder(listen)) return absl::OkStatus();
  if (credentials.uses_token() && !credentials.open_reading) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--metrics-listen ", listen,
        " would show everybody on this host a run that takes a token to look "
        "at: give --metrics-token-file FILE, which Prometheus takes as "
        "credentials_file, or --insecure"));
  }
  if (credentials.uses_tls() || IsLocalAddress(listen)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "other hosts may reach --metrics-listen ", listen,
      ": give --metrics-token-file FILE, which Prometheus takes as "
      "credentials_file, or --tls-cert, --tls-key and --tls-ca, or --insecure "
      "on a network you trust, or listen on 127.0.0.1"));
}

absl::Status CheckTlsFiles(const RpcCredentials& credentials) {
  ASSIGN_OR_RETURN(const Certificate certificate,
                   ReadCertificate("TLS certificate", credentials.tls_cert));
  RETURN_IF_ERROR(
      ReadCertificate("TLS certificate authority", credentials.tls_ca)
          .status());
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile("TLS key", credentials.tls_key));
  char no_password[] = "";
  const Key key(PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, nullptr,
                                        no_password));
  const bool fits =
      key != nullptr && X509_check_private_key(certificate.get(), key.get());
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the TLS key \"", credentials.tls_key, "\" is not ",
                   key == nullptr ? "a private key in PEM, without a password"
                                  : absl::StrCat("that of the certificate \"",
                                                 credentials.tls_cert, "\"")));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const RpcCredentials& credentials, const std::string& address,
    const MethodRoles& roles) {
  RETURN_IF_ERROR(CheckCredentials(credentials));
  ASSIGN_OR_RETURN(const std::string token, ReadToken(credentials));
  const CallRules rules = {token, credentials.open_reading, roles};
  ASSIGN_OR_RETURN(const bool takes_tls, TakesTls(credentials, address));
  if (!takes_tls) {
    return token.empty() ? grpc::InsecureServerCredentials()
                         : PlaintextTokenServerCredentials(rules);
  }
  ASSIGN_OR_RETURN(const auto files, WatchTlsFiles(credentials));
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> result =
      grpc::experimental::TlsServerCredentials(options);
  DemandTokenAndRole(rules, result.get());
  return result;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const RpcCredentials& credentials,
                       const std::string& address) {
  RETURN_IF_ERROR(CheckCredentials(credentials));
  ASSIGN_OR_RETURN(const bool takes_tls, TakesTls(credentials, address));
  if (!takes_tls) return grpc::InsecureChannelCredentials();
  ASSIGN_OR_RETURN(const auto files, WatchTlsFiles(credentials));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(files);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::string> ReadToken(const RpcCredentials& credentials) {
  if (!credentials.uses_token()) return std::string();
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile("token file", credentials.token_file));
  const std::string token(absl::StripAsciiWhitespace(text));
  if (token.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the token file \"", credentials.token_file, "\" is empty"));
  }
  for (char c : token) {
    if (!absl::ascii_isgraph(c)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the token file \"", credentials.token_file,
          "\" holds more than one line of printable ASCII without spaces"));
    }
  }
  return token;
}

bool IsUnixAddress(const std::string& address) {
  return HasFolder(address) || absl::StartsWith(address, "unix-abstract:");
}

bool HasFolder(const std::string& address) {
  return absl::StartsWith(address, "unix:");
}

bool IsLocalAddress(const std::string& address) {
  if (IsUnixAddress(address)) return true;
  const std::string host = HostOf(address);
  return host == "localhost" || host == "::1" || IsLoopbackV4(host);
}

}  // namespace flotilla
