// The examples of RFC 4648, and letters of both ends of the alphabet.
#include "base/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace assay::base {
namespace {

std::string of(const std::string& text) { return base64(std::as_bytes(std::span(text))); }

TEST(Base64, IsThatOfTheStandard) {
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foob"), "Zm9vYg==");
  EXPECT_EQ(of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(of(std::string("\x00\xff\xfe", 3)), "AP/+");
}

}  // namespace
}  // namespace assay::base
