// What a file says about its vocabulary, as plain data: the one input from which a tokenizer is
// built. Views, which need to live only until it is.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"
#include "text/packed_texts.h"

namespace assay::text {

struct SpecialIds {
  std::optional<TokenId> bos, eos, eot, eom, unknown;
  std::optional<TokenId> cls, separator;  // "bert": before and after a text
  std::optional<TokenId> fim_prefix, fim_suffix, fim_middle, fim_pad, fim_repo, fim_separator;
};

struct VocabularyFacts {
  std::string_view model;          // tokenizer.ggml.model: "llama", "gpt2", "gemma4", "bert", "t5"
  std::string_view pre_tokenizer;  // tokenizer.ggml.pre
  std::string_view model_name;     // general.name
  PackedTexts tokens;
  std::vector<TokenKind> kinds;          // empty: all normal
  std::vector<float> scores;             // "llama", "t5"
  std::vector<std::string_view> merges;  // "gpt2", "gemma4": "left right", the earlier the stronger
  std::span<const std::byte> chars_map;  // "t5": how text is normalised (chars_map.h); empty: not at all
  SpecialIds special;
  std::optional<bool> add_bos, add_eos, add_separator, add_space_prefix, remove_extra_whitespaces;
};

bool is_served(std::string_view model) noexcept;  // whether a tokenizer is made of this tokenizer.ggml.model

// Throws Error(bad_file) for facts that contradict each other, Error(unsupported) for kinds of
// tokenizer that are not served.
std::shared_ptr<const Tokenizer> make_tokenizer(VocabularyFacts facts);

}  // namespace assay::text
