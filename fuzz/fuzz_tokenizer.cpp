// Any bytes as text: made-up vocabularies of each kind and every pre-tokenizer take them, and give them
// back. The first byte chooses the vocabulary, the second the options, the third where the text is
// cut into two pieces.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "assay/error.h"
#include "assay/tokenizer.h"
#include "base/utf8.h"
#include "support/small_vocabularies.h"
#include "target.h"
#include "text/pre_tokenizers.h"

namespace {

using assay::fuzz::require;

using assay::TextPiece;
using assay::TokenId;
using assay::Tokenizer;

std::vector<std::shared_ptr<const Tokenizer>> all_tokenizers() {
  std::vector<std::shared_ptr<const Tokenizer>> all;
  assay::text::VocabularyFacts facts = assay::test::sentence_piece_facts();
  all.push_back(assay::text::make_tokenizer(facts));
  facts.add_space_prefix = false;
  facts.model_name = "phi-3";
  all.push_back(assay::text::make_tokenizer(facts));
  all.push_back(assay::text::make_tokenizer(assay::test::word_piece_facts()));
  facts = assay::test::unigram_facts();
  all.push_back(assay::text::make_tokenizer(facts));
  facts.remove_extra_whitespaces = true;
  all.push_back(assay::text::make_tokenizer(facts));
  facts = assay::test::byte_level_facts();
  for (const std::string_view name : assay::text::pre_tokenizer_names()) {
    facts.pre_tokenizer = name;
    all.push_back(assay::text::make_tokenizer(facts));
  }
  return all;
}

}  // namespace

ASSAY_FUZZ_TARGET(tokenizer) {
  static const auto tokenizers = all_tokenizers();
  if (size < 3) return 0;
  const auto& tokenizer = tokenizers[data[0] % tokenizers.size()];
  const std::string text(reinterpret_cast<const char*>(data) + 3, size - 3);
  assay::EncodeOptions options;
  options.parse_special = (data[1] & 1) != 0;
  options.add_bos = false;

  const std::vector<TokenId> ids = tokenizer->encode(text, options);
  for (const TokenId id : ids) require(id >= 0 && id < tokenizer->vocab_size());

  // What was encoded comes back, but for blanks: phi-3's special tokens swallow them, and U+2581
  // means one, even where it comes about between broken bytes.
  const bool is_llama = tokenizer->model() == "llama";
  const bool keeps_all = tokenizer->model() == "gpt2" || (tokenizer == tokenizers[0] && assay::base::is_utf8(text) &&
                                                          text.find("\xE2\x96\x81") == std::string::npos);
  if (keeps_all) require(tokenizer->decode(ids, true) == (is_llama ? text : assay::base::repaired_utf8(text)));

  // Two pieces with the same options are the text.
  const size_t cut = data[2] % (text.size() + 1);
  const std::vector<TextPiece> pieces = {{text.substr(0, cut), options.parse_special},
                                         {text.substr(cut), options.parse_special}};
  require(tokenizer->encode(pieces, options) == ids);
  const std::vector<TextPiece> mixed = {{text.substr(0, cut), true}, {text.substr(cut), false}};
  tokenizer->encode(mixed, options);

  assay::StreamDecoder decoder(tokenizer, true);
  std::string shown;
  for (const TokenId id : ids) shown += decoder.push(id);
  require(assay::base::is_utf8(shown + decoder.finish()));
  return 0;
}
