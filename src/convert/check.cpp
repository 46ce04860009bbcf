// See check.h.
#include "convert/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/encoders/word_piece.h"
#include "text/from_gguf.h"
#include "text/splitter.h"

namespace assay::converting {
namespace {

std::string pair_key(std::string_view left, std::string_view right) {
  std::string key(left);
  key += '\0';
  key += right;
  return key;
}

// Which of the two ways SentencePiece's blanks are put there: a normalizer that writes them, or the pre-tokenizer
// Metaspace.
bool reads_blanks(const Json& part, bool& blank_before) {
  if (part.is_null()) return true;
  const std::string_view type = part.text("type");
  if (type == "Sequence") {
    const Json* parts = part.find("normalizers");
    if (parts == nullptr) parts = part.find("pretokenizers");
    return parts != nullptr && parts->array() != nullptr &&
           std::all_of(parts->array()->begin(), parts->array()->end(),
                       [&](const Json& one) { return reads_blanks(one, blank_before); });
  }
  if (type == "Prepend" && part.text("prepend") == kLowLine) return blank_before = true;
  if (type == "Replace" && part.text("content") == kLowLine) {
    const Json* pattern = part.find("pattern");
    return pattern != nullptr && pattern->text("String") == " ";
  }
  if (type == "Metaspace" && part.text("replacement") == kLowLine) {
    const Json* prefix = part.find("add_prefix_space");
    blank_before = part.text("prepend_scheme") != "never" && (prefix == nullptr || part.flag("add_prefix_space"));
    const Json* split = part.find("split");
    return split == nullptr || !part.flag("split");
  }
  // Gemma's: a text is cut before each blank, where no token begins in its middle.
  return type == "Split" && part.text("behavior") == "MergedWithPrevious";
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  for (size_t at = 0; (at = out.find(from, at)) != std::string::npos; at += to.size()) out.replace(at, from.size(), to);
  return out;
}

}  // namespace

std::optional<ReferenceTokenizer> ReferenceTokenizer::make(const TokenizerJson& tokenizer, std::string& unknown) {
  ReferenceTokenizer all;
  all.tokenizer_ = &tokenizer;
  if (tokenizer.model == "Unigram") {
    auto rules = read_unigram_rules(tokenizer, unknown);
    if (!rules) return std::nullopt;
    all.unigram_.emplace(tokenizer, std::move(*rules));
    return all;
  }
  for (const auto& [text, id] : tokenizer.vocab) all.ids_.emplace(text, id);
  if (tokenizer.model == "WordPiece") {
    if (tokenizer.normalizer.text("type") != "BertNormalizer" ||
        tokenizer.pre_tokenizer.text("type") != "BertPreTokenizer") {
      unknown = "a normalizer or pre-tokenizer other than BERT's";
      return std::nullopt;
    }
    all.is_word_pieces_ = true;
    all.lowers_ = tokenizer.normalizer.flag("lowercase");
    return all;
  }
  if (tokenizer.model != "BPE") {
    unknown = fmt::format("a {} model", tokenizer.model);
    return std::nullopt;
  }
  if (const auto pre = read_pre_tokenizer(tokenizer.pre_tokenizer, unknown); pre && !tokenizer.byte_fallback) {
    all.pre_ = *pre;
    all.is_bytes_ = true;
  } else if (!tokenizer.byte_fallback || !reads_blanks(tokenizer.normalizer, all.blank_before_) ||
             !reads_blanks(tokenizer.pre_tokenizer, all.blank_before_)) {
    if (unknown.empty()) unknown = "a normalizer or pre-tokenizer of its own";
    return std::nullopt;
  }
  for (size_t i = 0; i < tokenizer.merges.size(); ++i)
    all.ranks_.try_emplace(pair_key(tokenizer.merges[i].first, tokenizer.merges[i].second), i);
  return all;
}

void ReferenceTokenizer::merge(std::string_view word, std::vector<int64_t>& ids) const {
  if (tokenizer_->ignore_merges) {
    if (const auto whole = ids_.find(std::string(word)); whole != ids_.end()) return ids.push_back(whole->second);
  }
  std::vector<std::string> parts;
  for (size_t at = 0; at < word.size();) {
    const auto length = static_cast<size_t>(base::char_at(word, at).length);
    parts.emplace_back(word.substr(at, length));
    at += length;
  }
  while (true) {
    size_t best = parts.size(), rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks_.find(pair_key(parts[i], parts[i + 1]));
      if (found != ranks_.end() && found->second < rank) {
        rank = found->second;
        best = i;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  for (const std::string& part : parts) {
    if (const auto found = ids_.find(part); found != ids_.end()) {
      ids.push_back(found->second);
      continue;
    }
    for (const char byte : part) {
      const auto found_byte = ids_.find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
      if (tokenizer_->byte_fallback && found_byte != ids_.end()) ids.push_back(found_byte->second);
    }
  }
}

// The longest token from the beginning on, then the longest with "##" before it; a word that cannot be spelled so is
// unknown.
void ReferenceTokenizer::append_pieces(const std::string& word, std::vector<int64_t>& ids) const {
  const size_t n_before = ids.size();
  for (size_t begin = 0; begin < word.size();) {
    size_t end = word.size();
    auto found = ids_.end();
    for (; end > begin; --end) {
      found = ids_.find((begin == 0 ? "" : "##") + word.substr(begin, end - begin));
      if (found != ids_.end()) break;
    }
    if (end == begin) {
      ids.resize(n_before);
      if (const auto unknown = ids_.find("[UNK]"); unknown != ids_.end()) ids.push_back(unknown->second);
      return;
    }
    ids.push_back(found->second);
    begin = end;
  }
}

std::vector<int64_t> ReferenceTokenizer::encode_plain(std::string_view text) const {
  std::vector<int64_t> ids;
  if (text.empty()) return ids;
  if (unigram_) return unigram_->encode(text);
  if (is_word_pieces_) {
    for (const std::string& word : text::bert_words(text, lowers_)) append_pieces(word, ids);
    return ids;
  }
  if (!is_bytes_) {
    merge((blank_before_ ? std::string(kLowLine) : std::string()) + replaced(text, " ", kLowLine), ids);
    return ids;
  }
  std::vector<text::Step> steps;
  for (const PreStep& step : pre_.steps) steps.push_back({step.expression});
  const text::Splitter splitter(text::PreTokenizerRules{steps});
  size_t begin = 0;
  for (const uint32_t end : splitter.split(text)) {
    merge(text::kByteAlphabet.spell(text.substr(begin, end - begin)), ids);
    begin = end;
  }
  return ids;
}

std::vector<int64_t> ReferenceTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  const auto append = [&](const std::vector<int64_t>& more) { ids.insert(ids.end(), more.begin(), more.end()); };
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken& t : tokenizer_->added) {
      if (!t.special && text.substr(at).starts_with(t.content) &&
          (longest == nullptr || t.content.size() > longest->content.size()))
        longest = &t;
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    append(encode_plain(text.substr(begin, at - begin)));
    ids.push_back(longest->id);
    begin = at += longest->content.size();
  }
  append(encode_plain(text.substr(begin)));
  return ids;
}

const std::vector<std::string>& check_texts() {
  static const std::vector<std::string> kTexts = {
      "Hello, world! It's a test; they'll see what we've done, DON'T they?",
      "for (int i = 0; i < 10; ++i) {\n\tprintf(\"%d\\n\", i);\n}\n",
      "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x7f 2026-11-24",
      "  two   three    four\n\n\nlines\r\n \t tabs \t\t end ",
      "\xC3\xBC"
      "ber caf\xC3\xA9 na\xC3\xAFve \xC5\x81\xC3\xB3"
      "d\xC5\xBA \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xCE\xB5\xCE\xBB",
      "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82 "
      "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF \xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4",
      "\xF0\x9F\x98\x80 \xF0\x9F\x9A\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x94\xAC \xE2\x9C\x85 ... !!! ??? ---",
      "\xD8\xA7\xD9\x84\xD8\xB3\xD9\x84\xD8\xA7\xD9\x85 "
      "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87 "
      "\xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1\xE0\xB8\xAA",
      "CamelCase snake_case kebab-case HTTPServer v2.0.1 a+b=c x^2 $5 50% #tag @user",
      "a",
      " ",
      "\n",
      "https://example.org/path?q=1&r=two#three <b>bold</b> \"quoted\" 'single' `code`",
  };
  return kTexts;
}

std::optional<bool> puts_blank_before(const TokenizerJson& tokenizer) {
  bool blank = false;
  if (!reads_blanks(tokenizer.normalizer, blank) || !reads_blanks(tokenizer.pre_tokenizer, blank)) return std::nullopt;
  return blank;
}

int64_t check_tokenizer(const gguf::Metadata& metadata, const TokenizerJson& tokenizer,
                        std::vector<std::string>& notes) {
  const std::shared_ptr<const Tokenizer> made = text::make_tokenizer(metadata);
  std::string unknown;
  const auto reference = ReferenceTokenizer::make(tokenizer, unknown);
  if (!reference) {
    notes.push_back(fmt::format("the file's tokenizer was not held against tokenizer.json, which has {}", unknown));
    return 0;
  }
  for (const std::string& text : check_texts()) {
    const std::vector<TokenId> found = made->encode(text, {.parse_special = false, .add_bos = false, .add_eos = false});
    const std::vector<int64_t> expected = reference->encode(text);
    if (std::equal(found.begin(), found.end(), expected.begin(), expected.end())) continue;
    const auto place =
        std::mismatch(found.begin(), found.end(), expected.begin(), expected.end()).first - found.begin();
    throw Error(Errc::bad_file, fmt::format("the file's tokenizer (pre-tokenizer \"{}\") and tokenizer.json cut {} "
                                            "differently, from token {} on: {} tokens, {} "
                                            "expected",
                                            metadata.find_string("tokenizer.ggml.pre").value_or(""), base::shown(text),
                                            place, found.size(), expected.size()));
  }
  return static_cast<int64_t>(check_texts().size());
}

}  // namespace assay::converting
