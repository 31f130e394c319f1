#include "services/rpc/credentials.h"

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

struct TlsFiles {
  std::string cert;
  std::string key;
  std::string ca;
};

absl::StatusOr<TlsFiles> ReadTlsFiles(const RpcCredentials& credentials) {
  TlsFiles files;
  ASSIGN_OR_RETURN(files.cert,
                   ReadFile("TLS certificate", credentials.tls_cert));
  ASSIGN_OR_RETURN(files.key, ReadFile("TLS key", credentials.tls_key));
  ASSIGN_OR_RETURN(files.ca,
                   ReadFile("TLS certificate authority", credentials.tls_ca));
  const std::pair<const std::string*, const std::string*> pem[] = {
      {&credentials.tls_cert, &files.cert},
      {&credentials.tls_key, &files.key},
      {&credentials.tls_ca, &files.ca}};
  for (const auto& [path, text] : pem) {
    if (!absl::StrContains(*text, "-----BEGIN ")) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", *path, "\" is not a PEM file"));
    }
  }
  return files;
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

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const RpcCredentials& credentials, const std::string& address) {
  RETURN_IF_ERROR(CheckCredentials(credentials));
  ASSIGN_OR_RETURN(const std::string token, ReadToken(credentials));
  if (!credentials.uses_tls() || IsUnixAddress(address)) {
    return token.empty() ? grpc::InsecureServerCredentials()
                         : PlaintextTokenServerCredentials(token);
  }
  ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(credentials));
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = std::move(files.ca);
  options.pem_key_cert_pairs.push_back(
      {std::move(files.key), std::move(files.cert)});
  std::shared_ptr<grpc::ServerCredentials> result =
      grpc::SslServerCredentials(options);
  if (!token.empty()) DemandToken(token, result.get());
  return result;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const RpcCredentials& credentials,
                       const std::string& address) {
  RETURN_IF_ERROR(CheckCredentials(credentials));
  if (!credentials.uses_tls() || IsUnixAddress(address)) {
    return grpc::InsecureChannelCredentials();
  }
  ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(credentials));
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::move(files.ca);
  options.pem_private_key = std::move(files.key);
  options.pem_cert_chain = std::move(files.cert);
  return grpc::SslCredentials(options);
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

bool EqualInConstantTime(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

bool IsUnixAddress(const std::string& address) {
  return absl::StartsWith(address, "unix:") ||
         absl::StartsWith(address, "unix-abstract:");
}

bool IsLocalAddress(const std::string& address) {
  if (IsUnixAddress(address)) return true;
  const std::string host = HostOf(address);
  return host == "localhost" || host == "::1" || IsLoopbackV4(host);
}

}  // namespace flotilla
