// The new file's tokenizer keys, from tokenizer.json or tokenizer.model and what stands beside them.
#pragma once

#include <optional>
#include <string>

#include "convert/draft.h"
#include "convert/families/families.h"
#include "convert/tokenizer_json.h"

namespace assay::converting {

struct VocabularyOptions {
  std::optional<std::string> pre_tokenizer;  // --pre: its name, whatever tokenizer.json says
};

// Sets tokenizer.*; gives the number of tokens. Error(unsupported) for a pre-tokenizer that is not known, or another
// kind of tokenizer.
int64_t add_vocabulary(Draft& draft, const Family& family, const std::optional<TokenizerJson>& tokenizer,
                       const VocabularyOptions& options);

// Ids of special tokens, whether BOS and EOS are added, and the chat templates. n_vocab: ids from there on are left
// out.
void add_special_tokens(Draft& draft, const Family& family, const std::optional<TokenizerJson>& tokenizer,
                        std::optional<int64_t> n_vocab);

}  // namespace assay::converting
