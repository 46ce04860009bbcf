// See vocabulary.h.
#include "convert/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <unordered_map>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/check.h"
#include "convert/pieces.h"
#include "convert/unigram_json.h"
#include "text/pre_tokenizers.h"

namespace assay::converting {
namespace {

using gguf::Value;

constexpr uint64_t kModelBytesMax = uint64_t{256} << 20;

// tokenizer.ggml.token_type
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

struct Tokens {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> kinds;

  void fill(int64_t n, float score) {
    for (int64_t i = 0; i < n; ++i) texts.push_back(fmt::format("[PAD{}]", i));
    scores.assign(static_cast<size_t>(n), score);
    kinds.assign(static_cast<size_t>(n), kUnused);
  }
  bool has(int64_t id) const noexcept { return id >= 0 && id < static_cast<int64_t>(texts.size()); }
  void set(int64_t id, std::string text, int32_t kind, float score) {
    const auto i = static_cast<size_t>(id);
    texts[i] = std::move(text);
    kinds[i] = kind;
    scores[i] = score;
  }
};

// Some models have tokens that end turns or stand for nothing without saying that they are special.
bool looks_special(std::string_view text) {
  const auto framed = [&](std::string_view begin, std::string_view end) {
    return text.size() >= begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end);
  };
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" || framed("<|", "|>") ||
         framed("<unused", ">") || framed("<\xEF\xBD\x9C", "\xEF\xBD\x9C>");
}

std::string with_blanks(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool is_blank = text.substr(at).starts_with(kLowLine);
    out += is_blank ? ' ' : text[at];
    at += is_blank ? kLowLine.size() : 1;
  }
  return out;
}

// The rows that the embedding has: ids beyond the tokens are there and mean nothing.
int64_t vocab_size(Draft& draft, int64_t n_tokens) {
  const int64_t size = draft.config.find_count("vocab_size").value_or(n_tokens);
  if (size < 1 || size > (int64_t{1} << 22))
    throw Error(Errc::bad_file, fmt::format("config.json: vocab_size is {}; needs 1 to 4194304", size));
  return size;
}

void write(Draft& draft, std::string_view model, std::string_view pre, const Tokens& tokens, bool has_scores) {
  draft.head.set("tokenizer.ggml.model", Value::of(model));
  if (!pre.empty()) draft.head.set("tokenizer.ggml.pre", Value::of(pre));
  draft.head.set("tokenizer.ggml.tokens", Value::of(std::span<const std::string>(tokens.texts)));
  if (has_scores) draft.head.set("tokenizer.ggml.scores", Value::of(tokens.scores));
  draft.head.set("tokenizer.ggml.token_type", Value::of(tokens.kinds));
}

int32_t kind_of(const Piece& piece) noexcept {
  // A piece that is user defined in SentencePiece is a normal one in these files.
  return piece.kind == PieceKind::user_defined ? kNormal : static_cast<int32_t>(piece.kind);
}

void add_added_tokens_json(Draft& draft, Tokens& tokens) {
  const auto added = draft.folder.json_of("added_tokens.json");
  if (!added || added->object() == nullptr) return;
  for (const auto& [text, id] : *added->object()) {
    if (id.number() == nullptr || !id.number()->integer)
      throw Error(Errc::bad_file, fmt::format("added_tokens.json: {} has no id", base::shown(text)));
    if (tokens.has(*id.number()->integer)) tokens.set(*id.number()->integer, text, kUserDefined, -1000.0f);
  }
}

void add_decoder_tokens(Draft& draft, Tokens& tokens, bool guesses_special) {
  const auto config = draft.folder.json_of("tokenizer_config.json");
  const Json* added = config ? config->find("added_tokens_decoder") : nullptr;
  if (added == nullptr || added->object() == nullptr) return;
  for (const auto& [key, token] : *added->object()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    std::string text(token.text("content"));
    if (error != std::errc{} || end != key.data() + key.size() || id < 0 || text.empty()) {
      throw Error(
          Errc::bad_file,
          fmt::format("tokenizer_config.json: added_tokens_decoder: {} needs an id and a content", base::shown(key)));
    }
    if (!tokens.has(id)) {
      draft.notes.push_back(
          fmt::format("tokenizer_config.json: token {} ({}) lies beyond the {} of the vocabulary and is left out", id,
                      base::shown(text), tokens.texts.size()));
      continue;
    }
    const bool is_special = token.flag("special") || (guesses_special && looks_special(text));
    if (!is_special && guesses_special) text = with_blanks(text);
    tokens.set(id, std::move(text), is_special ? kControl : kUserDefined, -1000.0f);
  }
}

// Tokens that end a turn and that nothing in the folder calls so: of Gemma 1, and of Code Llama.
void add_end_of_turn(Draft& draft, const Tokens& tokens) {
  struct Known {
    std::string_view architecture;
    size_t n_tokens_min;
    size_t id;
    std::string_view text;
  };
  constexpr std::array kKnown = {Known{"gemma", 108, 107, "<end_of_turn>"},
                                 Known{"llama", 32016, 32010, "\xE2\x96\x81<EOT>"}};
  for (const Known& one : kKnown) {
    if (one.architecture == draft.architecture() && tokens.texts.size() >= one.n_tokens_min &&
        tokens.texts[one.id] == one.text) {
      draft.head.set("tokenizer.ggml.eot_token_id", Value::of(static_cast<uint32_t>(one.id)));
    }
  }
}

int64_t add_pieces(Draft& draft, const Family& family, const std::optional<TokenizerJson>& tokenizer) {
  const Pieces pieces = read_pieces(draft.folder.text_of("tokenizer.model", kModelBytesMax));
  if (!pieces.is_bpe) {
    throw Error(Errc::unsupported,
                "tokenizer.model: a unigram model, whose tokens cannot be found by merging; GGUF's \"llama\" tokenizer "
                "is one of merges");
  }
  Tokens tokens;
  tokens.fill(vocab_size(draft, static_cast<int64_t>(pieces.all.size())), -10000.0f);
  if (pieces.all.size() > tokens.texts.size()) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.model has {} pieces, config.json a vocab_size of {}",
                                            pieces.all.size(), tokens.texts.size()));
  }
  for (size_t i = 0; i < pieces.all.size(); ++i)
    tokens.set(static_cast<int64_t>(i), pieces.all[i].text, kind_of(pieces.all[i]), pieces.all[i].score);
  const bool with_added = family.vocabulary == VocabularyKind::pieces_and_added;
  add_added_tokens_json(draft, tokens);
  add_decoder_tokens(draft, tokens, !with_added);
  if (with_added && tokenizer) {
    for (const AddedToken& t : tokenizer->added) {
      if (tokens.has(t.id)) tokens.set(t.id, t.content, t.special ? kControl : kUserDefined, -1000.0f);
    }
  }
  write(draft, "llama", "default", tokens, true);
  add_special_tokens(draft, family, tokenizer, static_cast<int64_t>(tokens.texts.size()));
  add_end_of_turn(draft, tokens);
  return static_cast<int64_t>(tokens.texts.size());
}

// NFC leaves text alone that is composed already, which nearly all is; the files have no key for it.
bool is_known_normalizer(Draft& draft, const Json& normalizer) {
  if (normalizer.is_null()) return true;
  if (normalizer.text("type") == "NFC") {
    draft.notes.push_back(
        "tokenizer.json: text is normalised to NFC there; GGUF has no key for it, and readers take text as it is");
    return true;
  }
  const Json* parts = normalizer.find("normalizers");
  if (normalizer.text("type") != "Sequence" || parts == nullptr || parts->array() == nullptr) return false;
  return std::all_of(parts->array()->begin(), parts->array()->end(),
                     [&](const Json& one) { return is_known_normalizer(draft, one); });
}

std::string describe(const PreTokenizer& pre) {
  std::string text;
  for (const PreStep& step : pre.steps) text += (text.empty() ? "" : ", then ") + step.expression;
  return text.empty() ? "no cuts" : text;
}

std::string pre_tokenizer_of(Draft& draft, const Family& family, const TokenizerJson& tokenizer,
                             const VocabularyOptions& options) {
  if (options.pre_tokenizer) {
    if (!text::find_pre_tokenizer(*options.pre_tokenizer)) {
      throw Error(Errc::bad_request,
                  fmt::format("--pre {}: no such pre-tokenizer; known are {}", base::shown(*options.pre_tokenizer),
                              fmt::join(text::pre_tokenizer_names(), " ")));
    }
    return *options.pre_tokenizer;
  }
  if (!is_known_normalizer(draft, tokenizer.normalizer)) {
    throw Error(
        Errc::unsupported,
        fmt::format(
            "tokenizer.json: the normalizer {} is not known; --pre NAME takes the pre-tokenizer NAME nonetheless",
            base::shown(tokenizer.normalizer.text("type"))));
  }
  std::string unknown;
  const auto pre = read_pre_tokenizer(tokenizer.pre_tokenizer, unknown);
  if (!pre) {
    throw Error(Errc::unsupported, fmt::format("tokenizer.json: the pre-tokenizer has a part that is not known ({}); "
                                               "--pre NAME takes the pre-tokenizer NAME "
                                               "nonetheless",
                                               unknown));
  }
  const auto name = pre_tokenizer_name(*pre, tokenizer.ignore_merges,
                                       family.options.pre_of.empty() ? family.architecture : family.options.pre_of);
  if (!name) {
    throw Error(Errc::unsupported, fmt::format("tokenizer.json: no pre-tokenizer that assay knows cuts text by {}{}; "
                                               "--pre NAME takes the pre-tokenizer NAME "
                                               "nonetheless",
                                               describe(*pre), tokenizer.ignore_merges ? " and ignores merges" : ""));
  }
  return *name;
}

// Blanks inside the parts of a merge are spelled as byte-level vocabularies spell them, since one blank stands between
// the parts.
std::vector<std::string> merge_lines(const TokenizerJson& tokenizer) {
  const auto spelled = [](const std::string& part) {
    std::string text;
    for (const char c : part) {
      if (c == ' ')
        text += "\xC4\xA0";
      else
        text += c;
    }
    return text;
  };
  std::vector<std::string> lines;
  lines.reserve(tokenizer.merges.size());
  for (const auto& [left, right] : tokenizer.merges) lines.push_back(spelled(left) + " " + spelled(right));
  return lines;
}

// Tokens that tokenizer_config.json alone has would be lost.
void require_decoder_tokens(Draft& draft, const Tokens& tokens) {
  const auto config = draft.folder.json_of("tokenizer_config.json");
  const Json* added = config ? config->find("added_tokens_decoder") : nullptr;
  if (added == nullptr || added->object() == nullptr) return;
  for (const auto& [key, token] : *added->object()) {
    size_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error == std::errc{} && end == key.data() + key.size() && id < tokens.texts.size() &&
        tokens.kinds[id] != kUnused)
      continue;
    throw Error(
        Errc::unsupported,
        fmt::format("tokenizer_config.json: added_tokens_decoder has {} with the id {}, which tokenizer.json has not",
                    base::shown(token.text("content")), base::shown(key)));
  }
}

// The tokens of tokenizer.json: its vocabulary, and the added ones over it.
Tokens tokens_of(Draft& draft, const Family& family, const TokenizerJson& tokenizer) {
  int64_t n_tokens = 0;
  for (const auto& [text, id] : tokenizer.vocab) n_tokens = std::max(n_tokens, id + 1);
  for (const AddedToken& t : tokenizer.added) n_tokens = std::max(n_tokens, t.id + 1);
  Tokens tokens;
  tokens.fill(vocab_size(draft, n_tokens), 0);
  if (n_tokens > static_cast<int64_t>(tokens.texts.size())) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.json has tokens up to id {}, config.json a vocab_size of {}",
                                            n_tokens - 1, tokens.texts.size()));
  }
  std::vector<bool> is_there(tokens.texts.size());
  for (const auto& [text, id] : tokenizer.vocab) {
    if (is_there[static_cast<size_t>(id)]) {
      throw Error(Errc::bad_file,
                  fmt::format("tokenizer.json: {} and {} have the id {}",
                              base::shown(tokens.texts[static_cast<size_t>(id)]), base::shown(text), id));
    }
    is_there[static_cast<size_t>(id)] = true;
    tokens.set(id, text, kNormal, 0);
  }
  const bool ends_turns = family.options.habit == TokenHabit::laguna;
  for (const AddedToken& t : tokenizer.added) {
    const bool is_special = t.special || looks_special(t.content) || (ends_turns && t.content == "</assistant>");
    tokens.set(t.id, is_special ? t.content : with_blanks(t.content), is_special ? kControl : kUserDefined, 0);
  }
  require_decoder_tokens(draft, tokens);
  return tokens;
}

int64_t add_bpe(Draft& draft, const Family& family, const TokenizerJson& tokenizer, const VocabularyOptions& options) {
  if (tokenizer.model != "BPE") {
    throw Error(Errc::unsupported, fmt::format("tokenizer.json: a {} model; assay converts BPE, and SentencePiece from "
                                               "a tokenizer.model, of which the folder "
                                               "has none",
                                               tokenizer.model.empty() ? "nameless" : tokenizer.model));
  }
  if (tokenizer.byte_fallback) {
    throw Error(Errc::unsupported,
                "tokenizer.json: a vocabulary of SentencePiece, whose scores stand in tokenizer.model alone; the "
                "folder has none");
  }
  const std::string pre = pre_tokenizer_of(draft, family, tokenizer, options);
  const Tokens tokens = tokens_of(draft, family, tokenizer);
  write(draft, "gpt2", pre, tokens, false);
  const std::vector<std::string> merges = merge_lines(tokenizer);
  if (merges.empty()) throw Error(Errc::bad_file, "tokenizer.json: no merges");
  draft.head.set("tokenizer.ggml.merges", Value::of(std::span<const std::string>(merges)));
  add_special_tokens(draft, family, tokenizer, std::nullopt);
  const auto rules = text::find_pre_tokenizer(pre);
  if (rules->adds_bos &&
      draft.head.find("tokenizer.ggml.add_bos_token") == nullptr) {  // readers would add one by the name alone
    draft.head.set("tokenizer.ggml.add_bos_token", Value::of(false));
  }
  return static_cast<int64_t>(tokens.texts.size());
}

// A text that is a byte: <0x0A>.
bool is_byte(std::string_view text) noexcept {
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
  };
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with(">") && is_digit(text[3]) && is_digit(text[4]);
}

// SentencePiece's vocabulary by tokenizer.json alone. The scores are not there, but merges stand in their order, and
// only the order counts: a token's score is the place of the first merge that makes it.
int64_t add_ranked_pieces(Draft& draft, const Family& family, const TokenizerJson& tokenizer) {
  const std::optional<bool> blank = puts_blank_before(tokenizer);
  if (!blank)
    throw Error(Errc::unsupported,
                "tokenizer.json: a vocabulary of SentencePiece with a normalizer or pre-tokenizer that is not known; "
                "needs a tokenizer.model");
  std::unordered_map<std::string, float> scores;
  for (size_t i = 0; i < tokenizer.merges.size(); ++i)
    scores.try_emplace(tokenizer.merges[i].first + tokenizer.merges[i].second, -static_cast<float>(i));
  const float last = -static_cast<float>(tokenizer.merges.size());
  Tokens tokens = tokens_of(draft, family, tokenizer);
  std::fill(tokens.scores.begin(), tokens.scores.end(), last);
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    if (tokens.kinds[i] != kNormal && tokens.texts[i] != tokenizer.unknown) continue;
    if (is_byte(tokens.texts[i])) tokens.kinds[i] = kByte;
    if (!tokenizer.unknown.empty() && tokens.texts[i] == tokenizer.unknown) tokens.kinds[i] = kUnknown;
    if (const auto found = scores.find(tokens.texts[i]); found != scores.end()) tokens.scores[i] = found->second;
  }
  draft.notes.push_back(
      "tokenizer.model is not there: scores of tokens are the places of their merges in tokenizer.json");
  write(draft, "llama", "default", tokens, true);
  add_special_tokens(draft, family, tokenizer, static_cast<int64_t>(tokens.texts.size()));
  if (!family.options.no_space_prefix) draft.head.set("tokenizer.ggml.add_space_prefix", Value::of(*blank));
  add_end_of_turn(draft, tokens);
  return static_cast<int64_t>(tokens.texts.size());
}

// The texts that tokenizer_config.json calls special, by their part or in a list.
std::set<std::string, std::less<>> named_special(const Draft& draft) {
  std::set<std::string, std::less<>> named;
  const auto config = draft.folder.json_of("tokenizer_config.json");
  if (!config) return named;
  const auto add = [&](const Json& one) {
    if (one.string() != nullptr) named.insert(*one.string());
    if (const std::string_view content = one.text("content"); !content.empty()) named.emplace(content);
  };
  for (const char* part : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
    if (const Json* one = config->find(fmt::format("{}_token", part))) add(*one);
  }
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* more = config->find(list);
    if (more == nullptr) continue;
    if (more->array() != nullptr) {
      for (const Json& one : *more->array()) add(one);
    }
    if (more->object() != nullptr) {
      for (const auto& [key, one] : *more->object()) add(one);
    }
  }
  return named;
}

// Gemma 4's: merges over texts with U+2581 for blanks. Tokens by which tools and thoughts are told apart are text, so
// that readers of answers see them.
int64_t add_merged_pieces(Draft& draft, const Family& family, const TokenizerJson& tokenizer) {
  constexpr std::array<std::string_view, 7> kVisible = {
      "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"};
  constexpr float kScore = -1000.0f;  // none: merges decide
  if (tokenizer.model != "BPE" || !tokenizer.byte_fallback) {
    throw Error(Errc::unsupported,
                fmt::format("tokenizer.json: a {} model{}; {} files need BPE that falls back on bytes", tokenizer.model,
                            tokenizer.byte_fallback ? "" : " without bytes to fall back on", draft.architecture()));
  }
  int64_t n_tokens = 0;
  for (const auto& [text, id] : tokenizer.vocab) n_tokens = std::max(n_tokens, id + 1);
  for (const AddedToken& t : tokenizer.added) n_tokens = std::max(n_tokens, t.id + 1);
  Tokens tokens;
  tokens.fill(n_tokens, kScore);
  const auto named = named_special(draft);
  for (const auto& [text, id] : tokenizer.vocab)
    tokens.set(id, text, is_byte(text) ? kByte : named.contains(text) ? kControl : kNormal, kScore);
  for (const AddedToken& t : tokenizer.added) {
    const bool is_new = tokens.kinds[static_cast<size_t>(t.id)] == kUnused;
    if (is_new) tokens.set(t.id, t.content, named.contains(t.content) ? kControl : kUserDefined, kScore);
  }
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    if (tokens.kinds[i] == kUnused)
      throw Error(Errc::bad_file, fmt::format("tokenizer.json: no token has the id {}", i));
    if (std::find(kVisible.begin(), kVisible.end(), tokens.texts[i]) != kVisible.end()) tokens.kinds[i] = kUserDefined;
  }
  write(draft, "gemma4", {}, tokens, true);
  const std::vector<std::string> merges = merge_lines(tokenizer);
  if (merges.empty()) throw Error(Errc::bad_file, "tokenizer.json: no merges");
  draft.head.set("tokenizer.ggml.merges", Value::of(std::span<const std::string>(merges)));
  add_special_tokens(draft, family, tokenizer, std::nullopt);
  draft.head.set("tokenizer.ggml.add_bos_token", Value::of(true));
  return static_cast<int64_t>(tokenizer.vocab.size() + tokenizer.added.size());
}

// A word's first piece gets a blank, which pieces within a word then lack in place of having "##".
int64_t add_word_pieces(Draft& draft, const Family& family, const TokenizerJson& tokenizer) {
  draft.head.set("tokenizer.ggml.token_type_count",
                 Value::of(static_cast<uint32_t>(draft.config.find_count("type_vocab_size").value_or(1))));
  Tokens tokens = tokens_of(draft, family, tokenizer);
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    std::string& text = tokens.texts[i];
    if (tokens.kinds[i] == kControl) continue;
    if (text.starts_with("##")) {
      text.erase(0, 2);
    } else {
      text.insert(0, kLowLine);
    }
  }
  write(draft, "bert", "jina-v2-en", tokens, false);
  add_special_tokens(draft, family, tokenizer, static_cast<int64_t>(tokens.texts.size()));
  return static_cast<int64_t>(tokens.texts.size());
}

constexpr float kUnusedScore = -10000.0f;

// What stands beside the tokens of a unigram model.
struct UnigramKeys {
  std::string_view chars_map;
  bool add_space_prefix, remove_extra_whitespaces;
};

void write_unigram(Draft& draft, const Tokens& tokens, const UnigramKeys& keys) {
  write(draft, "t5", "default", tokens, true);
  draft.head.set("tokenizer.ggml.token_type_count",
                 Value::of(static_cast<uint32_t>(draft.config.find_count("type_vocab_size").value_or(1))));
  draft.head.set("tokenizer.ggml.add_space_prefix", Value::of(keys.add_space_prefix));
  draft.head.set("tokenizer.ggml.remove_extra_whitespaces", Value::of(keys.remove_extra_whitespaces));
  if (keys.chars_map.empty()) return;
  const auto* bytes = reinterpret_cast<const uint8_t*>(keys.chars_map.data());
  draft.head.set("tokenizer.ggml.precompiled_charsmap", Value::of(std::span(bytes, keys.chars_map.size())));
}

// The embedding may have more rows than there are tokens, or a few less than SentencePiece's file has pieces.
Tokens unused_tokens(Draft& draft, size_t n_tokens) {
  Tokens tokens;
  tokens.fill(std::max(vocab_size(draft, static_cast<int64_t>(n_tokens)), static_cast<int64_t>(n_tokens)),
              kUnusedScore);
  return tokens;
}

// The Unigram of tokenizer.json. Special tokens have no score of their own.
int64_t add_unigram(Draft& draft, const Family& family, const TokenizerJson& tokenizer) {
  std::string unknown;
  const auto rules = read_unigram_rules(tokenizer, unknown);
  if (!rules)
    throw Error(Errc::unsupported, fmt::format("tokenizer.json: a Unigram with a part that is not known: {}", unknown));
  if (!tokenizer.unknown_id || *tokenizer.unknown_id >= static_cast<int64_t>(tokenizer.vocab.size())) {
    throw Error(Errc::unsupported, "tokenizer.json: a Unigram without unk_id, the token of what cannot be spelled");
  }
  size_t n_tokens = tokenizer.vocab.size();
  for (const AddedToken& t : tokenizer.added) n_tokens = std::max(n_tokens, static_cast<size_t>(t.id) + 1);
  Tokens tokens = unused_tokens(draft, n_tokens);
  for (size_t i = 0; i < tokenizer.vocab.size(); ++i) {
    const std::string& text = tokenizer.vocab[i].first;
    tokens.set(static_cast<int64_t>(i), text, tokenizer.byte_fallback && is_byte(text) ? kByte : kNormal,
               tokenizer.scores[i]);
  }
  for (const AddedToken& t : tokenizer.added) {
    const float score =
        t.id < static_cast<int64_t>(tokenizer.vocab.size()) ? tokenizer.scores[static_cast<size_t>(t.id)] : 0.0f;
    tokens.set(t.id, t.content, t.special ? kControl : kUserDefined, score);
  }
  tokens.kinds[static_cast<size_t>(*tokenizer.unknown_id)] = kUnknown;
  require_decoder_tokens(draft, tokens);
  draft.notes.insert(draft.notes.end(), rules->notes.begin(), rules->notes.end());
  write_unigram(draft, tokens, {rules->chars_map, rules->has_prefix, rules->removes_extra_blanks()});
  add_special_tokens(draft, family, tokenizer, static_cast<int64_t>(tokens.texts.size()));
  return static_cast<int64_t>(tokens.texts.size());
}

// The same by SentencePiece's own file. XLM-RoBERTa's ids are not the file's: four tokens stand before the pieces, and
// <mask> behind them.
int64_t add_unigram_pieces(Draft& draft, const Family& family, const std::string& name) {
  const Pieces pieces = read_pieces(draft.folder.text_of(name, kModelBytesMax));
  if (pieces.is_bpe)
    throw Error(Errc::unsupported,
                fmt::format("{}: a model of merges; {} needs a unigram model", name, draft.architecture()));
  if (!pieces.escapes_blanks || pieces.blank_behind) {
    throw Error(Errc::unsupported,
                fmt::format("{}: {}; GGUF has no key for it", name,
                            pieces.blank_behind ? "blanks belong to the word before them" : "blanks are no U+2581"));
  }
  const bool is_xlm_roberta = name == "sentencepiece.bpe.model";
  const size_t n = pieces.all.size();
  Tokens tokens = unused_tokens(draft, is_xlm_roberta ? n + 2 : n);
  const auto set = [&](size_t id, const Piece& piece, int32_t kind) {
    tokens.set(static_cast<int64_t>(id), piece.text, kind, piece.score);
  };
  if (is_xlm_roberta && n < 3)
    throw Error(Errc::bad_file, fmt::format("{}: {} pieces; needs <unk>, <s> and </s> before all others", name, n));
  for (size_t i = is_xlm_roberta ? 3 : 0; i < n; ++i)
    set(i + (is_xlm_roberta ? 1 : 0), pieces.all[i], kind_of(pieces.all[i]));
  if (is_xlm_roberta) {
    int64_t id = 0;
    for (const char* text : {"<s>", "<pad>", "</s>", "<unk>"}) tokens.set(id++, text, kControl, 0.0f);
    tokens.kinds[3] = kUnknown;
    tokens.set(static_cast<int64_t>(n) + 1, "<mask>", kControl, 0.0f);
  }
  write_unigram(draft, tokens, {pieces.chars_map, pieces.add_space_prefix, pieces.remove_extra_whitespaces});
  add_special_tokens(draft, family, std::nullopt, static_cast<int64_t>(tokens.texts.size()));
  if (is_xlm_roberta) {
    constexpr uint32_t kEnd = 2, kUnknownId = 3;
    const auto set_id = [&](const char* type, uint32_t id) {
      draft.head.set(fmt::format("tokenizer.ggml.{}_token_id", type), Value::of(id));
    };
    set_id("seperator", kEnd);
    set_id("unknown", kUnknownId);
    set_id("mask", static_cast<uint32_t>(n) + 1);
    for (const char* type : {"bos", "eos", "sep"})
      draft.head.set(fmt::format("tokenizer.ggml.add_{}_token", type), Value::of(true));
  }
  return static_cast<int64_t>(tokens.texts.size());
}

// The file of a folder's unigram model, where that is all it has.
std::string unigram_file(const Folder& folder) {
  for (const char* name : {"sentencepiece.bpe.model", "tokenizer.model", "spiece.model"}) {
    if (folder.has(name)) return name;
  }
  return {};
}

// What only some classes' converters write.
void add_family_keys(Draft& draft, const Family& family) {
  if (family.options.no_space_prefix) draft.head.set("tokenizer.ggml.add_space_prefix", Value::of(false));
  if (!family.options.reads_prefix_space) return;
  if (const auto config = draft.folder.json_of("tokenizer_config.json")) {
    if (const Json* prefix = config->find("add_prefix_space"); prefix != nullptr && prefix->boolean() != nullptr) {
      draft.head.set("tokenizer.ggml.add_space_prefix", Value::of(*prefix->boolean()));
    }
  }
  if (draft.config.find_count("vocab_size").value_or(0) == 49152)
    draft.head.set("tokenizer.ggml.add_bos_token", Value::of(false));
}

}  // namespace

int64_t add_vocabulary(Draft& draft, const Family& family, const std::optional<TokenizerJson>& tokenizer,
                       const VocabularyOptions& options) {
  using enum VocabularyKind;
  const std::string folder = draft.folder.path().string();
  const bool from_json =
      family.vocabulary == bpe || family.vocabulary == merged_pieces || family.vocabulary == word_pieces;
  int64_t n = 0;
  if (!from_json && draft.folder.has("tokenizer.model")) {
    n = add_pieces(draft, family, tokenizer);
  } else if (const std::string name = unigram_file(draft.folder);
             family.vocabulary == word_pieces && !tokenizer && !name.empty()) {
    n = add_unigram_pieces(draft, family, name);
  } else {
    if (!tokenizer)
      throw Error(Errc::bad_file, fmt::format("{}: needs a tokenizer.json{}; the folder has none", folder,
                                              from_json ? "" : " or tokenizer.model"));
    const bool is_ranked = !from_json && tokenizer->model == "BPE" && tokenizer->byte_fallback;
    if (family.vocabulary == pieces && !is_ranked)
      throw Error(Errc::bad_file,
                  fmt::format("{}: needs a tokenizer.model for {}; the folder has none", folder, draft.architecture()));
    n = is_ranked                            ? add_ranked_pieces(draft, family, *tokenizer)
        : family.vocabulary == merged_pieces ? add_merged_pieces(draft, family, *tokenizer)
        : family.vocabulary == word_pieces && tokenizer->model == "Unigram" ? add_unigram(draft, family, *tokenizer)
        : family.vocabulary == word_pieces && tokenizer->model == "WordPiece"
            ? add_word_pieces(draft, family, *tokenizer)
            : add_bpe(draft, family, *tokenizer, options);
  }
  add_family_keys(draft, family);
  return n;
}

}  // namespace assay::converting
