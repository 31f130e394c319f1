#ifndef FLOTILLA_TESTS_SERVICES_RPC_CERTIFICATES_H_
#define FLOTILLA_TESTS_SERVICES_RPC_CERTIFICATES_H_

#include <glog/logging.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/rpc/credentials.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {

// Certificates made with openssl for one test: authorities, and members that
// they sign. Every certificate is good for 127.0.0.1 and localhost.
class Certificates {
 public:
  // What a member holds whom `ca` signed for `days` (negative: expired), and
  // who believes `trusted` (empty: `ca`).
  RpcCredentials Member(const std::string& name, const std::string& ca = "ca",
                        int days = 1, const std::string& trusted = "") {
    return Member(name, {kLearnerRole, kClientRole}, ca, days, trusted);
  }

  RpcCredentials Member(const std::string& name,
                        const std::vector<std::string>& roles,
                        const std::string& ca = "ca", int days = 1,
                        const std::string& trusted = "") {
    MakeAuthority(ca);
    if (!trusted.empty()) MakeAuthority(trusted);
    Run(absl::StrCat("openssl req ", kNewKey, " -keyout ", name,
                     ".key -out request.csr -subj /CN=", name));
    std::string names = "subjectAltName = IP:127.0.0.1, DNS:localhost";
    for (const std::string& role : roles) {
      absl::StrAppend(&names, ", URI:flotilla:role:", role);
    }
    WriteFile(folder_ / "extensions", names + "\n");
    Run(absl::StrCat("openssl x509 -req -in request.csr -CA ", ca,
                     ".pem -CAkey ", ca, ".key -CAcreateserial -days ", days,
                     " -extfile extensions -out ", name, ".pem"));
    RpcCredentials result;
    result.tls_cert = folder_ / (name + ".pem");
    result.tls_key = folder_ / (name + ".key");
    result.tls_ca = folder_ / ((trusted.empty() ? ca : trusted) + ".pem");
    return result;
  }

  const TempDir& folder() const { return folder_; }

 private:
  static constexpr char kNewKey[] =
      "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

  void MakeAuthority(const std::string& ca) {
    if (!ReadFile(folder_ / (ca + ".pem")).empty()) return;
    Run(absl::StrCat("openssl req -x509 ", kNewKey, " -keyout ", ca,
                     ".key -out ", ca, ".pem -days 1 -subj /CN=", ca));
  }

  void Run(const std::string& command) {
    const std::string line =
        absl::StrCat("cd ", folder_.path(), " && ", command, " 2>>openssl.log");
    CHECK_EQ(std::system(line.c_str()), 0) << line << "\n"
                                           << ReadFile(folder_ / "openssl.log");
  }

  TempDir folder_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_RPC_CERTIFICATES_H_
