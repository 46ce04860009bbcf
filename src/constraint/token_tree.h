// The tokens of a vocabulary as a tree of their bytes, laid out so that a walk runs through memory once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/constraint.h"
#include "assay/tokenizer.h"
#include "constraint/class_tokens.h"
#include "constraint/tree.h"

namespace assay {

namespace constraint {

// Stands before the text of a control token, which so is told from the same text made of plain tokens: no UTF-8 has it,
// so no schema and no grammar lets one come. Networks of marks (src/tools/) do.
inline constexpr char kControlByte = '\xFF';

// Tokens of more bytes are few; places that are alike for so many bytes allow the same of the others.
inline constexpr int kShortBytes = 32;

// Tokens of up to kShortBytes, of which many begin with a blank. Behind it the text goes on as it does without one,
// from another place; so these are a tree of their own, without the blank. The blank itself is in the other.
struct ShortTokens {
  bool behind_blank = false;
  Tree tree;
  mutable ClassTokensCache classes;
};

}  // namespace constraint

struct TokenTree::State {
  int64_t n_words = 0;             // of a mask
  std::vector<std::string> bytes;  // of each token; empty: it never comes
  std::vector<uint64_t> ends;      // the end-of-generation tokens
  std::array<constraint::ShortTokens, 2> shorter;
  constraint::Tree longer;                   // the tokens of more than kShortBytes
  std::vector<std::vector<uint64_t>> whole;  // [n]: the tokens of 1 to n whole characters, n up to kRunMax
  // The same in two other parts: plain tokens are those of whole[kRunMax] whose characters stand in a JSON string as
  // they are.
  std::vector<uint64_t> plain;
  constraint::Tree other;
};

}  // namespace assay
