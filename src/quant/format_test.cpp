// Every format against facts: blocks and the bits they decode to, floats and the blocks they encode to.
#include "quant/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q8_0.h"
#include "support/json_facts.h"
#include "support/random_weights.h"

namespace assay::quant {
namespace {

using tensor::DType;
using test::floats_from_hex, test::format_named, test::from_hex, test::read_json, test::text;

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(Format, DecodesTheFactsBitForBit) {
  const boost::json::value facts = read_json("blocks.json");
  std::set<std::string_view> seen;
  for (const auto& [key, fact] : facts.as_object()) {
    const std::string name(key.data(), key.size());
    SCOPED_TRACE(name);
    const Format* format = format_named(name);
    ASSERT_NE(format, nullptr);
    seen.insert(tensor::traits(format->dtype).name);
    const tensor::DTypeTraits& t = tensor::traits(format->dtype);
    EXPECT_EQ(t.block_elements, fact.at("block_elements").as_int64());
    EXPECT_EQ(t.block_bytes, fact.at("block_bytes").as_int64());
    EXPECT_EQ(format->activation, t.block_elements == 256 ? Activation::a256 : Activation::a32);
    const auto& blocks = fact.at("blocks").as_array();
    const auto& values = fact.at("values").as_array();
    ASSERT_EQ(blocks.size(), values.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      SCOPED_TRACE(i);
      std::vector<std::byte> bytes = from_hex(text(blocks[i]));
      ASSERT_EQ(bytes.size(), static_cast<size_t>(t.block_bytes));
      bytes.insert(bytes.begin(), std::byte{0});  // blocks in a file are not aligned
      std::vector<float> decoded(static_cast<size_t>(t.block_elements));
      format->decode(bytes.data() + 1, decoded.data());
      EXPECT_EQ(bits_of(decoded), bits_of(floats_from_hex(text(values[i]))));
    }
  }
  EXPECT_EQ(seen.size(), 21u);
}

TEST(Format, EveryServedTypeIsListedOnce) {
  std::set<DType> seen;
  for (const Format& format : all_formats()) {
    EXPECT_TRUE(seen.insert(format.dtype).second);
    EXPECT_EQ(find_format(format.dtype), &format);
    const bool integers = format.activation != Activation::f32;
    EXPECT_EQ(format.sums != nullptr, integers);
    EXPECT_EQ(format.scales != nullptr, integers);
  }
  EXPECT_EQ(seen.size(), 24u);
  for (const DType dtype : {DType::I8, DType::I16, DType::I32, DType::I64, DType::F64})
    EXPECT_EQ(find_format(dtype), nullptr);
  for (uint32_t number = 0; number < 64; ++number) {
    const tensor::DTypeTraits* t = tensor::find_traits(number);
    if (t != nullptr && number != 24 && number != 25 && number != 26 && number != 27 && number != 28) {
      EXPECT_NE(find_format(t->dtype), nullptr) << t->name;
    }
  }
}

TEST(Format, DecodesFloats) {
  const float f32[3] = {1.5f, -0x1p-149f, 3e38f};
  const uint16_t f16[3] = {0x3E00, 0x8001, 0x7BFF};
  const uint16_t bf16[3] = {0x3FC0, 0x8001, 0x7F7F};
  float out[3];
  decode_row(*find_format(DType::F32), reinterpret_cast<const std::byte*>(f32), 3, out);
  EXPECT_EQ(std::memcmp(out, f32, sizeof(out)), 0);
  decode_row(*find_format(DType::F16), reinterpret_cast<const std::byte*>(f16), 3, out);
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -0x1p-24f);
  EXPECT_EQ(out[2], 65504.0f);
  decode_row(*find_format(DType::BF16), reinterpret_cast<const std::byte*>(bf16), 3, out);
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], std::bit_cast<float>(0x80010000u));
  EXPECT_EQ(out[2], std::bit_cast<float>(0x7F7F0000u));
}

template <class Block>
std::vector<std::byte> bytes_of(const Block& block) {
  std::vector<std::byte> bytes(sizeof(Block));
  std::memcpy(bytes.data(), &block, sizeof(Block));
  return bytes;
}

std::vector<std::byte> encode(std::string_view name, const float* x) {
  if (name == "Q4_0") return bytes_of(encode_q4_0(x));
  if (name == "Q4_1") return bytes_of(encode_q4_1(x));
  if (name == "Q5_0") return bytes_of(encode_q5_0(x));
  if (name == "Q5_1") return bytes_of(encode_q5_1(x));
  return bytes_of(encode_q8_0(x));
}

TEST(Format, EncodesTheFactsBitForBit) {
  const boost::json::value facts = read_json("encoded_blocks.json");
  const auto& floats = facts.at("floats").as_array();
  for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"}) {
    const auto& blocks = facts.at(name).as_array();
    ASSERT_EQ(blocks.size(), floats.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      SCOPED_TRACE(std::string(name) + " block " + std::to_string(i));
      EXPECT_EQ(encode(name, floats_from_hex(text(floats[i])).data()), from_hex(text(blocks[i])));
    }
  }
}

TEST(Format, EncodingComesBackWithinHalfAStep) {
  const struct {
    const char* name;
    float step;  // of the largest magnitude
  } cases[] = {{"Q4_0", 1 / 8.0f}, {"Q4_1", 2 / 15.0f}, {"Q5_0", 1 / 16.0f}, {"Q5_1", 2 / 31.0f}, {"Q8_0", 1 / 127.0f}};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> x = test::random_activations(32, seed);
    float amax = 0;
    for (const float value : x) amax = std::max(amax, std::abs(value));
    for (const auto& c : cases) {
      float back[32];
      format_named(c.name)->decode(encode(c.name, x.data()).data(), back);
      // Q4_0 and Q5_0 have no level at the far end of the other sign: a whole step there.
      for (int j = 0; j < 32; ++j) EXPECT_NEAR(back[j], x[static_cast<size_t>(j)], 1.01f * c.step * amax) << c.name;
    }
  }
}

TEST(Format, EncodersSurviveWhatIsNotFinite) {
  std::vector<float> x(32, 1.0f);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  const BlockQ8_0 poisoned = encode_q8_0(x.data());
  EXPECT_EQ(poisoned.d, 0x7E00);
  float back[32];
  format_named("Q8_0")->decode(bytes_of(poisoned).data(), back);
  for (const float value : back) EXPECT_TRUE(value != value);
  x[5] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(encode_q8_0(x.data()).d, 0x7E00);
  for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1"}) encode(name, x.data());  // no undefined behaviour
  const std::vector<float> tiny(32, 0x1p-140f);
  for (const char* name : {"Q4_0", "Q5_0", "Q8_0"}) {
    format_named(name)->decode(encode(name, tiny.data()).data(), back);
    for (const float value : back) EXPECT_EQ(value, 0.0f);
  }
}

}  // namespace
}  // namespace assay::quant
