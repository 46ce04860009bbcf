// Expected ids made by Hugging Face's tokenizers, for the vocabularies in
// vectors/tokenizers and the real models.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "assay/tokenizer.h"
#include "support/shared_data.h"

namespace assay {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = text.find(separator, at)) != std::string::npos; at = end + separator.size()) {
    parts.push_back(text.substr(at, end - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<TokenId> parse_ids(const std::string& line) {
  std::istringstream in(line);
  std::vector<TokenId> ids;
  for (TokenId id; in >> id;) ids.push_back(id);
  return ids;
}

class VocabularyVectors : public ::testing::TestWithParam<const char*> {};

TEST_P(VocabularyVectors, EveryLine) {
  const std::string path = test::shared("vectors/tokenizers/ggml-vocab-" + std::string(GetParam()) + ".gguf");
  ASSAY_REQUIRE_FILE(path);
  const auto tokenizer = Tokenizer::load(path);
  const std::vector<std::string> texts = split(read_file(path + ".inp"), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = split(read_file(path + ".out"), "\n");
  EncodeOptions plain;
  plain.add_bos = false;
  plain.add_eos = false;
  int n_compared = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_LT(i, lines.size());
    if (i + 1 == texts.size() && texts[i].empty()) break;
    EXPECT_EQ(tokenizer->encode(texts[i], plain), parse_ids(lines[i])) << "text " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(texts[i])), texts[i]) << "text " << i;
    ++n_compared;
  }
  RecordProperty("texts", n_compared);
  EXPECT_EQ(n_compared, 46);
}

INSTANTIATE_TEST_SUITE_P(Shared, VocabularyVectors,
                         ::testing::Values("llama-spm", "phi-3", "llama-bpe", "qwen2", "gpt-2", "deepseek-coder",
                                           "starcoder"));

}  // namespace
}  // namespace assay
