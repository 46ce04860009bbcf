// See token_tree.h.
#include "constraint/token_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "assay/utf8.h"

namespace assay {
namespace constraint {
namespace {

// Characters of a plain token; 0: it is none.
int n_plain_characters(const std::string& bytes) {
  int n = 0;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    if (b < 0x20 || b == '"' || b == '\\') return 0;
    n += (b & 0xC0) != 0x80 ? 1 : 0;
  }
  return n <= kPlainMax && !find_invalid_utf8(bytes) ? n : 0;
}

}  // namespace

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
          {static_cast<uint8_t>(bytes[i]), static_cast<uint16_t>(i + 1), 0, static_cast<int32_t>(tree.ids.size())});
    }
    tree.ids.push_back(id);
    tree.depth_max = std::max(tree.depth_max, static_cast<int>(bytes.size()));
    last = bytes;
  }
  close(0);
  tree.nodes.push_back({0, 0, static_cast<int32_t>(tree.nodes.size()), static_cast<int32_t>(tree.ids.size())});
  return tree;
}

}  // namespace constraint

namespace {

const Tokenizer& tokenizer_of(const Model& model) {
  if (model.tokenizer()) return *model.tokenizer();
  throw Error(Errc::bad_request, "a constraint needs the model's tokenizer, and its file has none");
}

}  // namespace

TokenTree::TokenTree(const Model& model) : TokenTree(tokenizer_of(model), model.vocab_size()) {}

TokenTree::TokenTree(const Tokenizer& tokenizer, int64_t vocab_size) {
  auto s = std::make_unique<State>();
  const int64_t n = std::max<int64_t>(vocab_size, tokenizer.vocab_size());
  s->n_words = (n + 63) / 64;
  const auto words = [&] { return std::vector<uint64_t>(static_cast<size_t>(s->n_words)); };
  const auto set = [](std::vector<uint64_t>& bits, TokenId id) {
    bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  };
  s->bytes.resize(static_cast<size_t>(tokenizer.vocab_size()));
  s->ends = words();
  s->plain.assign(constraint::kPlainMax + 1, words());
  std::vector<std::pair<std::string, TokenId>> shorter, longer, other;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_end_of_generation(id)) {
      set(s->ends, id);
      continue;
    }
    const TokenKind kind = tokenizer.kind(id);
    if (kind == TokenKind::unused || kind == TokenKind::unknown) continue;
    const bool is_control = kind == TokenKind::control;
    std::string bytes = is_control ? constraint::kControlByte + tokenizer.piece(id, true) : tokenizer.piece(id, false);
    if (bytes.empty() || bytes.size() > UINT16_MAX) continue;
    if (!is_control && bytes.find_first_of("\xF8\xF9\xFA\xFB\xFC\xFD\xFE\xFF") != std::string::npos)
      continue;  // no UTF-8 has these
    s->bytes[static_cast<size_t>(id)] = bytes;
    const int n_plain = constraint::n_plain_characters(bytes);
    for (int k = n_plain; k > 0 && k <= constraint::kPlainMax; ++k) set(s->plain[static_cast<size_t>(k)], id);
    if (n_plain == 0) other.emplace_back(bytes, id);
    auto& part = bytes.size() > constraint::kShortBytes ? longer : shorter;
    part.emplace_back(std::move(bytes), id);
  }
  s->shorter = constraint::make_tree(std::move(shorter));
  s->longer = constraint::make_tree(std::move(longer));
  s->other = constraint::make_tree(std::move(other));
  state_ = std::move(s);
}

TokenTree::~TokenTree() = default;

}  // namespace assay
