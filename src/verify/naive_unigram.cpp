// See naive_unigram.h.
#include "verify/naive_unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/utf8.h"

namespace assay::verify {
namespace {

constexpr std::string_view kBlankMark = "\xE2\x96\x81";  // U+2581

bool begins_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

}  // namespace

NaiveUnigram::NaiveUnigram(const gguf::Metadata& metadata, const Tokenizer& tokenizer) {
  const std::vector<std::string_view> tokens = metadata.require_strings("tokenizer.ggml.tokens");
  scores_ = metadata.find_floats("tokenizer.ggml.scores").value_or(std::vector<float>(tokens.size(), 0.0f));
  adds_space_ = metadata.find_bool("tokenizer.ggml.add_space_prefix").value_or(true);
  joins_blanks_ = metadata.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  std::optional<double> least;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = tokenizer.kind(id);
    if (kind == TokenKind::normal) least = std::min(least.value_or(scores_[i]), double{scores_[i]});
    if (kind == TokenKind::unknown && unknown_ < 0) unknown_ = id;
    if (kind == TokenKind::byte) bytes_.emplace(tokens[i], id);
    if (kind == TokenKind::user_defined) scores_[i] = 0;
    if ((kind != TokenKind::normal && kind != TokenKind::user_defined) || tokens[i].empty()) continue;
    pieces_.emplace(tokens[i], id);
    piece_bytes_max_ = std::max(piece_bytes_max_, tokens[i].size());
  }
  unknown_score_ = least.value_or(0.0) - 10;
  if (const auto id = metadata.find_integer("tokenizer.ggml.unknown_token_id")) unknown_ = static_cast<TokenId>(*id);
  if (const gguf::Entry* entry = metadata.find("tokenizer.ggml.precompiled_charsmap")) read_rules(entry->bytes);
}

// The array was checked when the tokenizer was made. Every unit that is a byte's hangs below the base that its place
// XOR its byte is; from the root on, the paths spell the runs.
void NaiveUnigram::read_rules(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return;
  std::vector<uint32_t> units(bytes.size() / 4 - 1);
  uint32_t n_bytes = 0;
  std::memcpy(&n_bytes, bytes.data(), 4);
  units.resize(n_bytes / 4);
  std::memcpy(units.data(), bytes.data() + 4, n_bytes);
  const std::span<const std::byte> rest = bytes.subspan(4 + size_t{n_bytes});
  const std::string_view texts(reinterpret_cast<const char*>(rest.data()), rest.size());
  const auto offset = [&](uint32_t at) { return units[at] & 0x200 ? (units[at] >> 10) * 256 : units[at] >> 10; };
  std::unordered_map<uint32_t, std::vector<uint32_t>> below;
  for (uint32_t at = 0; at < units.size(); ++at) {
    const uint32_t byte = units[at] & 0xFF;
    if (units[at] < 0x80000000u && byte != 0) below[at ^ byte].push_back(at);
  }
  constexpr size_t kPathsMax =
      4'000'000;  // paths may share their ends: more than anybody's rules have are not spelled out
  std::vector<std::pair<uint32_t, std::string>> open = {{offset(0), ""}};
  for (size_t n_paths = 0; !open.empty() && n_paths < kPathsMax; ++n_paths) {
    const auto [base, run] = open.back();
    open.pop_back();
    for (const uint32_t at : below[base]) {
      const uint32_t next = at ^ offset(at);
      const std::string longer = run + static_cast<char>(units[at] & 0xFF);
      open.emplace_back(next, longer);
      if ((units[at] & 0x100) == 0) continue;
      const size_t begin = units[next] & 0x7FFFFFFF;
      rules_.emplace(longer, texts.substr(begin, texts.find('\0', begin) - begin));
      rule_bytes_max_ = std::max(rule_bytes_max_, longer.size());
    }
  }
}

// What stands for the text at a place, which moves on behind it.
std::string NaiveUnigram::replaced(std::string_view text, size_t& at) const {
  for (size_t n = std::min(rule_bytes_max_, text.size() - at); n > 0; --n) {
    const auto rule = rules_.find(text.substr(at, n));
    if (rule == rules_.end()) continue;
    at += n;
    return rule->second;
  }
  const base::Char c = base::char_at(text, at);
  const bool is_whole = c.state == base::CharState::whole;
  const std::string own = is_whole ? std::string(text.substr(at, static_cast<size_t>(c.length))) : "\xEF\xBF\xBD";
  at += is_whole ? static_cast<size_t>(c.length) : 1;
  return own;
}

std::string NaiveUnigram::normalised(std::string_view text) const {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) parts.push_back(replaced(text, at));
  if (joins_blanks_) {
    const auto first = std::find_if(parts.begin(), parts.end(), [](const std::string& part) { return part != " "; });
    parts.erase(parts.begin(), first);
  }
  if (parts.empty()) return {};
  std::string plain, out = adds_space_ ? std::string(kBlankMark) : "";
  bool after_blank = joins_blanks_;
  for (std::string& part : parts) {
    while (after_blank && !part.empty() && part.front() == ' ') part.erase(0, 1);
    if (part.empty()) continue;
    after_blank = joins_blanks_ && part.back() == ' ';
    plain += part;
  }
  for (const char c : plain) c == ' ' ? out += kBlankMark : out += c;
  while (joins_blanks_ && out.ends_with(kBlankMark)) out.erase(out.size() - kBlankMark.size());
  return out;
}

// Of all tokens that end here the one with the highest sum, the longest of equal ones; or, where the last character is
// no token, the unknown one.
NaiveUnigram::Step NaiveUnigram::best_ending(std::string_view text, size_t end, const std::vector<Step>& steps) const {
  Step best;
  size_t character = end - 1;
  while (!begins_character(text[character])) --character;
  for (size_t begin = end - std::min(end, std::max(piece_bytes_max_, size_t{4})); begin < end; ++begin) {
    if (!begins_character(text[begin])) continue;
    const auto piece = pieces_.find(text.substr(begin, end - begin));
    const bool is_piece = piece != pieces_.end();
    if (!is_piece && begin != character) continue;
    const TokenId id = is_piece ? piece->second : unknown_;
    const double sum = steps[begin].sum + (is_piece ? double{scores_[static_cast<size_t>(id)]} : unknown_score_);
    if (best.id < 0 || sum > best.sum) best = {sum, begin, id};
  }
  return best;
}

void NaiveUnigram::append(std::string_view part, TokenId id, std::vector<TokenId>& out) const {
  if (id != unknown_) return out.push_back(id);
  std::vector<TokenId> bytes;
  for (const char c : part) {
    const auto byte = bytes_.find(fmt::format("<0x{:02X}>", static_cast<uint8_t>(c)));
    if (byte != bytes_.end()) bytes.push_back(byte->second);
  }
  if (bytes.size() == part.size()) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  } else {
    out.push_back(unknown_);
  }
}

void NaiveUnigram::encode(std::string_view raw, std::vector<TokenId>& out) const {
  const std::string text = normalised(raw);
  std::vector<Step> steps(text.size() + 1);
  for (size_t end = 1; end <= text.size(); ++end) {
    if (end == text.size() || begins_character(text[end])) steps[end] = best_ending(text, end, steps);
  }
  std::vector<size_t> ends;
  for (size_t end = text.size(); end > 0; end = steps[end].begin) ends.push_back(end);
  const size_t first = out.size();
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Step& step = steps[*end];
    const bool repeats = step.id == unknown_ && out.size() > first && out.back() == unknown_;
    std::vector<TokenId> ids;
    append(std::string_view(text).substr(step.begin, *end - step.begin), step.id, ids);
    if (!repeats || ids.front() != unknown_) out.insert(out.end(), ids.begin(), ids.end());
  }
}

}  // namespace assay::verify
