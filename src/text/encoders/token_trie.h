// Which tokens a text begins with, found in one walk over its bytes. The trie has a node only where tokens part or end:
// fewer than two for each token, however long tokens are.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace assay::text {

class TokenTrie {
 public:
  // ids: of tokens with a text, which must not move while the trie lives.
  TokenTrie(const Vocabulary& vocabulary, std::vector<TokenId> ids);

  // Calls visit(id, bytes) for each token that the text begins with, the shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, const Visit& visit) const {
    const Node* node = nodes_.data();
    size_t at = 0;
    while (at < text.size() && (node = child(*node, text[at])) != nullptr) {
      const size_t end = node->end;
      if (end > text.size() || std::memcmp(node->text + at, text.data() + at, end - at) != 0) return;
      at = end;
      if (node->id >= 0) visit(node->id, at);
    }
  }

 private:
  struct Node {
    const char* text = nullptr;  // of a token below: its first `end` bytes lead here
    uint32_t end = 0;
    uint32_t first_child = 0;
    uint32_t n_children = 0;
    TokenId id = -1;  // of the token that ends here, -1: none
  };
  const Node* child(const Node& node, char byte) const noexcept {
    if (node.n_children == 0) return nullptr;
    const char* const labels = labels_.data() + node.first_child;
    const void* const found = std::memchr(labels, byte, node.n_children);
    if (found == nullptr) return nullptr;
    return nodes_.data() + node.first_child + (static_cast<const char*>(found) - labels);
  }

  std::vector<Node> nodes_;   // the root first; children of one node stand together
  std::vector<char> labels_;  // beside them: the byte that leads to a node
};

}  // namespace assay::text
