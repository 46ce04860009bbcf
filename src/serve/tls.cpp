// See tls.h.
#include "serve/tls.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <filesystem>

#include "assay/error.h"

namespace assay::serve {
namespace {

namespace ssl = boost::asio::ssl;

void check(const boost::system::error_code& ec, const char* flag, const std::string& file, const char* needed) {
  if (!ec) return;
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(file, ignored);
  throw Error(Errc::bad_request, is_there ? fmt::format("{} {}: needs {}: {}", flag, file, needed, ec.message())
                                          : fmt::format("{} {}: no such file", flag, file));
}

}  // namespace

std::unique_ptr<ssl::context> tls_context(const std::string& certificate_file, const std::string& key_file) {
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  boost::system::error_code ec;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                       ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION |
                       SSL_OP_NO_COMPRESSION);
  // A key that asks for a password would ask on the terminal, where nobody may sit.
  context->set_password_callback([](size_t, ssl::context::password_purpose) { return std::string(); }, ec);
  context->use_certificate_chain_file(certificate_file, ec);
  check(ec, "--ssl-cert-file", certificate_file, "certificates in PEM form");
  context->use_private_key_file(key_file, ssl::context::pem, ec);
  check(ec, "--ssl-key-file", key_file, "the certificate's private key in PEM form, without a password");
  return context;
}

}  // namespace assay::serve
