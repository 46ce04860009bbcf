// A saved prompt's head: written and read back, and refused wherever a byte is not what it should be.
#include "pages/prompt_file.h"

#include <gtest/gtest.h>

#include "assay/error.h"
#include "pages/page_tables.h"

namespace assay::pages {
namespace {

PromptHead sample() {
  PromptHead head;
  head.owner = {{1, 2}, "exact/15 K f16 V f16", 1000, 300};
  head.salt = {3, 4};
  for (int i = 0; i < 3 * kPagePositions; ++i) head.tokens.push_back(i * 7);
  head.checksums = {11, 12, 13};
  head.has_window = {1, 0, 1};
  return head;
}

TEST(PromptFile, WrittenAndReadBack) {
  const PromptHead head = sample();
  const std::vector<std::byte> bytes = head_bytes(head);
  const uint64_t file_bytes = bytes.size() + 2 * 1000 + 700;
  EXPECT_EQ(head_size(bytes, file_bytes), bytes.size());
  const PromptHead back = parse_head(bytes, file_bytes);
  EXPECT_EQ(back.owner, head.owner);
  EXPECT_EQ(back.salt, head.salt);
  EXPECT_EQ(back.tokens, head.tokens);
  EXPECT_EQ(back.checksums, head.checksums);
  EXPECT_EQ(back.has_window, head.has_window);
  EXPECT_EQ(back.image_bytes(0), 1000u);
  EXPECT_EQ(back.image_bytes(1), 700u);
}

TEST(PromptFile, EveryDamagedByteIsNoticed) {
  const std::vector<std::byte> whole = head_bytes(sample());
  const uint64_t file_bytes = whole.size() + 2 * 1000 + 700;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<std::byte> bytes = whole;
    bytes[i] ^= std::byte{0x10};
    EXPECT_THROW(parse_head(bytes, file_bytes), Error) << "byte " << i;
  }
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(parse_head(std::span(whole).first(n), file_bytes), Error) << n << " bytes";
  EXPECT_THROW(parse_head(whole, file_bytes - 1), Error);
  EXPECT_THROW(head_size({}, 0), Error);
}

}  // namespace
}  // namespace assay::pages
