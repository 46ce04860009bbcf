#include "store/background_blocks.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace assay::store {
namespace {

BackgroundBlocks::Block block_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const BackgroundBlocks::Block& block) {
  std::string text;
  for (const std::byte byte : *block) text += static_cast<char>(byte);
  return text;
}

TEST(BackgroundBlocks, AreTakenInTheirOrderAndAsManyAsCome) {
  std::string taken;
  BackgroundBlocks blocks([&](const BackgroundBlocks::Block& block) { taken += text_of(block).substr(0, 3); });
  blocks.wait();
  EXPECT_EQ(taken, "");
  std::string expected;
  const std::string large(5 << 20, 'x');  // more than may wait
  for (const std::string& text : {std::string("one"), std::string("two"), large, large, large, std::string("end")}) {
    blocks.add(block_of(text));
    expected += text.substr(0, 3);
  }
  blocks.wait();
  EXPECT_EQ(taken, expected);
}

TEST(BackgroundBlocks, BytesThatComeWhileOthersAreAtWorkAreJoined) {
  std::string taken;
  size_t n_blocks = 0;
  BackgroundBlocks blocks([&](const BackgroundBlocks::Block& block) { taken += text_of(block), ++n_blocks; });
  std::string expected;
  for (int i = 0; i < 10'000; ++i) {
    const std::string text = std::to_string(i);
    blocks.add(bytes_of(text));
    if (i % 1000 == 0) blocks.add(block_of("-"));
    expected += text + (i % 1000 == 0 ? "-" : "");
  }
  blocks.add(bytes_of(""));
  blocks.wait();
  EXPECT_EQ(taken, expected);
  EXPECT_LE(n_blocks, 10'010u);
}

TEST(BackgroundBlocks, AFailureIsTheCallersUntilItIsForgotten) {
  std::string taken;
  BackgroundBlocks blocks([&](const BackgroundBlocks::Block& block) {
    if (text_of(block) == "bad") throw std::runtime_error("cannot be taken");
    taken += text_of(block);
  });
  blocks.add(block_of("good "));
  blocks.add(block_of("bad"));
  EXPECT_THROW(blocks.wait(), std::runtime_error);
  EXPECT_THROW(blocks.wait(), std::runtime_error);
  EXPECT_THROW(blocks.add(block_of("never")), std::runtime_error);
  blocks.forget();
  blocks.add(block_of("again"));
  blocks.wait();
  EXPECT_EQ(taken, "good again");
}

TEST(BackgroundBlocks, EndWithoutWhatStillWaits) {
  BackgroundBlocks blocks([](const BackgroundBlocks::Block&) {});
  for (int i = 0; i < 20; ++i) blocks.add(block_of(std::string(1 << 20, 'x')));
}

}  // namespace
}  // namespace assay::store
