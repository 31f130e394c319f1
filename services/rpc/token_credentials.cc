#include "services/rpc/token_credentials.h"

#include <glog/logging.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "services/base/secret.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

constexpr char kKey[] = "authorization";
constexpr char kPath[] = ":path";

std::string HeaderOf(const std::string& token) {
  return absl::StrCat("Bearer ", token);
}

// A call as far as it has been heard: its method and its authorization.
class CallCheck {
 public:
  explicit CallCheck(const CallRules& rules)
      : want_(rules.token.empty() ? "" : HeaderOf(rules.token)),
        open_reading_(rules.open_reading),
        methods_(rules.methods) {}

  // OK, or UNAUTHENTICATED with the remedy.
  grpc::Status CheckToken(absl::string_view path,
                          absl::string_view authorization) const {
    if (want_.empty() || EqualInConstantTime(authorization, want_)) {
      return grpc::Status::OK;
    }
    const MethodAccess* access = AccessTo(path);
    if (open_reading_ && (access == nullptr || access->only_reads)) {
      return grpc::Status::OK;
    }
    const bool none = authorization.empty();
    return {grpc::StatusCode::UNAUTHENTICATED,
            absl::StrCat(
                none ? "this takes the run's token"
                     : "this takes another token than the one that came",
                ": --token-file FILE",
                open_reading_ ? " (RUN/token, which --run-dir RUN finds)" : "",
                ", or metadata \"authorization: Bearer TOKEN\"")};
  }

  // Null for a method that is not named.
  const MethodAccess* AccessTo(absl::string_view path) const {
    const auto found = methods_.find(std::string(path));
    return found == methods_.end() ? nullptr : &found->second;
  }

 private:
  const std::string want_;  // "": any
  const bool open_reading_;
  const MethodRoles methods_;
};

class CallProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallProcessor(const CallRules& rules) : check_(rules) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* caller,
                       OutputMetadata*, OutputMetadata*) override {
    const absl::string_view path = Value(metadata, kPath);
    const grpc::Status token = check_.CheckToken(path, Value(metadata, kKey));
    if (!token.ok()) return token;
    const MethodAccess* access = check_.AccessTo(path);
    if (access == nullptr) return grpc::Status::OK;
    return ToGrpc(CheckRole(*caller, access->roles, std::string(path)));
  }

 private:
  static absl::string_view Value(const InputMetadata& metadata,
                                 const char* key) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) return "";
    return {found->second.data(), found->second.size()};
  }

  const CallCheck check_;
};

// The same on gRPC's C interface, whose insecure credentials do take a
// processor.
class PlaintextToken final : public grpc::ServerCredentials {
 public:
  explicit PlaintextToken(const CallRules& rules)
      : credentials_(grpc_insecure_server_credentials_create()) {
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {Process, Destroy, new CallCheck(rules)});
  }
  ~PlaintextToken() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    LOG(FATAL) << "these credentials have their processor already";
  }

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static void Process(void* state, grpc_auth_context*, const grpc_metadata* md,
                      size_t num_md, grpc_process_auth_metadata_done_cb done,
                      void* user_data) {
    absl::string_view path, authorization;
    for (size_t i = 0; i < num_md; ++i) {
      const absl::string_view key = View(md[i].key);
      if (key == kPath) path = View(md[i].value);
      if (key == kKey) authorization = View(md[i].value);
    }
    const grpc::Status status =
        static_cast<const CallCheck*>(state)->CheckToken(path, authorization);
    done(user_data, nullptr, 0, nullptr, 0,
         static_cast<grpc_status_code>(status.error_code()),
         status.ok() ? nullptr : status.error_message().c_str());
  }

  static void Destroy(void* state) { delete static_cast<CallCheck*>(state); }

  static absl::string_view View(const grpc_slice& slice) {
    return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
            GRPC_SLICE_LENGTH(slice)};
  }

  grpc_server_credentials* const credentials_;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

class MetadataInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit MetadataInterceptor(const Metadata& metadata)
      : metadata_(metadata) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* call) override {
    using Hook = grpc::experimental::InterceptionHookPoints;
    if (call->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) {
      for (const auto& [name, value] : metadata_) {
        call->GetSendInitialMetadata()->emplace(name, value);
      }
    }
    call->Proceed();
  }

 private:
  const Metadata metadata_;
};

class MetadataInterceptorFactory final
    : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit MetadataInterceptorFactory(Metadata metadata)
      : metadata_(std::move(metadata)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new MetadataInterceptor(metadata_);
  }

 private:
  const Metadata metadata_;
};

}  // namespace

void DemandTokenAndRole(const CallRules& rules,
                        grpc::ServerCredentials* credentials) {
  credentials->SetAuthMetadataProcessor(std::make_shared<CallProcessor>(rules));
}

std::shared_ptr<grpc::ServerCredentials> PlaintextTokenServerCredentials(
    const CallRules& rules) {
  return std::make_shared<PlaintextToken>(rules);
}

std::pair<std::string, std::string> TokenMetadata(const std::string& token) {
  return {kKey, HeaderOf(token)};
}

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>
MetadataSender(std::vector<std::pair<std::string, std::string>> metadata) {
  return std::make_unique<MetadataInterceptorFactory>(std::move(metadata));
}

}  // namespace flotilla
