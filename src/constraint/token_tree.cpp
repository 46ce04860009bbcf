// See token_tree.h.
#include "constraint/token_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "assay/utf8.h"

namespace assay {
namespace {

// Characters of a token of whole characters; 0: it is none, or has more than are told apart.
int n_whole_characters(const std::string& bytes) {
  int n = 0;
  for (const char c : bytes) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return n <= constraint::kRunMax && !find_invalid_utf8(bytes) ? n : 0;
}

bool stands_in_a_string(const std::string& bytes) {  // of JSON, as it is
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; });
}

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
  s->plain = words();
  s->whole.assign(constraint::kRunMax + 1, words());
  std::vector<std::pair<std::string, TokenId>> shorter, behind_blank, longer, other;
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
    const int n_whole = n_whole_characters(bytes);
    for (int k = n_whole; k > 0 && k <= constraint::kRunMax; ++k) set(s->whole[static_cast<size_t>(k)], id);
    if (n_whole > 0 && stands_in_a_string(bytes)) {
      set(s->plain, id);
    } else {
      other.emplace_back(bytes, id);
    }
    if (bytes.size() > constraint::kShortBytes) {
      longer.emplace_back(std::move(bytes), id);
    } else if (bytes.size() > 1 && bytes[0] == ' ') {
      behind_blank.emplace_back(bytes.substr(1), id);
    } else {
      shorter.emplace_back(std::move(bytes), id);
    }
  }
  s->shorter[0].tree = constraint::make_tree(std::move(shorter));
  s->shorter[1].tree = constraint::make_tree(std::move(behind_blank));
  s->shorter[1].behind_blank = true;
  s->longer = constraint::make_tree(std::move(longer));
  s->other = constraint::make_tree(std::move(other));
  for (constraint::ShortTokens& part : s->shorter) constraint::look_below(part.tree);
  state_ = std::move(s);
}

TokenTree::~TokenTree() = default;

}  // namespace assay
