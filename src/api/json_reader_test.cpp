// What the reader refuses, and that it rounds numbers correctly.
#include "api/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "api/error.h"

namespace assay::api {
namespace {

using ::testing::HasSubstr;

std::string json_refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    read_json(text, limits);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    return error.what();
  }
  return "no error";
}

TEST(JsonReader, ReadsWhatIsJson) {
  const boost::json::value v =
      read_json(" {\"a\": [1, -2.5e3, true, null, \"\\u00e9\\ud83d\\ude00\"], \"b\": {\"a\": 18446744073709551615}}\n");
  EXPECT_EQ(v.at("a").at(1).as_double(), -2500);
  EXPECT_EQ(v.at("a").at(4).as_string(), "é😀");
  EXPECT_EQ(v.at("b").at("a").as_uint64(), 18446744073709551615u);
  for (const char* number : {"0.7", "0.1", "1.7976931348623157e308", "2.2250738585072014e-308", "0.30000000000000004",
                             "9007199254740993.0"}) {
    EXPECT_EQ(read_json(number).as_double(), std::stod(number)) << number;
  }
}

TEST(JsonReader, RefusesWhatTwoReadersCouldSeeTwice) {  // B79
  EXPECT_THAT(json_refusal(R"({"a": 1, "a": 2})"), HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(json_refusal(R"({"x": {"a": 1, "\u0061": 2}})"), HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(json_refusal("[1e999]"), HasSubstr("1e999 is beyond"));
  EXPECT_THAT(json_refusal("[123456789012345678901234567890]"), HasSubstr("more than 64 bits"));
  for (const char* text : {"NaN",           "[Infinity]",    "{\"a\": -Infinity}",
                           "[1,]",          "{'a': 1}",      "{a: 1}",
                           "[01]",          "[+1]",          "[.5]",
                           "[1.]",          "// x\n1",       "[1] 2",
                           "{\"a\": 1}}",   "\"\\x41\"",     "\"a\nb\"",
                           "{\"a\"",        "[\"\\ud800\"]", "[\"\\ud800\\u0041\"]",
                           "[\"\\udc00\"]", "tru",           ""}) {
    EXPECT_NE(json_refusal(text), "no error") << text;
  }
  EXPECT_THAT(json_refusal("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
  EXPECT_THAT(json_refusal("\"\xC3\x28\""), HasSubstr("no UTF-8: byte 1"));
  EXPECT_THAT(json_refusal("\"\xED\xA0\x80\""), HasSubstr("no UTF-8"));
}

TEST(JsonReader, LimitsNameThemselves) {
  EXPECT_EQ(json_refusal(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_THAT(json_refusal(std::string(100'000, '[')), HasSubstr("deeper than 64"));
  std::string object;
  for (int i = 0; i < 100'000; ++i) object += "{\"a\":";
  EXPECT_THAT(json_refusal(object), HasSubstr("deeper than 64"));
  EXPECT_THAT(json_refusal("[1,2,3]", {.depth_max = 64, .n_values_max = 3}), HasSubstr("more than 3 values"));
}

}  // namespace
}  // namespace assay::api
