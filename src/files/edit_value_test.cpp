#include "files/edit_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "assay/edit.h"
#include "assay/error.h"

namespace assay::files {
namespace {

using gguf::Value;
using gguf::ValueType;
using ::testing::HasSubstr;

std::string refusal(ValueType type, bool is_array, std::string_view text) {
  try {
    parse_value("k", type, is_array, text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_request);
    return e.what();
  }
  return "nothing was thrown";
}

TEST(EditValue, EveryType) {
  EXPECT_EQ(parse_value("k", ValueType::u8, false, "255"), Value::of(uint8_t{255}));
  EXPECT_EQ(parse_value("k", ValueType::i8, false, "-128"), Value::of(int8_t{-128}));
  EXPECT_EQ(parse_value("k", ValueType::u64, false, "18446744073709551615"), Value::of(~uint64_t{0}));
  EXPECT_EQ(parse_value("k", ValueType::f32, false, "1e-5"), Value::of(1e-5f));
  EXPECT_EQ(parse_value("k", ValueType::f64, false, "0.1"), Value::of(0.1));
  EXPECT_EQ(parse_value("k", ValueType::boolean, false, "true"), Value::of(true));
  EXPECT_EQ(parse_value("k", ValueType::string, false, "[1,2]"), Value::of("[1,2]"));
  EXPECT_EQ(parse_value("k", ValueType::i32, false, " [1, -2,3 ]"), Value::of(std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(parse_value("k", ValueType::f32, true, "[]"), Value::of(std::vector<float>{}));
  const std::vector<std::string> texts = {"a,b", "\"", "\xc3\xa9"};
  EXPECT_EQ(parse_value("k", ValueType::string, true, "[\"a,b\", \"\\\"\", \"\\u00e9\"]"),
            Value::of(std::span<const std::string>(texts)));
}

TEST(EditValue, NothingIsGuessed) {
  EXPECT_THAT(refusal(ValueType::u8, false, "256"), HasSubstr("'k': '256' is no u8"));
  EXPECT_THAT(refusal(ValueType::u8, false, "-1"), HasSubstr("is no u8"));
  EXPECT_THAT(refusal(ValueType::u32, false, "7 "), HasSubstr("is no u32"));
  EXPECT_THAT(refusal(ValueType::u32, false, ""), HasSubstr("is no u32"));
  EXPECT_THAT(refusal(ValueType::i32, false, "0x10"), HasSubstr("is no i32"));
  EXPECT_THAT(refusal(ValueType::f32, false, "nan"), HasSubstr("is no f32"));
  EXPECT_THAT(refusal(ValueType::f32, false, "1e60"), HasSubstr("is no f32"));
  EXPECT_THAT(refusal(ValueType::boolean, false, "1"), HasSubstr("is no bool"));
  EXPECT_THAT(refusal(ValueType::i32, false, "[1,,2]"), HasSubstr("is no i32"));
  EXPECT_THAT(refusal(ValueType::i32, false, "[1,]"), HasSubstr("is no i32"));
  EXPECT_THAT(refusal(ValueType::i32, true, "1"), HasSubstr("is no array"));
  EXPECT_THAT(refusal(ValueType::i32, true, "[1"), HasSubstr("is no array"));
  EXPECT_THAT(refusal(ValueType::string, true, "[1]"), HasSubstr("is no array of strings"));
  EXPECT_THAT(refusal(ValueType::string, true, "[\"a\""), HasSubstr("is no array of strings"));
}

TEST(EditValue, IsShownShort) {
  EXPECT_EQ(shown_value(Value::of(uint32_t{7})), "u32 7");
  EXPECT_EQ(shown_value(Value::of(std::vector<int32_t>{1, 2, 3, 4, 5, 6})), "array of 6 i32 [1, 2, 3, 4, ...]");
  EXPECT_LT(shown_value(Value::of(std::string(100'000, 'x'))).size(), 200u);
}

TEST(ParseSet, SplitsKeyTypeAndValue) {
  const Edit plain = parse_set("general.name=a:b=c");
  EXPECT_EQ(plain.kind, Edit::Kind::set);
  EXPECT_EQ(plain.key, "general.name");
  EXPECT_EQ(plain.value, "a:b=c");
  const Edit typed = parse_set("k=i32:[1,2]");
  EXPECT_EQ(typed.kind, Edit::Kind::set_typed);
  EXPECT_EQ(typed.type, "i32");
  EXPECT_EQ(typed.value, "[1,2]");
  EXPECT_EQ(parse_set("k=str:u32:7").value, "u32:7");
  for (const char* bad : {"", "k", "=1"}) EXPECT_THROW(parse_set(bad), Error) << bad;
  for (const char* bad : {"", "a", "=b", "a="}) EXPECT_THROW(parse_rename(bad), Error) << bad;
  EXPECT_EQ(parse_rename("a=b").value, "b");
}

}  // namespace
}  // namespace assay::files
