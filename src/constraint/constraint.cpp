// The public face: compiling, and the mask of an answer as it grows.
#include "assay/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "constraint/automaton.h"
#include "constraint/constraint_state.h"
#include "constraint/grammar.h"
#include "constraint/schema.h"
#include "constraint/token_tree.h"
#include "json/reader.h"

namespace assay {

using constraint::Automaton;
using constraint::Network;

namespace {

constexpr size_t kSchemaBytesMax = 256 << 10;
constexpr int kSchemaDepthMax = 64;
constexpr size_t kPlaceBytesMax = 16 << 20;
constexpr size_t kMaskBytesMax = 16 << 20;

std::string first_of(const std::vector<SchemaProblem>& all) {
  const std::string more = all.size() > 1 ? fmt::format(" (and {} more)", all.size() - 1) : "";
  return fmt::format("the schema is refused at \"{}\": {}{}", all.at(0).pointer, all.at(0).message, more);
}

boost::json::value read_schema(std::string_view json) {
  if (json.size() > kSchemaBytesMax) {
    throw Error(Errc::bad_request, fmt::format("the schema has {} bytes, {} are served", json.size(), kSchemaBytesMax));
  }
  return json_text::read(json, "the schema", {kSchemaDepthMax, 1'000'000});
}

Network compile(const boost::json::value& schema, std::vector<SchemaProblem>& problems) {
  try {
    return constraint::schema_network(schema, problems);
  } catch (const Error& error) {
    if (error.code != Errc::bad_request) throw;
    problems.push_back({"", error.what()});
    return {};
  }
}

std::shared_ptr<const Constraint> made_of(Network network) {
  auto state = std::make_unique<Constraint::State>();
  state->network = std::make_shared<const Network>(std::move(network));
  return std::make_shared<const Constraint>(std::move(state));
}

// One answer against one network.
class Follower {
 public:
  Follower(std::shared_ptr<const Constraint> constraint, std::shared_ptr<const TokenTree> tokens)
      : constraint_(std::move(constraint)), tokens_(std::move(tokens)), automaton_(constraint_->state().network),
        place_(automaton_.begin()) {}

  std::span<const uint64_t> allowed(std::span<const TokenId> answer) {
    automaton_.allow_work(constraint::kWorkMax);
    if (answer.size() < n_seen_ || answer.empty()) {  // another answer with the same options
      place_ = automaton_.begin();
      n_seen_ = 0;
    }
    for (; n_seen_ < answer.size(); ++n_seen_) read(answer[n_seen_]);
    if (automaton_.kept_bytes() > kPlaceBytesMax || masks_.size() * words_bytes() > kMaskBytesMax) {
      place_ = automaton_.keep_only(place_);
      masks_.clear();
      for (auto& walked : walked_) walked.clear();
    }
    const auto it = masks_.find(place_);
    return it != masks_.end() ? it->second : masks_.emplace(place_, mask()).first->second;
  }

 private:
  struct Walked {
    Automaton::Place place = Automaton::kDead;
    std::vector<uint64_t> bits;
  };
  static constexpr size_t kWalkedMax = 3;
  static constexpr int32_t kManyNodes = 5;

  size_t words_bytes() const { return static_cast<size_t>(tokens_->state().n_words) * 8; }

  void read(TokenId id) {
    const auto& bytes = tokens_->state().bytes;
    const std::string& text =
        id >= 0 && static_cast<size_t>(id) < bytes.size() ? bytes[static_cast<size_t>(id)] : std::string();
    Automaton::Place place = text.empty() ? Automaton::kDead : place_;
    for (const char c : text) place = automaton_.step(place, static_cast<uint8_t>(c));
    if (place == Automaton::kDead)
      throw Error(Errc::bad_request,
                  fmt::format("token {} of the answer ({}) is none that the constraint allows", n_seen_, id));
    place_ = place;
  }

  std::vector<uint64_t> mask() {
    const TokenTree::State& tokens = tokens_->state();
    const int32_t n_plain = automaton_.n_plain(place_);
    std::vector<uint64_t> bits(static_cast<size_t>(tokens.n_words));
    if (n_plain >= constraint::kRunMax || (n_plain >= 0 && automaton_.only_plain(place_))) {
      add_of_at_most(n_plain, tokens.plain, bits);
      walk(tokens.other, place_, bits);
    } else {
      for (size_t i = 0; i < tokens.shorter.size(); ++i) add_short(i, bits);
      walk(tokens.longer, place_, bits);
    }
    if (automaton_.accepts(place_)) add(tokens.ends, bits);
    return bits;
  }

  static void add(const std::vector<uint64_t>& more, std::vector<uint64_t>& bits) {
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= more[i];
  }
  // Those of the tokens that have so many characters or fewer.
  void add_of_at_most(int32_t n, const std::vector<uint64_t>& all, std::vector<uint64_t>& bits) const {
    if (n >= constraint::kRunMax) return add(all, bits);
    const auto& whole = tokens_->state().whole[static_cast<size_t>(n)];
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= all[i] & whole[i];
  }

  void add_short(size_t part, std::vector<uint64_t>& bits) {
    const TokenTree::State& tokens = tokens_->state();
    const constraint::ShortTokens& shorter = tokens.shorter[part];
    const Automaton::Place from = shorter.behind_blank ? automaton_.step(place_, ' ') : place_;
    if (from == Automaton::kDead) return;
    const constraint::Run run = automaton_.run(from);
    const auto of_class = shorter.classes.find(shorter.tree, tokens.n_words, run);
    if (of_class == nullptr) return add(walked(part, from), bits);
    const int32_t n_before = shorter.behind_blank ? 1 : 0;
    add_of_at_most(run.n == constraint::kRunMax ? run.n : run.n + n_before, of_class->bits, bits);
    walk(of_class->other, from, bits);
  }

  // In the middle of a repetition one place is like the one before it, and so is what it allows.
  const std::vector<uint64_t>& walked(size_t part, Automaton::Place from) {
    std::vector<Walked>& last = walked_[part];
    const auto like = std::find_if(last.begin(), last.end(), [this, from](const Walked& w) {
      return automaton_.alike(w.place, from, constraint::kShortBytes);
    });
    if (like != last.end()) {
      std::rotate(last.begin(), like, like + 1);
    } else {
      if (last.size() < kWalkedMax) last.emplace_back();
      std::rotate(last.begin(), last.end() - 1, last.end());
      last[0].place = Automaton::kDead;  // until the walk has come to its end
      last[0].bits.assign(static_cast<size_t>(tokens_->state().n_words), 0);
      walk(tokens_->state().shorter[part].tree, from, last[0].bits);
    }
    last[0].place = from;
    return last[0].bits;
  }

  void walk(const constraint::Tree& tree, Automaton::Place from, std::vector<uint64_t>& bits) {
    path_.resize(static_cast<size_t>(tree.depth_max) + 1);
    path_[0] = from;
    for (const constraint::Tree::Root& root : tree.roots) {
      if (automaton_.step(from, root.byte) != Automaton::kDead) walk_branch(tree, root.node, bits);
    }
  }

  void walk_branch(const constraint::Tree& tree, int32_t root, std::vector<uint64_t>& bits) {
    const int32_t n = tree.at(root).after;
    for (int32_t i = root; i < n;) {
      const constraint::Tree::Node& node = tree.at(i);
      const Automaton::Place next = automaton_.step(path_[node.depth - 1u], node.byte);
      if (next == Automaton::kDead) {
        i = node.after;
        continue;
      }
      path_[node.depth] = next;
      const int32_t end = may_all_follow(tree, i, next) ? node.after : i + 1;
      tree.allow(i, end, bits);
      i = end;
    }
  }

  // Whether everything below a node may come, without a look at each: the characters are of a class of which any may.
  bool may_all_follow(const constraint::Tree& tree, int32_t i, Automaton::Place place) {
    const constraint::Tree::Node& node = tree.at(i);
    if (tree.below.empty() || node.after - i < kManyNodes) return false;
    const uint64_t below = tree.below[static_cast<size_t>(i)];
    if ((below & (constraint::kInsideCharacter | constraint::kNotWhole)) != 0) return false;
    const Automaton::Free& free = automaton_.free(place);
    return (below & ~free.groups) == 0 && node.height <= free.n;
  }

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<const TokenTree> tokens_;
  Automaton automaton_;
  Automaton::Place place_;
  size_t n_seen_ = 0;
  std::map<Automaton::Place, std::vector<uint64_t>> masks_;
  // Of each part of the short tokens: the last places for which it was walked, the latest first.
  std::array<std::vector<Walked>, 2> walked_;
  std::vector<Automaton::Place> path_;
};

}  // namespace

SchemaError::SchemaError(std::vector<SchemaProblem> all)
    : Error(Errc::bad_request, first_of(all)), problems(std::move(all)) {}

Constraint::Constraint(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Constraint::~Constraint() = default;

std::shared_ptr<const Constraint> Constraint::from_schema(std::string_view json) {
  std::vector<SchemaProblem> problems;
  Network network = compile(read_schema(json), problems);
  if (!problems.empty()) throw SchemaError(std::move(problems));
  return made_of(std::move(network));
}

std::shared_ptr<const Constraint> Constraint::from_grammar(std::string_view gbnf) {
  return made_of(constraint::grammar_network(gbnf));
}

std::shared_ptr<const Constraint> Constraint::any_object() { return made_of(constraint::any_object_network()); }

bool Constraint::accepts(std::string_view text) const {
  Automaton automaton(state_->network);
  Automaton::Place place = automaton.begin();
  for (const char c : text) {
    automaton.allow_work(constraint::kWorkMax);
    place = automaton.step(place, static_cast<uint8_t>(c));
    if (automaton.kept_bytes() > kPlaceBytesMax) place = automaton.keep_only(place);
  }
  return automaton.accepts(place);
}

std::vector<SchemaProblem> check_schema(std::string_view json) {
  std::vector<SchemaProblem> problems;
  compile(read_schema(json), problems);
  return problems;
}

TokenMask constrain(std::shared_ptr<const Constraint> constraint, std::shared_ptr<const TokenTree> tokens) {
  auto follower = std::make_shared<Follower>(std::move(constraint), std::move(tokens));
  return [follower](std::span<const TokenId> answer) { return follower->allowed(answer); };
}

}  // namespace assay
