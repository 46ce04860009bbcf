#include "store/background_sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace assay::store {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// FIPS 180-4's examples.
constexpr const char* kOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kOfAMillionA = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(BackgroundSha256, KnownDigests) {
  BackgroundSha256 digest;
  EXPECT_EQ(digest.hex(), kOfNothing);
  digest.add(bytes_of("a"));
  digest.add({});
  digest.add(bytes_of("bc"));
  EXPECT_EQ(digest.hex(), kOfAbc);
  EXPECT_EQ(digest.hex(), kOfNothing);
  digest.add(bytes_of("something else"));
  digest.restart();
  digest.add(bytes_of("abc"));
  EXPECT_EQ(digest.hex(), kOfAbc);
}

TEST(BackgroundSha256, WhatIsAddedIsCopiedAndMayBeMuch) {
  BackgroundSha256 digest;
  std::string piece;
  for (int left = 1'000'000, n = 1; left > 0; n = (n * 3 + 1) % 100'000) {
    const int size = std::min(n % 70'000 + 1, left);
    piece.assign(static_cast<size_t>(size), 'a');
    digest.add(bytes_of(piece));
    std::fill(piece.begin(), piece.end(), 'b');
    left -= size;
  }
  EXPECT_EQ(digest.hex(), kOfAMillionA);
  const std::string large(5 << 20, 'x');  // more than may wait
  for (int i = 0; i < 6; ++i) digest.add(bytes_of(large));
}

}  // namespace
}  // namespace assay::store
