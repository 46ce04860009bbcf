// Which sequences hold which tokens, as a tree over pages of tokens: from the longest common beginning of a prompt to
// the sequence that holds it. Each leaf is the end of one sequence; where two begin alike they share nodes. Knows
// tokens and numbers of sequences only.
//
//   root of a salt ── [64 tokens] ─┬─ [64 tokens] ── [12 tokens]  sequence 3
//                                  └─ [40 tokens]                 sequence 7
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::pages {

class PrefixTree {
 public:
  PrefixTree();
  ~PrefixTree();

  struct Hit {
    int sequence = -1;
    int64_t n = 0;  // tokens that it has in common with those asked for
  };
  // The sequence whose tokens have the longest beginning in common with these, which counts as used.
  Hit find(std::string_view salt, std::span<const TokenId> tokens);

  struct Added {
    bool is_covered = false;      // another one holds all of these: nothing was added
    std::optional<int> replaced;  // holds nothing that the new one does not, and was removed
  };
  Added add(std::string_view salt, std::span<const TokenId> tokens, int sequence);
  bool holds(int sequence) const noexcept { return leaves_.contains(sequence); }
  int64_t n_tokens(int sequence) const;
  void remove(int sequence);
  // The one whose last use was longest ago.
  std::optional<int> oldest() const;
  // Takes its last page of tokens from it; returns how many are left. 0: it was removed, because it held no more or
  // others hold the rest.
  int64_t drop_page(int sequence);

  size_t size() const noexcept { return leaves_.size(); }

 private:
  struct Node;
  Node* root_of(std::string_view salt);
  Node* drop_leaf(Node* leaf);  // its parent, where that is left without children; else null
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
  std::map<int, Node*> leaves_;
  int64_t clock_ = 0;
};

}  // namespace assay::pages
