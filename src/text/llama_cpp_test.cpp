// Ids and end-of-generation tokens equal to llama.cpp's (tests/data/make_llama_cpp_ids.cpp), with
// special tokens parsed and not.
#include <gtest/gtest.h>

#include "assay/tokenizer.h"
#include "support/byte_reader.h"
#include "support/goldens.h"
#include "support/shared_data.h"

namespace assay {
namespace {

void expect_equal(const std::filesystem::path& vocabulary, const std::string& facts) {
  const auto tokenizer = Tokenizer::load(vocabulary.string());
  test::ByteReader in(test::data("tokenizers/" + facts));
  const auto read_ids = [&] {
    std::vector<TokenId> ids(in.u16());
    for (TokenId& id : ids) id = static_cast<TokenId>(in.u32());
    return ids;
  };
  EXPECT_EQ(tokenizer->end_of_generation(), read_ids());
  int n_texts = 0;
  for (; !in.at_end(); ++n_texts) {
    const std::string text = in.string(in.u16());
    EncodeOptions options;
    options.parse_special = in.u8() != 0;
    ASSERT_EQ(tokenizer->encode(text, options), read_ids()) << ::testing::PrintToString(text) << options.parse_special;
    if (!options.parse_special && text.find("\xE2\x96\x81") == std::string::npos) {  // U+2581 means a blank
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
  EXPECT_EQ(n_texts, 1300);
}

TEST(LlamaCpp, Gemma3) {
  ASSAY_REQUIRE_FILE(test::gemma3());
  expect_equal(test::gemma3(), "gemma3.bin");
}

TEST(LlamaCpp, Phi3) {
  const auto path = test::shared("vectors/tokenizers/ggml-vocab-phi-3.gguf");
  ASSAY_REQUIRE_FILE(path);
  expect_equal(path, "phi3.bin");
}

void expect_golden_ids(const std::filesystem::path& model, const std::string& goldens) {
  const auto tokenizer = Tokenizer::load(model.string());
  int n_prompts = 0;
  const boost::json::object file = test::read_json(test::data("goldens/" + goldens));
  for (const boost::json::value& prompt : file.at("prompts").as_array()) {
    const std::string text = prompt.at("text").as_string().c_str();
    EncodeOptions options;
    options.parse_special = true;
    EXPECT_EQ(tokenizer->encode(text, options), test::to_ids(prompt.at("ids"))) << text;
    ++n_prompts;
  }
  EXPECT_GE(n_prompts, 10);
}

TEST(GoldenIds, SmolLm2) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  expect_golden_ids(test::smollm2(), "smollm2-135m-instruct-Q4_1.json");
}

TEST(GoldenIds, Gemma3) {
  ASSAY_REQUIRE_FILE(test::gemma3());
  expect_golden_ids(test::gemma3(), "gemma3-270m-Q4_K_M.json");
}

}  // namespace
}  // namespace assay
