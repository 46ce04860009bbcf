// tokenizer.json: what it says of tokens, merges and the way text is cut, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/json.h"

namespace assay::converting {

inline constexpr std::string_view kLowLine = "\xE2\x96\x81";  // U+2581: a blank in SentencePiece's spelling

struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool special = false, normalized = false;
};

struct TokenizerJson {
  std::string model;                                   // "BPE", "Unigram", ...
  std::vector<std::pair<std::string, int64_t>> vocab;  // of a BPE or WordPiece; of a Unigram in the order of its list
  std::vector<float> scores;                           // of a Unigram, beside `vocab`
  std::optional<int64_t> unknown_id;                   // of a Unigram
  std::string unknown;                                 // of a BPE; empty: none
  std::vector<std::pair<std::string, std::string>> merges;
  bool byte_fallback = false, ignore_merges = false;
  std::vector<AddedToken> added;
  Json normalizer, pre_tokenizer, post_processor, decoder;
};

// Error(bad_file).
TokenizerJson read_tokenizer_json(std::string_view text);

// The step of a pre-tokenizer as an expression whose matches are pieces of their own.
struct PreStep {
  std::string expression;
};
// nullopt where a part is there that is not known; `unknown` then says which. A normalizer is known where it leaves
// text as it is, or is NFC.
struct PreTokenizer {
  std::vector<PreStep> steps;
  bool byte_level = false;
};
std::optional<PreTokenizer> read_pre_tokenizer(const Json& pre_tokenizer, std::string& unknown);

// The name of the rules in text/pre_tokenizers.h that cut text the same way; nullopt: none does. architecture: where
// rules have several names, the one that its models have.
std::optional<std::string> pre_tokenizer_name(const PreTokenizer& pre, bool ignores_merges,
                                              std::string_view architecture);

}  // namespace assay::converting
