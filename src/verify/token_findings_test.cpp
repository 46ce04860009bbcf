// Prompts that another engine cut differently (C1 to C7 of the catalogue) are named with their
// first position and the reason.
#include "verify/token_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/shared_data.h"

namespace assay::verify {
namespace {

using testing::HasSubstr;

class TokenFindings : public testing::Test {
 protected:
  void load(const char* name) {
    const auto path = test::shared(std::string("vectors/tokenizers/ggml-vocab-") + name + ".gguf");
    ASSAY_REQUIRE_FILE(path);
    tokenizer_ = Tokenizer::load(path.string());
  }
  std::vector<TokenId> ids(std::string_view text, bool special = false) const {
    EncodeOptions options;
    options.parse_special = special;
    return tokenizer_->encode(text, options);
  }
  std::string explained(std::string_view text, const std::vector<TokenId>& found) const {
    const auto encode = [&](std::string_view t, const EncodeOptions& options) {
      return tokenizer_->encode(t, options);
    };
    return explain_tokens(*tokenizer_, encode, text, found).value_or("");
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
};

constexpr std::string_view kText = "Hello world, 3333+777";

TEST_F(TokenFindings, TheSameIdsAreNone) {
  load("llama-spm");
  if (!tokenizer_) return;
  EXPECT_EQ(explained(kText, ids(kText)), "");
  EXPECT_EQ(explained("<s>a", ids("<s>a", true)), "");  // with its special tokens parsed, too
  EXPECT_EQ(explained("<s>a", ids("<s>a", false)), "");
  std::vector<TokenId> longer = ids(kText);
  longer.push_back(13);
  EXPECT_EQ(explained(kText, longer), "");  // what was generated after it
}

TEST_F(TokenFindings, BosTwiceAndMissing) {
  load("llama-spm");
  if (!tokenizer_) return;
  std::vector<TokenId> found = ids(kText);
  ASSERT_EQ(found.front(), *tokenizer_->bos());
  found.insert(found.begin(), found.front());
  EXPECT_THAT(explained(kText, found), AllOf(HasSubstr("position 1:"), HasSubstr("more than once")));
  found.erase(found.begin(), found.begin() + 2);
  EXPECT_THAT(explained(kText, found), AllOf(HasSubstr("position 0:"), HasSubstr("leaves out the BOS")));
}

TEST_F(TokenFindings, ABosThatTheFileDoesNotAskFor) {
  load("qwen2");
  if (!tokenizer_) return;
  ASSERT_FALSE(tokenizer_->adds_bos());
  ASSERT_TRUE(tokenizer_->bos());
  std::vector<TokenId> found = ids(kText);
  found.insert(found.begin(), *tokenizer_->bos());
  EXPECT_THAT(explained(kText, found), HasSubstr("a BOS that this file's rules do not add"));
}

TEST_F(TokenFindings, TheBlankBeforeTheFirstWord) {
  load("llama-spm");
  if (!tokenizer_) return;
  std::vector<TokenId> found = ids(kText);  // <s>, "▁Hello", ...
  const std::optional<TokenId> bare = tokenizer_->find("Hello");
  ASSERT_TRUE(bare);
  ASSERT_NE(found.at(1), *bare);
  found.at(1) = *bare;
  EXPECT_THAT(explained(kText, found), AllOf(HasSubstr("position 1:"), HasSubstr("leaves out the blank")));
  load("llama-bpe");
  EXPECT_THAT(explained(kText, ids(" " + std::string(kText))), HasSubstr("puts a blank before the first word"));
}

TEST_F(TokenFindings, TheSameTextCutElsewhere) {
  load("llama-bpe");
  if (!tokenizer_) return;
  std::vector<TokenId> found = ids("Hello world, 3333+77");  // digits in threes from the left; as a vocabulary without
                                                             // that rule would not
  found.clear();
  for (const char* part : {"Hello world, ", "33", "33", "+", "777"}) {
    EncodeOptions options;
    options.add_bos = found.empty();
    const std::vector<TokenId> more = tokenizer_->encode(part, options);
    found.insert(found.end(), more.begin(), more.end());
  }
  EXPECT_THAT(explained(kText, found), HasSubstr("cut at other places"));
}

TEST_F(TokenFindings, AnotherText) {
  load("llama-spm");
  if (!tokenizer_) return;
  EXPECT_THAT(explained(kText, ids("Hello there")), AllOf(HasSubstr("position 2:"), HasSubstr("another text")));
  EXPECT_THAT(explained(kText, {}), HasSubstr("position 0: the source has nothing"));
}

}  // namespace
}  // namespace assay::verify
