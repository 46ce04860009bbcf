// See prompt_file.h.
#include "pages/prompt_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "assay/error.h"
#include "pages/page_tables.h"

namespace assay::pages {
namespace {

constexpr char kMagic[8] = {'A', 'S', 'S', 'A', 'Y', 'P', 'F', 'X'};
constexpr uint32_t kVersion = 2;
constexpr uint32_t kSettingsMax = 256;

template <class T>
void put(std::vector<std::byte>& to, const T* values, size_t n) {
  const size_t at = to.size();
  to.resize(at + n * sizeof(T));
  if (n > 0) std::memcpy(to.data() + at, values, n * sizeof(T));
}

template <class T>
T get(std::span<const std::byte> from, size_t at) {
  T value;
  std::memcpy(&value, from.data() + at, sizeof value);
  return value;
}

[[noreturn]] void refuse(const std::string& what) { throw Error(Errc::bad_file, "a saved prompt: " + what); }

// What the fixed bytes say, checked against the file's size.
struct Fixed {
  uint32_t settings_bytes = 0;
  uint64_t n_pages = 0, page_bytes = 0, window_bytes = 0, n_with_window = 0, head_bytes = 0;
};

Fixed parse_fixed(std::span<const std::byte> bytes, uint64_t file_bytes) {
  if (bytes.size() < kPromptFixedBytes)
    refuse(fmt::format("needs {} bytes at least, found {}", kPromptFixedBytes, bytes.size()));
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) refuse("it does not begin with ASSAYPFX");
  const auto version = get<uint32_t>(bytes, 8);
  if (version != kVersion) refuse(fmt::format("version {}, where {} is known", version, kVersion));
  Fixed fixed{get<uint32_t>(bytes, 12), get<uint64_t>(bytes, 16), get<uint64_t>(bytes, 24),
              get<uint64_t>(bytes, 64), get<uint64_t>(bytes, 72), 0};
  if (fixed.settings_bytes > kSettingsMax)
    refuse(fmt::format("settings of {} bytes, at most {}", fixed.settings_bytes, kSettingsMax));
  if (fixed.n_pages < 1 || fixed.n_pages > kPromptPagesMax)
    refuse(fmt::format("{} pages: needs 1 to {}", fixed.n_pages, kPromptPagesMax));
  if (fixed.page_bytes < 1 || fixed.page_bytes > uint64_t{1} << 40)
    refuse(fmt::format("pages of {} bytes", fixed.page_bytes));
  if (fixed.window_bytes > fixed.page_bytes || fixed.n_with_window > fixed.n_pages) {
    refuse(fmt::format("{} of {} bytes of a page are of windows, which {} of {} pages have", fixed.window_bytes,
                       fixed.page_bytes, fixed.n_with_window, fixed.n_pages));
  }
  fixed.head_bytes = kPromptFixedBytes + fixed.settings_bytes +
                     fixed.n_pages * (kPagePositions * sizeof(TokenId) + sizeof(uint64_t) + 1) + sizeof(uint64_t);
  const uint64_t all_bytes = fixed.head_bytes + fixed.n_pages * (fixed.page_bytes - fixed.window_bytes) +
                             fixed.n_with_window * fixed.window_bytes;
  if (all_bytes != file_bytes) {
    refuse(fmt::format("{} pages of {} bytes make {} bytes, the file has {}", fixed.n_pages, fixed.page_bytes,
                       all_bytes, file_bytes));
  }
  return fixed;
}

}  // namespace

Digest digest_of(std::span<const std::byte> bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

uint64_t checksum_of(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

std::vector<std::byte> head_bytes(const PromptHead& head) {
  std::vector<std::byte> bytes;
  const auto settings_bytes = static_cast<uint32_t>(head.owner.settings.size());
  const uint64_t n_pages = head.n_pages();
  const auto n_with_window =
      static_cast<uint64_t>(std::count(head.has_window.begin(), head.has_window.end(), uint8_t{1}));
  put(bytes, kMagic, sizeof kMagic);
  put(bytes, &kVersion, 1);
  put(bytes, &settings_bytes, 1);
  put(bytes, &n_pages, 1);
  put(bytes, &head.owner.page_bytes, 1);
  put(bytes, head.owner.model.data(), 2);
  put(bytes, head.salt.data(), 2);
  put(bytes, &head.owner.window_bytes, 1);
  put(bytes, &n_with_window, 1);
  put(bytes, head.owner.settings.data(), settings_bytes);
  put(bytes, head.tokens.data(), head.tokens.size());
  put(bytes, head.checksums.data(), n_pages);
  put(bytes, head.has_window.data(), n_pages);
  const uint64_t checksum = checksum_of(bytes);
  put(bytes, &checksum, 1);
  return bytes;
}

uint64_t head_size(std::span<const std::byte> begin, uint64_t file_bytes) {
  return parse_fixed(begin, file_bytes).head_bytes;
}

PromptHead parse_head(std::span<const std::byte> bytes, uint64_t file_bytes) {
  const Fixed fixed = parse_fixed(bytes, file_bytes);
  if (bytes.size() < fixed.head_bytes)
    refuse(fmt::format("a head of {} bytes, found {}", fixed.head_bytes, bytes.size()));
  const size_t before = fixed.head_bytes - sizeof(uint64_t);
  if (checksum_of(bytes.first(before)) != get<uint64_t>(bytes, before))
    refuse("its head is damaged: the checksum does not fit");
  PromptHead head;
  head.owner.page_bytes = fixed.page_bytes;
  head.owner.window_bytes = fixed.window_bytes;
  std::memcpy(head.owner.model.data(), bytes.data() + 32, sizeof head.owner.model);
  std::memcpy(head.salt.data(), bytes.data() + 48, sizeof head.salt);
  size_t at = kPromptFixedBytes;
  head.owner.settings.assign(reinterpret_cast<const char*>(bytes.data() + at), fixed.settings_bytes);
  at += fixed.settings_bytes;
  head.tokens.resize(fixed.n_pages * kPagePositions);
  std::memcpy(head.tokens.data(), bytes.data() + at, head.tokens.size() * sizeof(TokenId));
  at += head.tokens.size() * sizeof(TokenId);
  head.checksums.resize(fixed.n_pages);
  std::memcpy(head.checksums.data(), bytes.data() + at, fixed.n_pages * sizeof(uint64_t));
  at += fixed.n_pages * sizeof(uint64_t);
  head.has_window.resize(fixed.n_pages);
  std::memcpy(head.has_window.data(), bytes.data() + at, fixed.n_pages);
  const auto n_ones = static_cast<uint64_t>(std::count(head.has_window.begin(), head.has_window.end(), uint8_t{1}));
  const auto n_zeros = static_cast<uint64_t>(std::count(head.has_window.begin(), head.has_window.end(), uint8_t{0}));
  if (n_ones != fixed.n_with_window || n_ones + n_zeros != fixed.n_pages) {
    refuse(fmt::format("{} of {} pages with windows, {} without, where {} were said to have them", n_ones,
                       fixed.n_pages, n_zeros, fixed.n_with_window));
  }
  return head;
}

}  // namespace assay::pages
