// SHA-256 by OpenSSL, which uses the processor's own instructions.
#include "store/sha256.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <vector>

#include "assay/error.h"
#include "assay/store.h"

namespace assay::store {
namespace {

void require(int done) {
  if (done != 1) throw Error(Errc::io, "SHA-256: OpenSSL refused to compute it");
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
  require(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  require(EVP_DigestFinal_ex(state_->context, digest, &n));
  std::string text;
  for (unsigned int i = 0; i < n; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace assay::store

namespace assay {

std::string sha256_of_file(const std::string& path) {
  const int file =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);  // a pipe without a writer would block
  const auto fail = [&] { throw Error(Errc::io, fmt::format("{}: {}", path, std::generic_category().message(errno))); };
  if (file < 0) fail();
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } closer{file};
  store::Sha256 digest;
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t n = ::read(file, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    if (n == 0) return digest.hex();
    digest.add(std::span(buffer).first(static_cast<size_t>(n)));
  }
}

}  // namespace assay
