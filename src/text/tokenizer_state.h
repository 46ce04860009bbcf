// Everything a Tokenizer holds. Made once, by make_tokenizer (facts.h), and never changed after.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/tokenizer.h"
#include "text/encoders/word_encoder.h"
#include "text/special_matcher.h"
#include "text/vocabulary.h"

namespace assay {

struct Tokenizer::State {
  explicit State(text::Vocabulary&& made) : vocabulary(std::move(made)) {}

  text::Vocabulary vocabulary;
  std::unique_ptr<const text::WordEncoder> words;        // looks into vocabulary
  std::unique_ptr<const text::SpecialMatcher> specials;  // looks into vocabulary
  std::string model;
  std::string pre_tokenizer;
  std::optional<TokenId> bos, eos;
  bool adds_bos = false;
  bool adds_eos = false;
  std::vector<TokenId> ends;  // of generation, ascending
  // By token, empty where no token has it: blanks that follow (precede) a special token in a text
  // belong to it.
  std::vector<bool> strips_right;
  std::vector<bool> strips_left;
};

}  // namespace assay
