// Texts as a tree of their bytes, laid out so that a walk runs through memory once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::constraint {

// Nodes in the order of a walk: a node, then everything below it.
struct Tree {
  struct Node {
    uint8_t byte = 0;
    uint8_t height = 0;  // see look_below
    uint16_t depth = 0;  // 1 for a first byte
    int32_t after = 0;   // the first node that is not below this one
    int32_t tokens = 0;  // ids[tokens] to ids[the next node's tokens] end here
  };
  struct Root {  // a node of depth 1
    uint8_t byte = 0;
    int32_t node = 0;
  };
  std::vector<Node> nodes;  // and one behind the last
  std::vector<Root> roots;  // side by side: most places go past most of them
  std::vector<TokenId> ids;
  int depth_max = 0;
  std::vector<uint64_t> below;  // of each node, where they were looked for

  int32_t n_nodes() const noexcept { return static_cast<int32_t>(nodes.size()) - 1; }
  const Node& at(int32_t i) const noexcept { return nodes[static_cast<size_t>(i)]; }
  void find_roots();
  // What ends from the node `first` on, and before the node `last`.
  void allow(int32_t first, int32_t last, std::vector<uint64_t>& bits) const {
    for (int32_t t = at(first).tokens; t < at(last).tokens; ++t) {
      const auto id = static_cast<size_t>(ids[static_cast<size_t>(t)]);
      bits[id / 64] |= uint64_t{1} << (id % 64);
    }
  }
};
Tree make_tree(std::vector<std::pair<std::string, TokenId>> tokens);

// Fills in `below` and the heights: the groups (byte_set.h) of the characters that begin below each node, and how many
// may follow one another there. For trees of at most 255 bytes.
void look_below(Tree& tree);
inline constexpr uint64_t kInsideCharacter = uint64_t{1} << 62;  // the text up to the node is not of whole characters
inline constexpr uint64_t kNotWhole = uint64_t{1} << 63;         // nor is that of each token below it

}  // namespace assay::constraint
