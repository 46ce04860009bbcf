// The pre-tokenizers of byte-level BPE models by the names that files give them: how text is cut
// into words before merging.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace assay::text {

// What a step does where its expression matches inside a piece.
enum class Cut {
  isolate,  // the match is a piece of its own, and so is what lies between two matches
  threes,   // cuts before every place in the match from which a multiple of three characters is left
            // of it
};

struct Step {
  std::string_view expression;  // PCRE2, with UTF and UCP; \s and \S mean the Unicode property White_Space
  Cut cut = Cut::isolate;
};

struct PreTokenizerRules {
  std::span<const Step> steps;  // each cuts the pieces that the one before left; an expression sees
                                // one piece, not the text
  bool adds_bos = false;        // unless the file says otherwise
  bool ignores_merges = false;  // a word that is a token is that token, whatever its merges would give
};

std::optional<PreTokenizerRules> find_pre_tokenizer(std::string_view name);
std::vector<std::string_view> pre_tokenizer_names();

}  // namespace assay::text
