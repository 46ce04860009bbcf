// Ids equal to Hugging Face's tokenizers on 12,000 random and nasty texts, for SmolLM2's vocabulary
// (tests/data/make_tokenizer_data.py).
#include <gtest/gtest.h>

#include <iostream>

#include "assay/tokenizer.h"
#include "support/byte_reader.h"
#include "support/shared_data.h"

namespace assay {
namespace {

TEST(HuggingFace, SmolLm2) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  const auto tokenizer = Tokenizer::load(test::smollm2());
  test::ByteReader in(test::data("tokenizers/smollm2.bin"));
  int n_texts = 0;
  int n_wrong = 0;
  for (; !in.at_end(); ++n_texts) {
    const std::string text = in.string(in.u16());
    EncodeOptions options;
    options.parse_special = in.u8() != 0;
    std::vector<TokenId> expected(in.u16());
    for (TokenId& id : expected) id = static_cast<TokenId>(in.u16());
    if (tokenizer->encode(text, options) == expected) continue;
    if (++n_wrong <= 5) {
      EXPECT_EQ(tokenizer->encode(text, options), expected) << ::testing::PrintToString(text);
    }
  }
  EXPECT_EQ(n_wrong, 0);
  EXPECT_GE(n_texts, 10000);
  std::cout << n_texts << " texts compared\n";
}

}  // namespace
}  // namespace assay
