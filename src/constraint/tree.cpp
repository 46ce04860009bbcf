// See tree.h.
#include "constraint/tree.h"

#include <algorithm>

#include "constraint/byte_set.h"

namespace assay::constraint {
namespace {

// A text read as UTF-8, byte by byte.
struct Utf8Reader {
  int n_left = 0;  // bytes of the character
  uint8_t first = 0, last = 0;
  bool is_wrong = false, began = false;  // began: the last byte begins a character

  void read(uint8_t byte) noexcept {
    began = n_left == 0 && !is_wrong;
    if (began) {
      const Leads* leads = leads_of(byte);
      began = leads != nullptr;
      is_wrong = !began;
      if (began) *this = {leads->n_behind, leads->second_first, leads->second_last, false, true};
      return;
    }
    is_wrong = is_wrong || byte < first || byte > last;
    --n_left;
    first = 0x80;
    last = 0xBF;
  }
  bool is_whole() const noexcept { return n_left == 0 && !is_wrong; }
};

}  // namespace

void Tree::find_roots() {
  roots.clear();
  for (int32_t i = 0; i < n_nodes(); i = at(i).after) roots.push_back({at(i).byte, i});
}

Tree make_tree(std::vector<std::pair<std::string, TokenId>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  Tree tree;
  std::vector<int32_t> path;  // the nodes of the last token
  std::string last;
  const auto close = [&](size_t n) {
    for (; path.size() > n; path.pop_back())
      tree.nodes[static_cast<size_t>(path.back())].after = static_cast<int32_t>(tree.nodes.size());
  };
  for (const auto& [bytes, id] : tokens) {
    const auto n_same =
        static_cast<size_t>(std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    close(n_same);
    for (size_t i = n_same; i < bytes.size(); ++i) {
      path.push_back(static_cast<int32_t>(tree.nodes.size()));
      tree.nodes.push_back(
          {static_cast<uint8_t>(bytes[i]), 0, static_cast<uint16_t>(i + 1), 0, static_cast<int32_t>(tree.ids.size())});
    }
    tree.ids.push_back(id);
    tree.depth_max = std::max(tree.depth_max, static_cast<int>(bytes.size()));
    last = bytes;
  }
  close(0);
  tree.nodes.push_back({0, 0, 0, static_cast<int32_t>(tree.nodes.size()), static_cast<int32_t>(tree.ids.size())});
  tree.find_roots();
  return tree;
}

void look_below(Tree& tree) {
  struct Above {
    int32_t node = -1;
    bool began = false;  // the node's byte begins a character
  };
  std::vector<Above> above(tree.nodes.size());  // .node: the one above; -1: none
  std::vector<Utf8Reader> texts(static_cast<size_t>(tree.depth_max) + 1);
  std::vector<int32_t> path(texts.size(), -1);
  tree.below.assign(tree.nodes.size(), 0);
  for (int32_t i = 0; i < tree.n_nodes(); ++i) {
    const size_t depth = tree.at(i).depth;
    texts[depth] = texts[depth - 1];
    texts[depth].read(tree.at(i).byte);
    path[depth] = i;
    above[static_cast<size_t>(i)] = {path[depth - 1], texts[depth].began};
    if (!texts[depth].is_whole()) tree.below[static_cast<size_t>(i)] = kInsideCharacter;
  }
  for (int32_t i = tree.n_nodes() - 1; i >= 0; --i) {
    const auto [up, began] = above[static_cast<size_t>(i)];
    if (up < 0) continue;
    const Tree::Node& node = tree.at(i);
    const uint64_t here = tree.below[static_cast<size_t>(i)];
    const bool ends_inside = (here & kInsideCharacter) != 0 && node.tokens < tree.at(i + 1).tokens;
    tree.below[static_cast<size_t>(up)] |=
        (here & ~kInsideCharacter) | (ends_inside ? kNotWhole : 0) | (began ? uint64_t{1} << group_of(node.byte) : 0);
    uint8_t& height = tree.nodes[static_cast<size_t>(up)].height;
    height = std::max(height, static_cast<uint8_t>(node.height + (began ? 1 : 0)));
  }
}

}  // namespace assay::constraint
