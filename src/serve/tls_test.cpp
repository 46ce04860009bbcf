// HTTPS, with a certificate that is made here: the same answers, clients that go, and files that are none.
#include "serve/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstdio>

#include "assay/error.h"
#include "programs/running_server.h"

namespace assay {
namespace {

using test::get;
using test::post;
using ::testing::HasSubstr;

struct KeyPair {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  KeyPair() {
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                               0);
    X509_set_issuer_name(certificate, name);
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_add_ext(certificate, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(certificate, key, EVP_sha256());
  }
  ~KeyPair() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  KeyPair(const KeyPair&) = delete;
  KeyPair& operator=(const KeyPair&) = delete;

  void write(const std::filesystem::path& certificate_file, const std::filesystem::path& key_file,
             const EVP_CIPHER* cipher = nullptr) const {
    FILE* file = std::fopen(certificate_file.c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
    file = std::fopen(key_file.c_str(), "w");
    std::string word = "word";
    PEM_write_PrivateKey(file, key, cipher, cipher ? reinterpret_cast<unsigned char*>(word.data()) : nullptr,
                         cipher ? 4 : 0, nullptr, nullptr);
    std::fclose(file);
  }
};

// A client that trusts one certificate.
class SecureClient {
 public:
  SecureClient(uint16_t port, X509* trusted)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)), context_(SSL_CTX_new(TLS_client_method())) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timeval limit{30, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), trusted);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = SSL_new(context_);
    SSL_set1_host(ssl_, "localhost");
    SSL_set_fd(ssl_, fd_);
    is_connected_ = SSL_connect(ssl_) == 1;
  }
  ~SecureClient() {
    if (is_connected_) SSL_shutdown(ssl_);
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(fd_);
  }
  SecureClient(const SecureClient&) = delete;
  SecureClient& operator=(const SecureClient&) = delete;

  bool is_connected() const { return is_connected_; }
  void send(const std::string& text) {
    EXPECT_EQ(SSL_write(ssl_, text.data(), static_cast<int>(text.size())), static_cast<int>(text.size()));
  }
  // Up to and with this part; what came instead where the connection ended first.
  std::string until(const std::string& part) {
    char buffer[4096];
    while (in_.find(part) == std::string::npos) {
      const int n = SSL_read(ssl_, buffer, sizeof buffer);
      if (n <= 0) break;
      in_.append(buffer, static_cast<size_t>(n));
    }
    return in_;
  }

 private:
  int fd_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool is_connected_ = false;
  std::string in_;
};

class TlsTest : public test::RunningServer {
 protected:
  TlsTest() {
    pair_.write(folder_ / "cert.pem", folder_ / "key.pem");
    options_.certificate_file = (folder_ / "cert.pem").string();
    options_.key_file = (folder_ / "key.pem").string();
  }
  std::string refusal() {
    try {
      Server(model_, options_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::bad_request);
      return error.what();
    }
    return "no error";
  }
  KeyPair pair_;
};

TEST_F(TlsTest, AnswersAreTheSame) {
  start();
  SecureClient client(server_->port(), pair_.certificate);
  ASSERT_TRUE(client.is_connected());
  client.send(get("/health"));
  EXPECT_THAT(client.until("ok\"}"), HasSubstr("200 OK"));
  client.send(
      post("/v1/completions", R"({"prompt": "ab", "max_tokens": 5, "seed": 3, "temperature": 0, "stream": true})"));
  EXPECT_THAT(client.until("[DONE]"), HasSubstr("text/event-stream"));
  client.send(post("/v1/completions", R"({"prompt": "ab", "max_tokens": 5, "seed": 3, "temperature": 0})",
                   "Connection: close\r\n"));
  EXPECT_THAT(client.until("never"), HasSubstr("\"text\":"));  // up to the end
  test::Client plain(server_->port());                         // who speaks in the clear is not answered so
  plain.send(get("/health"));
  EXPECT_FALSE(plain.receive_until("200 OK"));
  KeyPair other;
  EXPECT_FALSE(SecureClient(server_->port(), other.certificate).is_connected());
  EXPECT_TRUE(SecureClient(server_->port(), pair_.certificate).is_connected());  // after all that
}

TEST_F(TlsTest, ClientsThatGoFreeTheirPlaces) {
  options_.scheduler.context.n_ctx = 100'000;
  options_.scheduler.context.n_sequences = 1;
  start();
  for (const char* stream : {"true", "false"}) {
    SecureClient client(server_->port(), pair_.certificate);
    ASSERT_TRUE(client.is_connected());
    client.send(
        post("/v1/completions", std::string(R"({"prompt": "a", "ignore_eos": true, "stream": )") + stream + "}"));
    if (std::string(stream) == "true") client.until("data: ");
  }
  SecureClient last(server_->port(), pair_.certificate);
  last.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})"));  // it could not run beside them
  EXPECT_THAT(last.until("usage"), HasSubstr("200 OK"));
}

TEST_F(TlsTest, FilesThatAreNoneAreNamed) {
  options_.certificate_file = (folder_ / "none.pem").string();
  EXPECT_THAT(refusal(), HasSubstr("none.pem: no such file"));
  options_.certificate_file = (folder_ / "key.pem").string();
  EXPECT_THAT(refusal(),
              HasSubstr("--ssl-cert-file " + (folder_ / "key.pem").string() + ": needs certificates in PEM form"));
  options_.certificate_file = (folder_ / "cert.pem").string();
  options_.key_file = (folder_ / "cert.pem").string();
  EXPECT_THAT(refusal(),
              HasSubstr("--ssl-key-file " + (folder_ / "cert.pem").string() + ": needs the certificate's private key"));
  KeyPair().write(folder_ / "other.pem", folder_ / "other-key.pem");
  options_.key_file = (folder_ / "other-key.pem").string();
  EXPECT_THAT(refusal(), HasSubstr("other-key.pem: needs the certificate's private key"));
  pair_.write(folder_ / "cert.pem", folder_ / "locked.pem", EVP_aes_128_cbc());
  options_.key_file = (folder_ / "locked.pem").string();
  EXPECT_THAT(refusal(), HasSubstr("without a password"));
}

}  // namespace
}  // namespace assay
