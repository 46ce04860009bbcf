// The formats' definitions against the facts of others (blocks whose bits two other programs agree
// on), and quant/ against the definitions.
#include "verify/definitions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "quant/format.h"
#include "support/json_facts.h"
#include "support/random_weights.h"

namespace assay::verify {
namespace {

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

TEST(Definitions, GiveTheFacts) {
  int n_formats = 0;
  const boost::json::value facts = test::read_json("blocks.json");
  for (const auto& [key, fact] : facts.as_object()) {
    const std::string name(key.data(), key.size());
    SCOPED_TRACE(name);
    const quant::Format* format = test::format_named(name);
    ASSERT_NE(format, nullptr);
    ++n_formats;
    for (size_t i = 0; i < fact.at("blocks").as_array().size(); ++i) {
      const std::vector<std::byte> block = test::from_hex(test::text(fact.at("blocks").as_array()[i]));
      const std::vector<float> values = test::floats_from_hex(test::text(fact.at("values").as_array()[i]));
      for (size_t j = 0; j < values.size(); ++j) {
        const auto found = static_cast<float>(defined_value(format->dtype, block.data(), static_cast<int64_t>(j)));
        ASSERT_TRUE(same(found, values[j]))
            << "block " << i << ", element " << j << ": " << found << " against " << values[j];
      }
    }
  }
  EXPECT_EQ(n_formats, 21);
}

TEST(Definitions, EveryFormatDecodesAsItIsDefined) {
  int n_formats = 0;
  for (const quant::Format& format : quant::all_formats()) {
    const tensor::DTypeTraits& t = tensor::traits(format.dtype);
    SCOPED_TRACE(t.name);
    ASSERT_TRUE(has_definition(format.dtype));
    ++n_formats;
    constexpr int64_t kElements = 256 * 64;
    const std::vector<std::byte> row = test::random_weights(format, kElements, 7);
    std::vector<float> decoded(kElements);
    quant::decode_row(format, row.data(), kElements, decoded.data());
    for (int64_t j = 0; j < kElements; ++j) {
      const std::byte* block = row.data() + j / t.block_elements * t.block_bytes;
      ASSERT_TRUE(scales_are_finite(format.dtype, block));
      ASSERT_TRUE(same(decoded[static_cast<size_t>(j)],
                       static_cast<float>(defined_value(format.dtype, block, j % t.block_elements))))
          << j;
    }
  }
  EXPECT_EQ(n_formats, 24);
  for (const auto dtype : {tensor::DType::I8, tensor::DType::I32, tensor::DType::F64})
    EXPECT_FALSE(has_definition(dtype));
}

TEST(Definitions, ScalesThatAreNoNumbersAreSeen) {
  for (const quant::Format& format : quant::all_formats()) {
    const tensor::DTypeTraits& t = tensor::traits(format.dtype);
    if (format.dtype == tensor::DType::MXFP4) continue;  // has no such scale
    std::vector<std::byte> block(static_cast<size_t>(t.block_bytes), std::byte{0});
    EXPECT_TRUE(scales_are_finite(format.dtype, block.data())) << t.name;
    std::fill(block.begin(), block.end(), std::byte{0xFF});
    EXPECT_FALSE(scales_are_finite(format.dtype, block.data())) << t.name;
  }
}

}  // namespace
}  // namespace assay::verify
