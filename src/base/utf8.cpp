// UTF-8 decoding and encoding. Source: The Unicode Standard, chapter 3.9, table 3-7.
#include "base/utf8.h"

#include <algorithm>
#include <array>

namespace assay::base {
namespace {

// The bytes allowed second after a lead byte, and how many bytes follow in all.
struct Lead {
  int length = 0;  // 0: no lead byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
  uint8_t code_bits = 0;
};

constexpr Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0, byte};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2, 0x80, 0xBF, static_cast<uint8_t>(byte & 0x1F)};
  const auto low = static_cast<uint8_t>(byte & 0x0F);
  if (byte < 0xF0) {
    return {3, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80), static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF), low};
  }
  if (byte < 0xF5) {
    return {4, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80), static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF), low};
  }
  return {};
}

constexpr std::array<Lead, 256> all_leads() {
  std::array<Lead, 256> all{};
  for (int byte = 0; byte < 256; ++byte) all[byte] = lead_of(static_cast<uint8_t>(byte));
  return all;
}
constexpr std::array<Lead, 256> kLeads = all_leads();

inline Char decoded(std::string_view text, size_t at) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead& lead = kLeads[byte(at)];
  if (lead.length == 0) return {};
  uint32_t code = lead.code_bits;
  for (int i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {CharState::cut_short, kReplacementChar, i};
    const uint8_t next = byte(at + i);
    const bool allowed = i == 1 ? next >= lead.second_min && next <= lead.second_max : (next & 0xC0) == 0x80;
    if (!allowed) return {CharState::broken, kReplacementChar, i};
    code = (code << 6) | (next & 0x3F);
  }
  return {CharState::whole, code, lead.length};
}

constexpr size_t kBlockBytes = 4096;

// Table 3-7 of the standard as a rule for one byte and the three before it, so that the compiler can look at many
// places at once: a byte follows where, and only where, a lead byte asks for it; the second byte of some leads has a
// narrower range; some bytes never occur.
inline uint8_t is_broken(const uint8_t* at) noexcept {
  const uint8_t byte = at[0], before = at[-1];
  const uint8_t is_asked_for = (before >= 0xC0) | (at[-2] >= 0xE0) | (at[-3] >= 0xF0);
  const uint8_t follows = (byte & 0xC0) == 0x80;
  const uint8_t never = (byte == 0xC0) | (byte == 0xC1) | (byte >= 0xF5);
  const uint8_t out_of_range = ((before == 0xE0) & (byte < 0xA0)) | ((before == 0xED) & (byte > 0x9F)) |
                               ((before == 0xF0) & (byte < 0x90)) | ((before == 0xF4) & (byte > 0x8F));
  return (is_asked_for ^ follows) | never | out_of_range;
}

}  // namespace

Char char_at(std::string_view text, size_t at) noexcept { return decoded(text, at); }

bool is_utf8(std::string_view text) noexcept {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const size_t n = text.size();
  uint8_t padded[6] = {};  // what stands before a text counts as ASCII
  for (size_t i = 0; i < 3 && i < n; ++i) padded[3 + i] = bytes[i];
  for (size_t i = 0; i < 3 && i < n; ++i) {
    if (is_broken(padded + 3 + i)) return false;
  }
  for (size_t begin = 3; begin < n; begin += kBlockBytes) {
    const size_t end = std::min(n, begin + kBlockBytes);
    uint8_t high = 0;
    for (size_t i = begin - 3; i < end; ++i) high |= bytes[i];
    if (high < 0x80) continue;
    uint8_t broken = 0;
    for (size_t i = begin; i < end; ++i) broken |= is_broken(bytes + i);
    if (broken != 0) return false;
  }
  const auto last = [&](size_t i) { return n < i ? 0 : bytes[n - i]; };
  return last(1) < 0xC0 && last(2) < 0xE0 && last(3) < 0xF0;  // no character is cut short
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto follow = [&](int shift) { put(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    follow(0);
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    follow(6);
    follow(0);
  } else {
    put(0xF0 | (code >> 18));
    follow(12);
    follow(6);
    follow(0);
  }
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  size_t at = 0;
  while (at < text.size()) {
    const Char c = decoded(text, at);
    if (c.state == CharState::whole) {
      out.append(text, at, c.length);
      at += c.length;
    } else {
      append_utf8(out, kReplacementChar);
      at += 1;
    }
  }
  return out;
}

}  // namespace assay::base
