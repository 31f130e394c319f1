#include "services/rpc/token_credentials.h"

#include <glog/logging.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "services/rpc/credentials.h"
#include "services/rpc/grpc_status.h"

namespace flotilla {
namespace {

constexpr char kKey[] = "authorization";
constexpr char kRefusal[] =
    "this server wants the run's token: --token-file, or metadata "
    "\"authorization: Bearer TOKEN\"";

std::string HeaderOf(const std::string& token) {
  return absl::StrCat("Bearer ", token);
}

class CallProcessor final : public grpc::AuthMetadataProcessor {
 public:
  CallProcessor(const std::string& token, const MethodRoles& roles)
      : want_(token.empty() ? "" : HeaderOf(token)), roles_(roles) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* caller,
                       OutputMetadata*, OutputMetadata*) override {
    if (!want_.empty() && !EqualInConstantTime(Value(metadata, kKey), want_)) {
      return {grpc::StatusCode::UNAUTHENTICATED, kRefusal};
    }
    const auto method = roles_.find(std::string(Value(metadata, ":path")));
    if (method == roles_.end()) return grpc::Status::OK;
    return ToGrpc(CheckRole(*caller, method->second, method->first));
  }

 private:
  static absl::string_view Value(const InputMetadata& metadata,
                                 const char* key) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) return "";
    return {found->second.data(), found->second.size()};
  }

  const std::string want_;  // "": any
  const MethodRoles roles_;
};

// The same on gRPC's C interface, whose insecure credentials do take a
// processor.
class PlaintextToken final : public grpc::ServerCredentials {
 public:
  explicit PlaintextToken(const std::string& token)
      : credentials_(grpc_insecure_server_credentials_create()) {
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {Process, Destroy, new std::string(HeaderOf(token))});
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
    const std::string& want = *static_cast<std::string*>(state);
    bool good = false;
    for (size_t i = 0; i < num_md && !good; ++i) {
      good = View(md[i].key) == kKey &&
             EqualInConstantTime(View(md[i].value), want);
    }
    done(user_data, nullptr, 0, nullptr, 0,
         good ? GRPC_STATUS_OK : GRPC_STATUS_UNAUTHENTICATED,
         good ? nullptr : kRefusal);
  }

  static void Destroy(void* state) { delete static_cast<std::string*>(state); }

  static absl::string_view View(const grpc_slice& slice) {
    return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
            GRPC_SLICE_LENGTH(slice)};
  }

  grpc_server_credentials* const credentials_;
};

class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& header) : header_(header) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* call) override {
    using Hook = grpc::experimental::InterceptionHookPoints;
    if (call->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) {
      call->GetSendInitialMetadata()->emplace(kKey, header_);
    }
    call->Proceed();
  }

 private:
  const std::string header_;
};

class TokenInterceptorFactory final
    : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptorFactory(const std::string& token)
      : header_(HeaderOf(token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenInterceptor(header_);
  }

 private:
  const std::string header_;
};

}  // namespace

void DemandTokenAndRole(const std::string& token, const MethodRoles& roles,
                        grpc::ServerCredentials* credentials) {
  credentials->SetAuthMetadataProcessor(
      std::make_shared<CallProcessor>(token, roles));
}

std::shared_ptr<grpc::ServerCredentials> PlaintextTokenServerCredentials(
    const std::string& token) {
  return std::make_shared<PlaintextToken>(token);
}

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>
TokenSender(const std::string& token) {
  return std::make_unique<TokenInterceptorFactory>(token);
}

}  // namespace flotilla
