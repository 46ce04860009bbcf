// See unigram_json.h.
#include "convert/unigram_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <unordered_set>

#include "assay/error.h"
#include "base/shown.h"
#include "base/utf8.h"

namespace assay::converting {
namespace {

// The bytes of a text in base64; nullopt: it is none.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t n_filled = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = i + n_filled >= text.size() ? 0 : kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift & 0xFF);
    bits = 0;
  }
  bytes.resize(bytes.size() - n_filled);
  return bytes;
}

bool read_normalizer(const Json& part, UnigramRules& rules, std::string& unknown) {
  if (part.is_null()) return true;
  const std::string_view type = part.text("type");
  unknown = fmt::format("the normalizer {}", base::shown(type));
  if (type == "Sequence") {
    const Json* parts = part.find("normalizers");
    if (parts == nullptr || parts->array() == nullptr) return false;
    return std::all_of(parts->array()->begin(), parts->array()->end(),
                       [&](const Json& one) { return read_normalizer(one, rules, unknown); });
  }
  if (type == "Precompiled") {
    const auto bytes = from_base64(part.text("precompiled_charsmap"));
    const bool is_first = rules.chars_map.empty() && !rules.joins_blanks && !rules.strips_left && !rules.strips_right;
    if (!bytes || !is_first) return false;
    rules.chars_map = *bytes;
    return true;
  }
  if (type == "Strip") {
    rules.strips_left = rules.strips_left || part.flag("strip_left");
    rules.strips_right = rules.strips_right || part.flag("strip_right");
    return true;
  }
  const Json* pattern = part.find("pattern");
  const std::string_view content = part.text("content");
  if (type == "Replace" && pattern != nullptr && pattern->text("Regex") == " {2,}" &&
      (content == " " || content == kLowLine)) {
    return rules.joins_blanks = true;
  }
  return false;
}

bool read_metaspace(const Json& part, UnigramRules& rules, std::string& unknown) {
  if (part.text("replacement") != kLowLine) return false;
  const Json* prefix = part.find("add_prefix_space");
  std::string_view scheme = part.text("prepend_scheme");
  if (scheme.empty()) scheme = prefix == nullptr || part.flag("add_prefix_space") ? "always" : "never";
  if (scheme == "first") {
    rules.notes.push_back(
        "tokenizer.json: a blank is put before a text alone; files put one behind special tokens too");
  }
  rules.has_prefix = scheme != "never";
  if (rules.splits_words && scheme != "always") {
    unknown = fmt::format("words without the blanks between them (prepend_scheme {})", base::shown(scheme));
    return false;
  }
  return scheme == "always" || scheme == "first" || scheme == "never";
}

bool read_pre_tokenizer(const Json& part, UnigramRules& rules, std::string& unknown, bool& has_metaspace) {
  if (part.is_null()) return true;
  const std::string_view type = part.text("type");
  unknown = fmt::format("the pre-tokenizer {}", base::shown(type));
  if (type == "Sequence") {
    const Json* parts = part.find("pretokenizers");
    if (parts == nullptr || parts->array() == nullptr) return false;
    return std::all_of(parts->array()->begin(), parts->array()->end(),
                       [&](const Json& one) { return read_pre_tokenizer(one, rules, unknown, has_metaspace); });
  }
  if (has_metaspace) return false;
  if (type == "WhitespaceSplit") return rules.splits_words = true;
  if (type != "Metaspace") return false;
  has_metaspace = true;
  return read_metaspace(part, rules, unknown);
}

bool is_white_space(uint32_t code) {
  constexpr std::array<uint32_t, 9> kOthers = {' ', 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  const bool is_in_range = (code >= 9 && code <= 13) || (code >= 0x2000 && code <= 0x200A);
  return is_in_range || std::find(kOthers.begin(), kOthers.end(), code) != kOthers.end();
}

struct Characters {
  std::vector<std::string> all;
  std::vector<bool> blank;
};
Characters characters_of(std::string_view text) {
  Characters found;
  for (size_t at = 0; at < text.size(); at += found.all.back().size()) {
    const base::Char c = base::char_at(text, at);
    found.all.emplace_back(text.substr(at, static_cast<size_t>(c.length)));
    found.blank.push_back(is_white_space(c.code));
  }
  return found;
}

std::string stripped(std::string_view text, bool left, bool right) {
  const Characters c = characters_of(text);
  size_t begin = 0, end = c.all.size();
  while (left && begin < end && c.blank[begin]) ++begin;
  while (right && end > begin && c.blank[end - 1]) --end;
  std::string out;
  for (size_t i = begin; i < end; ++i) out += c.all[i];
  return out;
}

std::vector<std::string> words_of(const std::string& text, bool splits) {
  if (!splits) return {text};
  const Characters c = characters_of(text);
  std::vector<std::string> words;
  for (size_t i = 0; i < c.all.size(); ++i) {
    if (c.blank[i]) continue;
    if (i == 0 || c.blank[i - 1]) words.emplace_back();
    words.back() += c.all[i];
  }
  return words;
}

}  // namespace

std::optional<UnigramRules> read_unigram_rules(const TokenizerJson& tokenizer, std::string& unknown) {
  UnigramRules rules;
  bool has_metaspace = false;
  if (!read_normalizer(tokenizer.normalizer, rules, unknown)) return std::nullopt;
  if (!read_pre_tokenizer(tokenizer.pre_tokenizer, rules, unknown, has_metaspace)) return std::nullopt;
  unknown = "no pre-tokenizer Metaspace";
  if (!has_metaspace) return std::nullopt;
  const Json& decoder = tokenizer.decoder;
  unknown = fmt::format("the decoder {}", base::shown(decoder.text("type")));
  if (!decoder.is_null() && (decoder.text("type") != "Metaspace" || decoder.text("replacement") != kLowLine)) {
    return std::nullopt;
  }
  if (rules.joins_blanks && !rules.strips_right && !rules.splits_words) {
    rules.notes.push_back("tokenizer.json: a blank at the end of a text stays; files that join blanks take it off");
    rules.strips_right = true;
  }
  if (!rules.removes_extra_blanks() && (rules.strips_left || rules.strips_right)) {
    unknown = "a normalizer that strips ends and joins no blanks";
    return std::nullopt;
  }
  if (!rules.removes_extra_blanks() && rules.has_prefix) {
    rules.notes.push_back(
        "tokenizer.json: a text that begins with a blank gets no further one; files put one before every text");
    rules.repeats_prefix = true;
  }
  return rules;
}

UnigramReference::UnigramReference(const TokenizerJson& tokenizer, UnigramRules rules)
    : tokenizer_(&tokenizer), rules_(std::move(rules)), chars_map_(std::as_bytes(std::span(rules_.chars_map))) {
  std::unordered_set<int64_t> special;
  for (const AddedToken& t : tokenizer.added) {
    if (t.special) special.insert(t.id);
  }
  for (size_t i = 0; i < tokenizer.vocab.size(); ++i) {
    const auto& [text, id] = tokenizer.vocab[i];
    unknown_score_ = std::min(unknown_score_, double{tokenizer.scores[i]});
    if (special.contains(id) || id == tokenizer.unknown_id) continue;
    ids_.emplace(text, id);
    token_bytes_max_ = std::max(token_bytes_max_, text.size());
  }
  unknown_score_ -= 10;
}

std::string UnigramReference::normalised(std::string_view text) const {
  std::string mapped;
  for (size_t at = 0; at < text.size();) {
    const text::CharsMap::Match match = chars_map_.longest(text.substr(at));
    mapped += match.bytes > 0 ? match.text : text.substr(at, 1);
    at += std::max<size_t>(match.bytes, 1);
  }
  std::string joined;
  for (const char c : stripped(mapped, rules_.strips_left, rules_.strips_right)) {
    if (!rules_.joins_blanks || c != ' ' || !joined.ends_with(' ')) joined += c;
  }
  return joined;
}

std::vector<int64_t> UnigramReference::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  for (const std::string& word : words_of(normalised(text), rules_.splits_words)) {
    std::string spelled;
    for (const char c : word) c == ' ' ? spelled += kLowLine : spelled += c;
    const bool has_one = spelled.starts_with(kLowLine) && !rules_.repeats_prefix;
    if (rules_.has_prefix && !spelled.empty() && !has_one) spelled.insert(0, kLowLine);
    append(spelled, ids);
  }
  return ids;
}

// The best way to each end, over all places from which a token leads there; the first of equal ones.
void UnigramReference::append(std::string_view text, std::vector<int64_t>& ids) const {
  struct End {
    double sum = 0;
    size_t begin = 0;
    int64_t id = -1;
    bool is_known = false;
  };
  const int64_t unknown = tokenizer_->unknown_id.value_or(-1);
  std::vector<size_t> places;
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(base::char_at(text, at).length)) places.push_back(at);
  places.push_back(text.size());
  std::vector<End> ends(text.size() + 1);
  for (size_t i = 1; i < places.size(); ++i) {
    End& best = ends[places[i]];
    for (size_t from = 0; from < i; ++from) {
      if (places[i] - places[from] > token_bytes_max_) continue;
      const auto found = ids_.find(text.substr(places[from], places[i] - places[from]));
      if (found == ids_.end() && from + 1 != i) continue;
      const int64_t id = found == ids_.end() ? unknown : found->second;
      const double score = found == ids_.end() ? unknown_score_ : double{tokenizer_->scores[static_cast<size_t>(id)]};
      const double sum = ends[places[from]].sum + score;
      if (!best.is_known || sum > best.sum) best = {sum, places[from], id, true};
    }
  }
  std::vector<size_t> way;
  for (size_t end = text.size(); end > 0; end = ends[end].begin) way.push_back(end);
  bool after_unknown = false;
  for (auto end = way.rbegin(); end != way.rend(); ++end) {
    const bool is_unknown = ends[*end].id == unknown;
    std::vector<int64_t> bytes;
    for (size_t i = ends[*end].begin; is_unknown && tokenizer_->byte_fallback && i < *end; ++i) {
      const std::string byte = fmt::format("<0x{:02X}>", static_cast<unsigned char>(text[i]));
      if (const auto found = ids_.find(byte); found != ids_.end()) bytes.push_back(found->second);
    }
    if (!bytes.empty() && bytes.size() == *end - ends[*end].begin) {
      ids.insert(ids.end(), bytes.begin(), bytes.end());
    } else if (!is_unknown || !after_unknown) {
      ids.push_back(ends[*end].id);
    }
    after_unknown = is_unknown && bytes.empty();
  }
}

}  // namespace assay::converting
