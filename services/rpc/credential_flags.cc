#include "services/rpc/credential_flags.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace flotilla {

void AddCredentialFlags(RpcCredentials* out, CommandLine* line) {
  line->Text("--tls-cert", "FILE",
             "mutual TLS for all services: this job's certificate",
             &out->tls_cert);
  line->Text("--tls-key", "FILE", "its private key", &out->tls_key);
  line->Text("--tls-ca", "FILE", "who signs everybody's certificates",
             &out->tls_ca);
  line->Text("--token-file", "FILE", "shared token for all services",
             &out->token_file);
  line->Switch("--insecure",
               "serve others with neither TLS nor a token; where one is given, "
               "calls take it all the same, and only a page of metrics may go "
               "without a token",
               &out->insecure);
}

std::vector<std::string> CredentialFlags(const RpcCredentials& credentials) {
  std::vector<std::string> flags;
  const auto add = [&](const std::string& flag, const std::string& file) {
    if (file.empty()) return;
    flags.push_back(
        absl::StrCat(flag, "=", std::filesystem::absolute(file).string()));
  };
  add("--tls-cert", credentials.tls_cert);
  add("--tls-key", credentials.tls_key);
  add("--tls-ca", credentials.tls_ca);
  add("--token-file", credentials.token_file);
  if (credentials.insecure) flags.push_back("--insecure");
  return flags;
}

}  // namespace flotilla
