// The tokens of a vocabulary as a tree of their bytes, laid out so that a walk runs through memory once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/constraint.h"
#include "assay/tokenizer.h"

namespace assay {

namespace constraint {

// Nodes in the order of a walk: a node, then everything below it.
struct Tree {
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;  // 1 for a first byte
    int32_t after = 0;   // the first node that is not below this one
    int32_t tokens = 0;  // ids[tokens] to ids[the next node's tokens] end here
  };
  std::vector<Node> nodes;  // and one behind the last
  std::vector<TokenId> ids;
  int depth_max = 0;
};
Tree make_tree(std::vector<std::pair<std::string, TokenId>> tokens);

// Stands before the text of a control token, which so is told from the same text made of plain tokens: no UTF-8 has it,
// so no schema and no grammar lets one come. Networks of marks (src/tools/) do.
inline constexpr char kControlByte = '\xFF';

// Plain tokens of more characters than this go with the others.
inline constexpr int kPlainMax = 16;

// Tokens of more bytes are few; places that are alike for so many bytes allow the same of the others.
inline constexpr int kShortBytes = 32;

}  // namespace constraint

struct TokenTree::State {
  int64_t n_words = 0;               // of a mask
  std::vector<std::string> bytes;    // of each token; empty: it never comes
  std::vector<uint64_t> ends;        // the end-of-generation tokens
  constraint::Tree shorter, longer;  // the tokens of up to kShortBytes, and those of more
  // The same in two other parts: plain tokens are made of 1 to kPlainMax whole characters that stand in a JSON string
  // as they are. plain[n] has those of at most n of them.
  std::vector<std::vector<uint64_t>> plain;
  constraint::Tree other;
};

}  // namespace assay
