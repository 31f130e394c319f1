#include "services/rpc/tls_session.h"

#include <glog/logging.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/rpc/roles.h"

namespace flotilla {
namespace {

std::string LastError() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  const std::string text = reason == nullptr ? "no reason given" : reason;
  ERR_clear_error();
  return text;
}

struct FreeNames {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

}  // namespace

bool TlsSession::Take(absl::string_view bytes, std::string* said,
                      std::string* wire) {
  BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(),
            static_cast<int>(bytes.size()));
  char text[4096];
  ERR_clear_error();
  int got = 0;
  while ((got = SSL_read(ssl_.get(), text, sizeof(text))) > 0) {
    said->append(text, static_cast<size_t>(got));
  }
  const bool goes_on = SSL_get_error(ssl_.get(), got) == SSL_ERROR_WANT_READ;
  ERR_clear_error();
  MoveTo(wire);
  return goes_on;
}

void TlsSession::Say(absl::string_view text, std::string* wire) {
  while (!text.empty()) {
    const int piece = static_cast<int>(std::min(
        text.size(), static_cast<size_t>(std::numeric_limits<int>::max())));
    const int taken = SSL_write(ssl_.get(), text.data(), piece);
    if (taken <= 0) break;  // without memory
    text.remove_prefix(static_cast<size_t>(taken));
  }
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
  MoveTo(wire);
}

void TlsSession::MoveTo(std::string* wire) {
  BIO* const out = SSL_get_wbio(ssl_.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  if (size > 0) wire->append(data, static_cast<size_t>(size));
  BIO_reset(out);
}

std::vector<std::string> TlsSession::Roles() const {
  X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
  if (certificate == nullptr) return {};
  const std::unique_ptr<GENERAL_NAMES, FreeNames> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
          certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return RolesAmong(uris);
}

absl::StatusOr<std::unique_ptr<TlsServer>> TlsServer::Make(
    const RpcCredentials& credentials, bool demand_certificate) {
  std::unique_ptr<TlsServer> server(
      new TlsServer(credentials, demand_certificate));
  ASSIGN_OR_RETURN(server->context_, server->Read());
  return server;
}

absl::StatusOr<TlsServer::Context> TlsServer::Read() const {
  RETURN_IF_ERROR(CheckTlsFiles(credentials_));
  Context context(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* const c = context.get();
  // A key that has got a password meanwhile is refused, not asked about.
  if (c != nullptr) {
    SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void*) { return 0; });
  }
  if (c == nullptr || SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1 ||
      SSL_CTX_use_certificate_chain_file(c, credentials_.tls_cert.c_str()) !=
          1 ||
      SSL_CTX_use_PrivateKey_file(c, credentials_.tls_key.c_str(),
                                  SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(c) != 1 ||
      SSL_CTX_load_verify_file(c, credentials_.tls_ca.c_str()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot serve TLS with the certificate \"",
                     credentials_.tls_cert, "\", its key and the authority \"",
                     credentials_.tls_ca, "\": ", LastError()));
  }
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  if (demand_certificate_) {
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       nullptr);
  }
  return context;
}

std::unique_ptr<TlsSession> TlsServer::NewSession(absl::Time now) {
  if (now - read_at_ >= credentials_.reload) {
    read_at_ = now;
    auto context = Read();
    if (context.ok()) {
      context_ = *std::move(context);
    } else {
      LOG(WARNING) << context.status().message()
                   << "; the files that were there before go on";
    }
  }
  SSL* const ssl = SSL_new(context_.get());
  if (ssl == nullptr) return nullptr;
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, in, out);
  SSL_set_accept_state(ssl);
  std::unique_ptr<TlsSession> session(new TlsSession(ssl));
  if (in == nullptr || out == nullptr) return nullptr;
  return session;
}

}  // namespace flotilla
