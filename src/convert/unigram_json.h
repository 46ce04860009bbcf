// A unigram tokenizer as tokenizer.json or SentencePiece's own file has it: what stands around the tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/tokenizer_json.h"
#include "text/chars_map.h"

namespace assay::converting {

// How text is brought to the model: the parts of tokenizer.json, each as it says.
struct UnigramRules {
  std::string chars_map;      // SentencePiece's rules, empty: none
  bool joins_blanks = false;  // a run of blanks becomes one
  bool strips_left = false, strips_right = false;
  bool splits_words = false;       // at white space, which goes
  bool has_prefix = true;          // a blank before a text
  bool repeats_prefix = false;     // also where one is there
  std::vector<std::string> notes;  // where files cannot say what tokenizer.json does: the rules are then the file's

  bool removes_extra_blanks() const noexcept { return splits_words || joins_blanks; }
};

// nullopt where tokenizer.json has a part that is not known; `unknown` says which.
std::optional<UnigramRules> read_unigram_rules(const TokenizerJson& tokenizer, std::string& unknown);

// The ids of a text by tokenizer.json itself, part after part: slow, and sharing nothing with the tokenizer but the
// reader of SentencePiece's rules.
class UnigramReference {
 public:
  // tokenizer must outlive this. Error(bad_file) for rules of normalisation that are none.
  UnigramReference(const TokenizerJson& tokenizer, UnigramRules rules);
  std::vector<int64_t> encode(std::string_view text) const;

 private:
  std::string normalised(std::string_view text) const;
  void append(std::string_view text, std::vector<int64_t>& ids) const;

  const TokenizerJson* tokenizer_;
  UnigramRules rules_;
  text::CharsMap chars_map_;
  std::unordered_map<std::string_view, int64_t> ids_;
  size_t token_bytes_max_ = 4;
  double unknown_score_ = 0;
};

}  // namespace assay::converting
