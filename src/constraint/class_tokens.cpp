// See class_tokens.h.
#include "constraint/class_tokens.h"

#include <algorithm>

namespace assay::constraint {
namespace {

constexpr size_t kClassesMax = 12;
constexpr int kLongEnough = 6;  // characters

// The others may be one node in so many of the whole tree.
constexpr int32_t kOthersShare = 4;

// Some branches of a tree as a tree of their own, added in the order of its nodes.
class Branches {
 public:
  explicit Branches(const Tree& from) : from_(from), path_(static_cast<size_t>(from.depth_max) + 1) {}

  // Each node that is looked at, before anything of it is added.
  void enter(int32_t i) {
    const size_t depth = from_.at(i).depth;
    for (; n_added_ >= depth; --n_added_) close(n_added_);
    path_[depth].from = i;
  }
  void add_node(int32_t i) {  // with the tokens that end there
    add_path(from_.at(i).depth);
    add_ids(i, i + 1);
  }
  void add_branch(int32_t i) {
    add_path(from_.at(i).depth - size_t{1});
    const int32_t by = static_cast<int32_t>(tree_.nodes.size()) - i;
    const int32_t by_ids = static_cast<int32_t>(tree_.ids.size()) - from_.at(i).tokens;
    for (int32_t k = i; k < from_.at(i).after; ++k) {
      Tree::Node node = from_.at(k);
      node.after += by;
      node.tokens += by_ids;
      tree_.nodes.push_back(node);
    }
    tree_.below.insert(tree_.below.end(), from_.below.begin() + i, from_.below.begin() + from_.at(i).after);
    add_ids(i, from_.at(i).after);
  }
  int32_t n_nodes() const noexcept { return static_cast<int32_t>(tree_.nodes.size()); }
  Tree finish() {
    for (; n_added_ > 0; --n_added_) close(n_added_);
    tree_.nodes.push_back({0, 0, 0, n_nodes(), static_cast<int32_t>(tree_.ids.size())});
    tree_.depth_max = from_.depth_max;
    tree_.find_roots();
    return std::move(tree_);
  }

 private:
  struct Above {
    int32_t from = 0, to = 0;  // a node of either tree
  };
  void add_path(size_t depth) {
    for (; n_added_ < depth; ++n_added_) {
      Above& above = path_[n_added_ + 1];
      above.to = n_nodes();
      Tree::Node node = from_.at(above.from);
      node.tokens = static_cast<int32_t>(tree_.ids.size());
      tree_.nodes.push_back(node);
      tree_.below.push_back(kNotWhole);  // not all of its branches come with it
    }
  }
  void add_ids(int32_t first, int32_t last) {
    tree_.ids.insert(tree_.ids.end(), from_.ids.begin() + from_.at(first).tokens,
                     from_.ids.begin() + from_.at(last).tokens);
  }
  void close(size_t depth) { tree_.nodes[static_cast<size_t>(path_[depth].to)].after = n_nodes(); }

  const Tree& from_;
  Tree tree_;
  std::vector<Above> path_;  // by depth
  size_t n_added_ = 0;       // of the path
};

}  // namespace

ClassTokens make_class_tokens(const Tree& tree, int64_t n_words, const ByteSet& on, const ByteSet& never) {
  ClassTokens found{on, never, true, std::vector<uint64_t>(static_cast<size_t>(n_words)), {}};
  const uint64_t groups = groups_within(on);
  Branches others(tree);
  std::vector<char> inside(static_cast<size_t>(tree.depth_max) + 1);  // by depth: in the middle of a character
  for (int32_t i = 0; i < tree.n_nodes();) {
    const Tree::Node& node = tree.at(i);
    const uint64_t below = tree.below[static_cast<size_t>(i)];
    others.enter(i);
    if (inside[node.depth - 1u] == 0 && !on.has(node.byte)) {
      const int32_t n_more = never.has(node.byte) ? 0 : node.after - i;
      if (others.n_nodes() + n_more > tree.n_nodes() / kOthersShare) return {on, never, false, {}, {}};
      if (n_more > 0) others.add_branch(i);
      i = node.after;
      continue;
    }
    inside[node.depth] = (below & kInsideCharacter) != 0 ? 1 : 0;
    if ((below & ~groups) == 0) {
      tree.allow(i, node.after, found.bits);
      i = node.after;
      continue;
    }
    if (inside[node.depth] == 0) {
      tree.allow(i, i + 1, found.bits);
    } else if (node.tokens < tree.at(i + 1).tokens) {
      others.add_node(i);
    }
    ++i;
  }
  found.other = others.finish();
  return found;
}

std::shared_ptr<const ClassTokens> ClassTokensCache::find(const Tree& tree, int64_t n_words, const Run& run) {
  if (run.n == 0 || !run.is_exact()) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(kept_.begin(), kept_.end(), [&run](const auto& c) {
      return c->on == run.on && (c->is_worth_it ? c->never.within(run.never) : c->never == run.never);
    });
    if (it != kept_.end()) {
      std::rotate(kept_.begin(), it, it + 1);
      return kept_.front()->is_worth_it ? kept_.front() : nullptr;
    }
  }
  if (run.n < kLongEnough) return nullptr;
  const auto made = std::make_shared<const ClassTokens>(make_class_tokens(tree, n_words, run.on, run.never));
  const std::lock_guard lock(mutex_);
  kept_.insert(kept_.begin(), made);
  if (kept_.size() > kClassesMax) kept_.pop_back();
  return made->is_worth_it ? made : nullptr;
}

}  // namespace assay::constraint
