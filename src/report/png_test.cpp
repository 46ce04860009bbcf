// PNG as its standard has it.
#include "report/png.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/base64.h"

namespace assay::verify {
namespace {

std::string base64(const std::string& bytes) { return base::base64(std::as_bytes(std::span(bytes))); }

uint32_t u32_at(const std::string& bytes, size_t at) {
  uint32_t x = 0;
  for (size_t i = 0; i < 4; ++i) x = x << 8 | static_cast<uint8_t>(bytes[at + i]);
  return x;
}

TEST(Png, HoldsItsPixelsInStoredBlocks) {
  Palette palette{};
  palette[7] = {1, 2, 3};
  std::vector<uint8_t> pixels(300 * 400);  // more than one block
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7 % 251);
  const std::string image = png(pixels, 300, 400, palette);
  ASSERT_EQ(image.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(u32_at(image, 8), 13u);
  EXPECT_EQ(image.substr(12, 4), "IHDR");
  EXPECT_EQ(u32_at(image, 16), 300u);
  EXPECT_EQ(u32_at(image, 20), 400u);
  EXPECT_EQ(image.substr(37, 4), "PLTE");
  EXPECT_EQ(image.substr(41 + 21, 3), "\x01\x02\x03");
  const size_t data = 41 + 768 + 4;
  EXPECT_EQ(image.substr(data + 4, 4), "IDAT");
  const size_t length = u32_at(image, data);
  const std::string stream = image.substr(data + 8, length);
  std::string rows;
  for (size_t at = 2;;) {
    const bool is_last = stream[at] == 1;
    const size_t n = static_cast<uint8_t>(stream[at + 1]) | static_cast<size_t>(static_cast<uint8_t>(stream[at + 2]))
                                                                << 8;
    EXPECT_EQ((static_cast<uint8_t>(stream[at + 3]) ^ static_cast<uint8_t>(stream[at + 1])), 0xff);
    rows += stream.substr(at + 5, n);
    at += 5 + n;
    if (is_last) break;
  }
  ASSERT_EQ(rows.size(), 301u * 400u);
  for (size_t y = 0; y < 400; ++y) {
    ASSERT_EQ(rows[y * 301], 0);
    for (size_t x = 0; x < 300; ++x) ASSERT_EQ(static_cast<uint8_t>(rows[y * 301 + 1 + x]), pixels[y * 300 + x]);
  }
  EXPECT_EQ(image.substr(image.size() - 12), std::string("\0\0\0\0IEND\xAE\x42\x60\x82", 12));
}

TEST(Png, OnePixelIsTheseBytes) {  // checksums by Python's zlib
  const uint8_t pixel = 5;
  const std::string image = png({&pixel, 1}, 1, 1, Palette{});
  EXPECT_EQ(base64(image.substr(29, 4)), "KMs0uw==");
  EXPECT_EQ(base64(image.substr(image.size() - 12 - 25, 25)), "AAAADUlEQVR4AQECAP3/AAUABwAGLkrV6g==");
}

}  // namespace
}  // namespace assay::verify
