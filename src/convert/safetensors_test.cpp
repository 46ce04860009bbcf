// Safetensors and JSON from strangers: one line that names the fault, and nothing else happens.
#include "convert/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>

#include "assay/error.h"
#include "convert/json.h"
#include "programs/patience.h"

namespace assay::converting {
namespace {

// Of 0.1 s of processor time on a machine of its own: shared ones take several times as much, what grows with the size
// far more.
constexpr double kSlack = 20 * test::kPatience;

std::string file_of(const std::string& header, size_t n_data, std::optional<uint64_t> length = std::nullopt) {
  const uint64_t n = length.value_or(header.size());
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes + header + std::string(n_data, '\1');
}

std::vector<StoredTensor> read(const std::string& bytes) {
  return read_safetensors(std::as_bytes(std::span(bytes)), "x");
}

std::string refusal(const std::string& bytes) {
  try {
    read(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_file);
    return error.what();
  }
  return "taken";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

TEST(Safetensors, TensorsInTheOrderOfTheirData) {
  const auto tensors = read(
      file_of(fmt::format(R"({{"__metadata__":{{"format":"pt"}},{},{},{}}}  )", entry("b", "F32", "[2,2]", "[4,20]"),
                          entry("a", "BF16", "[2]", "[0,4]"), entry("c", "I64", "[]", "[20,28]")),
              28));
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, tensor::DType::BF16);
  EXPECT_EQ(tensors[1].rows(), 2);
  EXPECT_EQ(tensors[1].data.size(), 16u);
  EXPECT_FALSE(tensors[2].dtype);
  EXPECT_TRUE(tensors[2].shape.empty());
}

TEST(Safetensors, WhatContradictsItselfIsNamed) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets, size_t n_data) {
    return refusal(file_of(fmt::format("{{{}}}", entry("t", dtype, shape, offsets)), n_data));
  };
  struct Case {
    std::string found;
    const char* says;
  };
  const Case cases[] = {
      {refusal("1234"), "begins with 8 bytes"},
      {refusal(file_of("{}", 0, ~uint64_t{0})), "a header of 18446744073709551615 bytes"},
      {refusal(file_of("{}", 0, 99)), "a header of 99 bytes"},
      {refusal(file_of("[]", 0)), "needs an object"},
      {refusal(file_of("{} x", 0)), "something follows"},
      {refusal(file_of("{}", 4)), "its tensors end at 0"},
      {one("F32", "[1]", "[0,4]", 8), "its tensors end at 4"},
      {one("F32", "[2]", "[0,4]", 4), "needs 8 bytes of F32"},
      {one("F32", "[1]", "[4,0]", 4), "bytes 4 to 0"},
      {one("F32", "[1]", "[0,400]", 4), "bytes 0 to 400"},
      {one("F32", "[1]", "[4,8]", 8), "begins at byte 4"},
      {one("F32", "[-1]", "[0,4]", 4), "whole number"},
      {one("F32", "[4611686018427387904,4611686018427387904]", "[0,0]", 0), "beyond 2^59"},
      {one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]", 4), "more than 8 dimensions"},
      {one("F4", "[1]", "[0,0]", 0), "no whole number of"},
      {one("F31", "[1]", "[0,4]", 4), "has the type 'F31'"},
      {one("F32", "[1]", "[0,4,8]", 4), "more than two data_offsets"},
      {one("F32", "[1]", "[0]", 4), "needs dtype, shape and two"},
      {one("F32", "[1]", "[0,18446744073709551616]", 4), "whole number"},
      {refusal(
           file_of(fmt::format("{{{},{}}}", entry("t", "F32", "[1]", "[0,4]"), entry("t", "F32", "[1]", "[4,8]")), 8)),
       "have the name 't'"},
      {refusal(
           file_of(fmt::format("{{{},{}}}", entry("t", "F32", "[1]", "[0,4]"), entry("u", "F32", "[1]", "[2,6]")), 6)),
       "neither overlap"},
      {refusal(file_of("{\"t\":{\"dtype\":\"F32\",\"more\":1}}", 0)), "has a member 'more'"},
      {refusal(file_of("{\"\":{}}", 0)), "name has 0 bytes"},
  };
  for (const Case& c : cases) EXPECT_NE(c.found.find(c.says), std::string::npos) << c.found << "\n  needs: " << c.says;
}

// Refused before memory or time is spent on what the header announces: in one line, in a tenth of a second of this
// thread's time.
TEST(Safetensors, LargeHeadersAreRefusedAtOnce) {
  std::string many = "{";
  for (int i = 0; i < 1'000'000; ++i)
    many += fmt::format("{}\"t{}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", i == 0 ? "" : ",", i);
  many += "}";
  struct Case {
    std::string bytes;
    const char* says;
  };
  const Case cases[] = {
      {file_of("{}", 0, ~uint64_t{0}), "needs at most 100000000"},
      {file_of("{}", 0, 100'000'001), "needs at most 100000000"},
      {file_of("{\"t\":" + std::string(10'000, '[') + std::string(10'000, ']') + "}", 0), "needs an object"},
      {file_of("{\"__metadata__\":" + std::string(10'000, '{'), 0), "needs"},
      {file_of(many, 0), "more than 65536 tensors"},
      {file_of("{\"" + std::string(100'000, 'x') + "\":{}}", 0), "name has 100000 bytes"},
  };
  for (const Case& c : cases) {
    const std::clock_t begun = std::clock();
    const std::string found = refusal(c.bytes);
    const double seconds = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
    EXPECT_NE(found.find(c.says), std::string::npos) << found << "\n  needs: " << c.says;
    EXPECT_EQ(found.find('\n'), std::string::npos) << found;
    EXPECT_LT(found.size(), 400u) << found;
    EXPECT_LT(seconds, 0.1 * kSlack) << c.says;
  }
}

TEST(Safetensors, EveryPrefixOfAFileIsRefused) {
  const std::string whole = file_of(fmt::format("{{{}}}", entry("t", "F32", "[2]", "[0,8]")), 8);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal(whole.substr(0, n)), "taken") << n;
  EXPECT_EQ(read(whole).size(), 1u);
}

TEST(Json, StrictAndBounded) {
  const auto problem = [](const std::string& text) -> std::string {
    try {
      Json::parse(text, "x");
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_NE(problem(std::string(10000, '[')).find("nested deeper than 64"), std::string::npos);
  for (const char* bad : {"",
                          "{",
                          "[1,]",
                          "{\"a\":1,}",
                          "01",
                          "1.",
                          "1e",
                          "-",
                          "nul",
                          "\"\\x\"",
                          "\"\\ud800\"",
                          "\"\\udc00\"",
                          "\"\\ud800\\u0041\"",
                          "\"\n\"",
                          "\"\xff\"",
                          "1 2",
                          "{\"a\":1,\"a\":2}",
                          "{a:1}",
                          "1e999",
                          "NaN",
                          "\xef\xbb\xbf{}"}) {
    EXPECT_NE(problem(bad), "taken") << bad;
  }
  const Json json =
      Json::parse(R"( {"a": [1, -2.5e1, true, null], "b": "\ud83d\ude00\u00e9\n", "c": 9223372036854775808} )", "x");
  ASSERT_EQ(json.find("a")->array()->size(), 4u);
  EXPECT_EQ((*json.find("a")->array())[0].number()->integer, 1);
  EXPECT_EQ((*json.find("a")->array())[1].number()->value, -25.0);
  EXPECT_EQ(json.text("b"), "\xF0\x9F\x98\x80\xC3\xA9\n");
  EXPECT_FALSE(json.find("c")->number()->integer);
}

}  // namespace
}  // namespace assay::converting
