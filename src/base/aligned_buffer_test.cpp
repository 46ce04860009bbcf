#include "base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <string>

#include "assay/error.h"

namespace assay::base {
namespace {

TEST(AlignedBuffer, IsAlignedZeroAndWritable) {
  for (uint64_t bytes : {1u, 63u, 4096u, 100'000u, 5'000'000u}) {
    AlignedBuffer buffer(bytes, "test");
    if (bytes % 2 == 0) buffer.advise_huge_pages();
    ASSERT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment, 0u);
    for (std::byte& b : buffer.bytes()) {
      ASSERT_EQ(b, std::byte{0});
      b = std::byte{7};
    }
  }
}

TEST(AlignedBuffer, TakesOnlyWhatIsTouched) {
  const uint64_t bytes = memory_total_bytes() / 2;
  AlignedBuffer buffer(bytes, "test");
  buffer.data()[0] = std::byte{1};
  buffer.data()[bytes - 1] = std::byte{2};
  EXPECT_GT(memory_available_bytes(), 0u);
}

TEST(AlignedBuffer, SaysWhatIsNeededAndWhatThereIs) {
  try {
    AlignedBuffer buffer(uint64_t{1} << 62, "the KV cache");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("the KV cache needs 4611686018427387904 bytes"), std::string::npos)
        << error.what();
  }
}

TEST(AlignedBuffer, Moves) {
  AlignedBuffer a(100, "test");
  a.data()[5] = std::byte{9};
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: the state after a move is part of the test
  EXPECT_EQ(b.data()[5], std::byte{9});
  AlignedBuffer none(0, "test");
  none = std::move(b);
  EXPECT_EQ(none.size(), 100u);
}

}  // namespace
}  // namespace assay::base
