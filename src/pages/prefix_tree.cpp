// See prefix_tree.h.
#include "pages/prefix_tree.h"

#include <algorithm>
#include <new>
#include <utility>

#include "pages/page_tables.h"

namespace assay::pages {
namespace {

constexpr size_t kPage = kPagePositions;

size_t n_common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

struct PrefixTree::Node {
  std::vector<TokenId> tokens;  // a page of them, or fewer in a leaf; none in a root
  Node* parent = nullptr;
  std::vector<std::unique_ptr<Node>> children;
  int sequence = -1;  // of a leaf
  int64_t last_used = 0;
  int64_t n_before = 0;     // tokens on the way here
  std::string_view salt{};  // of a root: its key

  // The child that begins with all of the chunk, or with which the chunk begins.
  Node* child_like(std::span<const TokenId> chunk) const {
    for (const auto& child : children) {
      const size_t common = n_common(child->tokens, chunk);
      if (common == chunk.size() || common == child->tokens.size()) return child.get();
    }
    return nullptr;
  }
  Node* add_child(std::span<const TokenId> chunk) {
    auto child = std::make_unique<Node>();
    child->parent = this;
    child->n_before = n_before + static_cast<int64_t>(tokens.size());
    child->tokens.assign(chunk.begin(), chunk.end());
    children.push_back(std::move(child));
    return children.back().get();
  }
};

PrefixTree::PrefixTree() = default;
PrefixTree::~PrefixTree() {  // not by recursion: a path is as deep as its prompt is long
  while (!leaves_.empty()) remove(leaves_.begin()->first);
}

PrefixTree::Node* PrefixTree::root_of(std::string_view salt) {
  const auto found = roots_.find(salt);
  return found == roots_.end() ? nullptr : found->second.get();
}

PrefixTree::Hit PrefixTree::find(std::string_view salt, std::span<const TokenId> tokens) {
  Node* node = root_of(salt);
  size_t n = 0;
  while (node != nullptr) {
    Node* best = nullptr;
    size_t n_best = 0;
    for (const auto& child : node->children) {
      const size_t common = n_common(child->tokens, tokens.subspan(n));
      if (common > n_best) n_best = common, best = child.get();
    }
    if (best == nullptr) break;
    n += n_best;
    node = best;
    if (n_best < kPage) break;
  }
  if (n == 0) return {};
  while (node->sequence < 0) node = node->children.front().get();
  node->last_used = ++clock_;
  return {node->sequence, static_cast<int64_t>(n)};
}

PrefixTree::Added PrefixTree::add(std::string_view salt, std::span<const TokenId> tokens, int sequence) {
  Added added;
  Node* node = nullptr;
  try {
    auto& root = roots_[std::string(salt)];
    if (root == nullptr) {
      root = std::make_unique<Node>();
      root->salt = roots_.find(salt)->first;
    }
    node = root.get();
    leaves_[sequence] = nullptr;
    for (size_t n = 0; n < tokens.size();) {
      const std::span<const TokenId> chunk = tokens.subspan(n, std::min(kPage, tokens.size() - n));
      Node* child = node->child_like(chunk);
      if (child == nullptr) {
        child = node->add_child(chunk);
      } else if (n + chunk.size() == tokens.size() && chunk.size() <= child->tokens.size()) {
        added.is_covered = true;
        while (child->sequence < 0) child = child->children.front().get();
        child->last_used = ++clock_;
        break;
      } else if (child->sequence >= 0) {  // a leaf that ends here; what it has may be a part of a page
        child->tokens.reserve(kPage);
        child->tokens.assign(chunk.begin(), chunk.end());
        added.replaced = std::exchange(child->sequence, -1);
        leaves_.erase(*added.replaced);
      }
      node = child;
      n += chunk.size();
    }
  } catch (const std::bad_alloc&) {
    added.is_covered = true;  // it is kept by nobody
    while (node != nullptr && node->parent != nullptr && node->children.empty() && node->sequence < 0)
      node = drop_leaf(node);
    if (node != nullptr && node->parent == nullptr && node->children.empty()) roots_.erase(roots_.find(node->salt));
  }
  if (added.is_covered) {
    leaves_.erase(sequence);
    return added;
  }
  node->sequence = sequence;
  node->last_used = ++clock_;
  leaves_[sequence] = node;
  return added;
}

int64_t PrefixTree::n_tokens(int sequence) const {
  const Node& leaf = *leaves_.at(sequence);
  return leaf.n_before + static_cast<int64_t>(leaf.tokens.size());
}

PrefixTree::Node* PrefixTree::drop_leaf(Node* leaf) {
  Node* const parent = leaf->parent;
  std::erase_if(parent->children, [&](const auto& child) { return child.get() == leaf; });
  return parent->children.empty() ? parent : nullptr;
}

void PrefixTree::remove(int sequence) {
  const auto found = leaves_.find(sequence);
  if (found == leaves_.end()) return;
  Node* node = found->second;
  leaves_.erase(found);
  while (node != nullptr && node->parent != nullptr) node = drop_leaf(node);
  if (node != nullptr) roots_.erase(roots_.find(node->salt));
}

std::optional<int> PrefixTree::oldest() const {
  const auto least = std::min_element(leaves_.begin(), leaves_.end(), [](const auto& a, const auto& b) {
    return a.second->last_used < b.second->last_used;
  });
  return least == leaves_.end() ? std::nullopt : std::optional<int>(least->first);
}

int64_t PrefixTree::drop_page(int sequence) {
  Node* const leaf = leaves_.at(sequence);
  const int64_t last_used = leaf->last_used;
  if (leaf->parent->parent == nullptr || leaf->parent->children.size() > 1) {
    remove(sequence);
    return 0;
  }
  Node* const parent = drop_leaf(leaf);
  parent->sequence = sequence;
  parent->last_used = last_used;
  leaves_[sequence] = parent;
  return parent->n_before + static_cast<int64_t>(parent->tokens.size());
}

}  // namespace assay::pages
