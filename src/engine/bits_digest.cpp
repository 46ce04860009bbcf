// See bits_digest.h.
#include "engine/bits_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace assay::engine {

struct BitsDigest::State {
  struct Free {
    void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

BitsDigest::BitsDigest() : state_(std::make_unique<State>()) {
  if (!state_->xxh) throw std::bad_alloc();
  reset();
}
BitsDigest::~BitsDigest() = default;
BitsDigest::BitsDigest(BitsDigest&&) noexcept = default;
BitsDigest& BitsDigest::operator=(BitsDigest&&) noexcept = default;

void BitsDigest::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

std::string BitsDigest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void BitsDigest::reset() { XXH3_128bits_reset(state_->xxh.get()); }

}  // namespace assay::engine
