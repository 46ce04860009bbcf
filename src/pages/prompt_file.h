// A file of one prompt's beginning: whose tokens, and the pages of the KV cache that hold them. Read as anything from
// outside: checked count by count.
//
//   "ASSAYPFX"  u32 version = 2   u32 bytes of the settings   u64 pages   u64 bytes of a page
//   u64 x 2     identity of the model     u64 x 2  digest of the salt
//   u64         bytes of a page that are of layers with a window   u64 pages that have these
//   settings    text, no more than 256 bytes
//   i32 x 64    token ids of each page
//   u64         XXH3-64 of each page's image
//   u8          of each page: 1: its image has the layers with a window, 0: it has not
//   u64         XXH3-64 of all that stands before
//   images, one after the other, to the end of the file
// Numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::pages {

using Digest = std::array<uint64_t, 2>;
Digest digest_of(std::span<const std::byte> bytes) noexcept;      // XXH3-128
uint64_t checksum_of(std::span<const std::byte> bytes) noexcept;  // XXH3-64

// Whose pages: only those of the same model under the same settings can be read.
struct PromptOwner {
  Digest model = {};
  std::string settings;  // numerics and types of the cache
  uint64_t page_bytes = 0;
  uint64_t window_bytes = 0;  // of these
  friend bool operator==(const PromptOwner&, const PromptOwner&) = default;
};

struct PromptHead {
  PromptOwner owner;
  Digest salt = {};
  std::vector<TokenId> tokens;      // of whole pages
  std::vector<uint64_t> checksums;  // a page each
  std::vector<uint8_t> has_window;  // a page each: 0 or 1
  uint64_t image_bytes(size_t i_page) const noexcept {
    return owner.page_bytes - (has_window[i_page] != 0 ? 0 : owner.window_bytes);
  }
  uint64_t n_pages() const noexcept { return checksums.size(); }
};

inline constexpr uint64_t kPromptPagesMax = 1 << 20;

// The bytes before the images.
std::vector<std::byte> head_bytes(const PromptHead& head);
// Of a file of file_bytes, whose beginning is `begin`: how long its head is, as far as that can be told from the first
// kPromptFixedBytes. Error(bad_file) where it is no such file.
inline constexpr size_t kPromptFixedBytes = 80;
uint64_t head_size(std::span<const std::byte> begin, uint64_t file_bytes);
// Error(bad_file) where the head is damaged.
PromptHead parse_head(std::span<const std::byte> bytes, uint64_t file_bytes);

}  // namespace assay::pages
