// A unigram vocabulary once more, from its definition: the rules of normalisation as a plain list of runs and texts,
// and at each place of a text every token that could end there. Slow, and the judge of text/encoders/unigram.h, with
// which it shares no code.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "assay/tokenizer.h"
#include "gguf/metadata.h"

namespace assay::verify {

class NaiveUnigram {
 public:
  // Views into the metadata's file. tokenizer: whose kinds of tokens are taken.
  NaiveUnigram(const gguf::Metadata& metadata, const Tokenizer& tokenizer);

  void encode(std::string_view text, std::vector<TokenId>& out) const;
  std::string normalised(std::string_view text) const;  // blanks as U+2581
  bool adds_space() const noexcept { return adds_space_; }
  TokenId unknown() const noexcept { return unknown_; }

 private:
  struct Step {
    double sum = 0;
    size_t begin = 0;
    TokenId id = -1;
  };
  void read_rules(std::span<const std::byte> bytes);
  std::string replaced(std::string_view text, size_t& at) const;
  Step best_ending(std::string_view text, size_t end, const std::vector<Step>& steps) const;
  void append(std::string_view part, TokenId id, std::vector<TokenId>& out) const;

  std::unordered_map<std::string_view, TokenId> pieces_, bytes_;
  std::vector<float> scores_;
  std::map<std::string, std::string, std::less<>> rules_;
  size_t rule_bytes_max_ = 0, piece_bytes_max_ = 0;
  double unknown_score_ = 0;
  TokenId unknown_ = -1;
  bool adds_space_ = true, joins_blanks_ = false;
};

}  // namespace assay::verify
