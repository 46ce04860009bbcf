// Pre-tokenizers against Hugging Face's engine, piece by piece (tests/data/make_tokenizer_data.py).
#include "text/splitter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "assay/error.h"
#include "support/byte_reader.h"
#include "support/shared_data.h"

namespace assay::text {
namespace {

std::vector<std::string> pieces(std::string_view name, std::string_view text) {
  std::vector<std::string> all;
  uint32_t begin = 0;
  for (const uint32_t end : Splitter(*find_pre_tokenizer(name)).split(text)) {
    all.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return all;
}

TEST(Splitter, EqualsHuggingFaceForEveryKindOfExpression) {
  test::ByteReader in(test::data("tokenizers/splits.bin"));
  std::vector<std::string> texts(in.u16());
  for (auto& text : texts) text = in.string(in.u16());
  int n_names = 0;
  for (; !in.at_end(); ++n_names) {
    const std::string name = in.string(in.u8());
    const auto rules = find_pre_tokenizer(name);
    ASSERT_TRUE(rules) << name;
    const Splitter splitter(*rules);
    int n_wrong = 0;
    for (const std::string& text : texts) {
      std::vector<uint32_t> expected(in.u16());
      uint32_t end = 0;
      for (auto& one : expected) one = end += in.u16();
      if (splitter.split(text) != expected && ++n_wrong <= 3) {
        EXPECT_EQ(splitter.split(text), expected) << name << ": " << ::testing::PrintToString(text);
      }
    }
    EXPECT_EQ(n_wrong, 0) << name;
  }
  EXPECT_EQ(n_names, 26);
}

TEST(Splitter, EveryNameCompilesAndKeepsTheText) {
  const std::string text = "It's 12345 o'CLOCK\n\n  in Straße 中文字 \r\n 1234x <sentinel:1>\t\tIMGIMGABZ e\u0301!?/ ";
  for (const std::string_view name : pre_tokenizer_names()) {
    const auto ends = Splitter(*find_pre_tokenizer(name)).split(text);
    ASSERT_FALSE(ends.empty()) << name;
    EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end())) << name;
    EXPECT_EQ(ends.back(), text.size()) << name;
  }
  EXPECT_TRUE(Splitter(*find_pre_tokenizer("gpt-2")).split("").empty());
}

TEST(Splitter, NamesAreThoseOfTheList) {
  EXPECT_FALSE(find_pre_tokenizer("no-such"));
  EXPECT_FALSE(find_pre_tokenizer(""));
  EXPECT_FALSE(find_pre_tokenizer("llama3 llama-v3"));
  EXPECT_TRUE(find_pre_tokenizer("llama-bpe")->adds_bos);
  EXPECT_TRUE(find_pre_tokenizer("tekken")->ignores_merges);
  EXPECT_FALSE(find_pre_tokenizer("qwen2")->ignores_merges);
  EXPECT_GE(pre_tokenizer_names().size(), 80u);
}

TEST(Splitter, DeepseekLlm) {  // by hand: the language of its expressions
  using P = std::vector<std::string>;
  EXPECT_EQ(pieces("deepseek-llm", "Hello, World 123\n  x  "),
            (P{"Hello", ",", " World", " ", "123", "\n", " ", " x", "  "}));
  EXPECT_EQ(pieces("deepseek-llm", "中文abc\r\n"), (P{"中文", "abc", "\r", "\n"}));
}

}  // namespace
}  // namespace assay::text
