#include "launcher/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/base/subprocess.h"

namespace flotilla {

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const char* folder = std::getenv("FLOTILLA_PROGRAM_FOLDER");
  const std::string path = absl::StrCat(
      folder != nullptr ? std::string(folder) : ProgramFolder(), "/", name);
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      absl::StrCat("there is no program ", path, "; build it: make build",
                   name == "flotilla-learner"
                       ? " (a build without LibTorch has no flotilla-learner)"
                       : ""));
}

std::vector<std::string> CredentialFlags(const RpcCredentials& credentials) {
  std::vector<std::string> flags;
  const auto add = [&](const std::string& flag, const std::string& file) {
    if (file.empty()) return;
    flags.push_back(
        absl::StrCat(flag, "=", std::filesystem::absolute(file).string()));
  };
  add("--tls_cert", credentials.tls_cert);
  add("--tls_key", credentials.tls_key);
  add("--tls_ca", credentials.tls_ca);
  add("--token_file", credentials.token_file);
  if (credentials.insecure) flags.push_back("--insecure");
  return flags;
}

}  // namespace flotilla
