// PNG as ISO/IEC 15948 has it, its data in stored blocks of RFC 1950 and 1951.
#include "report/png.h"

#include <algorithm>

namespace assay::verify {
namespace {

constexpr size_t kStoredBlockMax = 65535;

void append_u32(std::string& out, uint32_t x) {  // big-endian
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(static_cast<uint8_t>(x >> shift));
}

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  return ~crc;
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

std::string zlib_stored(std::string_view bytes) {
  std::string out = "\x78\x01";
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min(kStoredBlockMax, bytes.size() - at);
    const bool is_last = at + n == bytes.size();
    out += static_cast<char>(is_last ? 1 : 0);
    for (const size_t x : {n, ~n}) {  // little-endian, and its complement
      out += static_cast<char>(static_cast<uint8_t>(x));
      out += static_cast<char>(static_cast<uint8_t>(x >> 8));
    }
    out += bytes.substr(at, n);
    at += n;
  }
  append_u32(out, adler32(bytes));
  return out;
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_u32(out, static_cast<uint32_t>(data.size()));
  const std::string body = std::string(type) + std::string(data);
  out += body;
  append_u32(out, crc32(body));
}

}  // namespace

std::string png(std::span<const uint8_t> pixels, uint32_t width, uint32_t height, const Palette& palette) {
  std::string header, colours, rows;
  append_u32(header, width);
  append_u32(header, height);
  header += std::string("\x08\x03\x00\x00\x00", 5);  // 8 bits, palette, deflate, plain filters, not interlaced
  for (const auto& colour : palette) colours.append(colour.begin(), colour.end());
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // filter: none
    const auto row = pixels.subspan(size_t{y} * width, width);
    rows.append(row.begin(), row.end());
  }
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "PLTE", colours);
  append_chunk(out, "IDAT", zlib_stored(rows));
  append_chunk(out, "IEND", {});
  return out;
}

}  // namespace assay::verify
