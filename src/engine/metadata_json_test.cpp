#include "engine/metadata_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "gguf/file.h"
#include "support/gguf_writer.h"

namespace assay::engine {
namespace {

using test::Bytes;
using test::GgufWriter;

std::string json(const GgufWriter& writer, int64_t items_max = 0, bool shortened = false) {
  const Bytes bytes = writer.bytes();
  const gguf::File file = gguf::File::parse(bytes);
  const JsonValue value = metadata_json(file.metadata().entries().front(), items_max);
  EXPECT_EQ(value.shortened, shortened);
  return value.text;
}

template <class T>
std::string json_of(T value) {
  return json(GgufWriter().set("k", value));
}

TEST(MetadataJson, Scalars) {
  EXPECT_EQ(json_of(uint8_t{200}), "200");
  EXPECT_EQ(json_of(int8_t{-7}), "-7");
  EXPECT_EQ(json_of(int16_t{-300}), "-300");
  EXPECT_EQ(json_of(uint64_t{UINT64_MAX}), "18446744073709551615");
  EXPECT_EQ(json_of(int64_t{-5}), "-5");
  EXPECT_EQ(json_of(true), "true");
  EXPECT_EQ(json_of(1e-5f), "1e-05");
  EXPECT_EQ(json_of(10'000.0f), "10000");
  EXPECT_EQ(json_of(0.1), "0.1");
  EXPECT_EQ(json_of(std::numeric_limits<float>::infinity()), "\"inf\"");
  EXPECT_EQ(json_of(std::numeric_limits<double>::quiet_NaN()), "\"nan\"");
}

TEST(MetadataJson, StringsAreValidJsonWhateverTheBytes) {
  EXPECT_EQ(json_of(std::string_view("a\"b\\\n")), "\"a\\\"b\\\\\\n\"");
  EXPECT_EQ(json_of(std::string_view("x\xffy\0z", 5)), "\"x\xef\xbf\xbdy\\u0000z\"");
}

TEST(MetadataJson, ArraysAreShortened) {
  const std::vector<int32_t> numbers = {1, 2, 3, 4};
  EXPECT_EQ(json(GgufWriter().set("k", numbers)), "[1, 2, 3, 4]");
  EXPECT_EQ(json(GgufWriter().set("k", numbers), 2, true), "[1, 2]");
  EXPECT_EQ(json(GgufWriter().set("k", numbers), 4), "[1, 2, 3, 4]");
  EXPECT_EQ(json(GgufWriter().set("k", std::vector<std::string>{"a", "", "b"}), 2, true), "[\"a\", \"\"]");
  EXPECT_EQ(json(GgufWriter().set("k", std::vector<float>{})), "[]");
}

TEST(MetadataJson, NestedArrays) {
  Bytes outer;  // [[1, 2], ["x"]] with a long first item, then a scalar behind to see that nothing was lost
  test::append(outer, test::kGgufArray);
  test::append(outer, uint64_t{2});
  test::append(outer, 0u);
  test::append(outer, uint64_t{3});
  for (uint8_t i : {1, 2, 3}) test::append(outer, i);
  test::append(outer, test::kGgufString);
  test::append(outer, uint64_t{1});
  test::append(outer, std::string_view("x"));
  EXPECT_EQ(json(GgufWriter().raw_entry("k", test::kGgufArray, outer)), "[[1, 2, 3], [\"x\"]]");
  EXPECT_EQ(json(GgufWriter().raw_entry("k", test::kGgufArray, outer), 2, true), "[[1, 2], [\"x\"]]");
}

}  // namespace
}  // namespace assay::engine
