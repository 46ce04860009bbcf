// The rules about vocabulary and chat template (lint.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "assay/error.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "measure/lint.h"
#include "text/byte_alphabet.h"
#include "text/pre_tokenizers.h"
#include "text/splitter.h"

namespace assay::measure {
namespace {

constexpr std::string_view kUserText = "What is the height of that tower?";
constexpr std::string_view kAnswerText = "It is three hundred metres high.";
constexpr int64_t kTextsMax = 8192;      // of a vocabulary, cut by a pre-tokenizer
constexpr double kShareOfCutMax = 1e-3;  // of tokens that a right pre-tokenizer cuts

void add(std::vector<LintFinding>& found, std::string_view rule, LintLevel level, std::string message) {
  found.push_back({std::string(rule), level, std::move(message)});
}

// The bytes of ordinary tokens that are whole UTF-8, spread over a byte-level vocabulary.
std::vector<std::string> texts_of(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  const int32_t stride = std::max<int32_t>(1, tokenizer.vocab_size() / static_cast<int32_t>(kTextsMax));
  for (TokenId id = 0; id < tokenizer.vocab_size(); id += stride) {
    if (tokenizer.kind(id) != TokenKind::normal) continue;
    std::string bytes = tokenizer.piece(id);
    if (bytes.size() >= 2 && base::is_utf8(bytes)) texts.push_back(std::move(bytes));
  }
  return texts;
}

// How many of the texts it cuts: such a token can never come of a merge, so a vocabulary that was
// trained with it has none.
int64_t count_cut(std::string_view name, const std::vector<std::string>& texts) {
  const auto rules = text::find_pre_tokenizer(name);
  if (!rules) return static_cast<int64_t>(texts.size());
  const text::Splitter splitter(*rules);
  return std::count_if(texts.begin(), texts.end(),
                       [&](const std::string& one) { return splitter.split(one).size() > 1; });
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Digits of the longest number that is a token, and of the longest that the pre-tokenizer leaves
// whole (20: any).
int64_t longest_number(const Tokenizer& tokenizer) {
  size_t longest = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string_view text = tokenizer.text(id);
    if (tokenizer.kind(id) == TokenKind::normal && is_number(text)) longest = std::max(longest, text.size());
  }
  return static_cast<int64_t>(longest);
}
int64_t longest_number_left_whole(std::string_view name) {
  const auto rules = text::find_pre_tokenizer(name);
  if (!rules) return 0;
  const std::vector<uint32_t> ends = text::Splitter(*rules).split("12345678901234567890");
  int64_t longest = 0, begin = 0;
  for (const uint32_t end : ends) {
    longest = std::max(longest, static_cast<int64_t>(end) - begin);
    begin = end;
  }
  return longest;
}

// A vocabulary tells how its text was cut when it was trained.
void check_pre_tokenizer(const Tokenizer& tokenizer, std::vector<LintFinding>& found) {
  constexpr std::array kOthers = {"gpt-2",        "llama-bpe", "qwen2",  "smollm", "deepseek-coder",
                                  "deepseek-llm", "gpt-4o",    "tekken", "falcon", "default"};
  if (tokenizer.model() != "gpt2" || tokenizer.vocab_size() < 1000) return;
  const std::string_view own = tokenizer.pre_tokenizer();
  const std::vector<std::string> texts = texts_of(tokenizer);
  const int64_t n_cut = count_cut(own, texts);
  if (static_cast<double>(n_cut) > kShareOfCutMax * static_cast<double>(texts.size())) {
    std::string_view best = own;
    int64_t n_best = n_cut;
    for (const char* other : kOthers) {
      if (const int64_t n = count_cut(other, texts); n < n_best) {
        best = other;
        n_best = n;
      }
    }
    if (4 * n_best < n_cut) {
      return add(found, "pre_tokenizer", LintLevel::warning,
                 fmt::format("tokenizer.ggml.pre = \"{}\" cuts {} of {} tokens looked at, which "
                             "then never come of a text; \"{}\" cuts {}: the "
                             "file may name the wrong one",
                             own, n_cut, texts.size(), best, n_best));
    }
  }
  const int64_t in_vocabulary = longest_number(tokenizer), left_whole = longest_number_left_whole(own);
  if (in_vocabulary <= 3 && left_whole > std::max<int64_t>(in_vocabulary, 1) && tokenizer.vocab_size() > 10000) {
    add(found, "pre_tokenizer", LintLevel::warning,
        fmt::format("tokenizer.ggml.pre = \"{}\" leaves numbers of {} digits whole, the vocabulary "
                    "has none of more than {}: the file may name "
                    "the wrong one",
                    own, left_whole == 20 ? "any number of" : std::to_string(left_whole), in_vocabulary));
  }
  const bool is_llama3 = tokenizer.find("<|begin_of_text|>") && tokenizer.vocab_size() == 128256;
  if (is_llama3 && own != "llama-bpe" && own != "llama3" && own != "llama-v3") {
    add(found, "pre_tokenizer", LintLevel::warning,
        fmt::format("tokenizer.ggml.pre = \"{}\", but the vocabulary is Llama 3's, which is \"llama-bpe\"", own));
  }
}

void check_sentence_pieces(const Tokenizer& tokenizer, const gguf::Metadata& metadata,
                           std::vector<LintFinding>& found) {
  if (tokenizer.model() != "llama") return;
  int64_t n_bytes = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) n_bytes += tokenizer.kind(id) == TokenKind::byte ? 1 : 0;
  if (n_bytes != 256) {
    add(found, "byte_tokens", LintLevel::warning,
        fmt::format("{} tokens are bytes, needs 256: characters without a token become unknown (an "
                    "old converter wrote no token types?)",
                    n_bytes));
  }
  const auto scores = metadata.find_floats("tokenizer.ggml.scores");
  if (!scores || std::all_of(scores->begin(), scores->end(), [](float s) { return s == 0; })) {
    add(found, "scores", LintLevel::error,
        "tokenizer.ggml.scores are missing or all 0: which pieces merge first is then left open");
  }
}

void check_bos(const Tokenizer& tokenizer, std::vector<LintFinding>& found) {
  const auto check = [&](std::string_view name, std::optional<TokenId> id, bool is_added) {
    if (is_added && !id) {
      add(found, "bos_eos", LintLevel::error,
          fmt::format("the file asks for {} at each text and names no such token", name));
    }
    if (id && tokenizer.kind(*id) == TokenKind::normal) {
      add(found, "bos_eos", LintLevel::warning,
          fmt::format("{} is token {} {}, an ordinary token: needs a control token", name, *id,
                      base::shown(tokenizer.text(*id))));
    }
  };
  check("BOS", tokenizer.bos(), tokenizer.adds_bos());
  check("EOS", tokenizer.eos(), tokenizer.adds_eos());
  if (tokenizer.end_of_generation().empty()) {
    add(found, "end_of_generation", LintLevel::error,
        "no token ends a generation: the file names no EOS and the vocabulary has no known one");
  }
  const bool surrounds =
      tokenizer.model() == "t5" || tokenizer.model() == "bert";  // vocabularies of encoders, which answer nothing
  if (tokenizer.adds_eos() && !surrounds) {
    add(found, "bos_eos", LintLevel::warning,
        "the file asks for EOS behind each text: a prompt would end before its answer");
  }
}

std::string rendered(const Tokenizer& tokenizer, const ChatTemplate& chat, const TemplateValue::List& messages,
                     bool generation_prompt) {
  const auto text_of = [&](std::optional<TokenId> id) { return id ? std::string(tokenizer.text(*id)) : std::string(); };
  TemplateInput input;
  input.messages = messages;
  input.add_generation_prompt = generation_prompt;
  input.bos_token = text_of(tokenizer.bos());
  input.eos_token = text_of(tokenizer.eos());
  input.now_unix = 1'750'000'000;
  return chat.render(input);
}

TemplateValue::List conversation() {
  using Dict = TemplateValue::Dict;
  return {Dict{{"role", "user"}, {"content", kUserText}}, Dict{{"role", "assistant"}, {"content", kAnswerText}},
          Dict{{"role", "user"}, {"content", kUserText}}};
}

std::optional<TokenId> special_at(const Tokenizer& tokenizer, std::string_view text) {
  std::optional<TokenId> longest;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.kind(id) == TokenKind::normal || tokenizer.kind(id) == TokenKind::byte) continue;
    const std::string_view own = tokenizer.text(id);
    if (own.empty() || !text.starts_with(own)) continue;
    if (!longest || own.size() > tokenizer.text(*longest).size()) longest = id;
  }
  return longest;
}

void check_rendered(const Tokenizer& tokenizer, const ChatTemplate& chat, std::vector<LintFinding>& found) {
  const std::string with = rendered(tokenizer, chat, conversation(), true),
                    without = rendered(tokenizer, chat, conversation(), false);
  if (with == without) {
    add(found, "generation_prompt", LintLevel::warning,
        "the template adds nothing where an answer is to begin (add_generation_prompt)");
  }
  const std::string bos = tokenizer.bos() ? std::string(tokenizer.text(*tokenizer.bos())) : std::string();
  if (!bos.empty() && with.starts_with(bos + bos)) {
    add(found, "bos_twice", LintLevel::error,
        fmt::format("the template begins its text with {} twice", base::shown(bos)));
  } else if (!bos.empty() && with.starts_with(bos) && tokenizer.adds_bos()) {
    add(found, "bos_twice", LintLevel::warning,
        fmt::format("the template begins with {} and tokenizer.ggml.add_bos_token asks for one "
                    "more: engines that do both shift every position "
                    "by one (here it comes once)",
                    base::shown(bos)));
  }
  for (const std::string_view part : {kUserText, kAnswerText}) {
    if (with.find(part) == std::string::npos) {
      add(found, "template_content", LintLevel::error,
          fmt::format("the template drops a message's text ({})", base::shown(part)));
    }
  }
  const auto end = find_end_of_turn(tokenizer, chat);
  if (end && !tokenizer.is_end_of_generation(*end)) {
    add(found, "end_of_turn", LintLevel::error,
        fmt::format("the template ends answers with token {} {}, which does not end a generation: "
                    "the model would talk on",
                    *end, base::shown(tokenizer.text(*end))));
  }
  const std::vector<TokenId> ends = tokenizer.end_of_generation();
  const bool has_end = std::any_of(ends.begin(), ends.end(),
                                   [&](TokenId id) { return with.find(tokenizer.text(id)) != std::string::npos; });
  if (!end && !has_end) {
    add(found, "eos_in_template", LintLevel::warning,
        "no token that ends a generation appears in a conversation as the template renders it");
  }
}

}  // namespace

std::optional<TokenId> find_end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  TemplateValue::List messages = conversation();
  messages.pop_back();  // what follows the answer then is its end, and no mark of another turn
  const std::string text = rendered(tokenizer, chat_template, messages, false);
  const size_t at = text.find(kAnswerText);
  if (at == std::string::npos) return std::nullopt;
  std::string_view after = std::string_view(text).substr(at + kAnswerText.size());
  after.remove_prefix(std::min(after.find_first_not_of(" \n"), after.size()));
  return special_at(tokenizer, after);
}

std::vector<LintFinding> lint_tokenizer(const LintInput& in) {
  std::vector<LintFinding> found;
  if (in.tokenizer == nullptr) return found;
  check_pre_tokenizer(*in.tokenizer, found);
  check_sentence_pieces(*in.tokenizer, in.file.metadata(), found);
  check_bos(*in.tokenizer, found);
  return found;
}

std::vector<LintFinding> lint_template(const LintInput& in) {
  std::vector<LintFinding> found;
  if (in.tokenizer == nullptr || in.chat_template == nullptr) return found;
  try {
    check_rendered(*in.tokenizer, *in.chat_template, found);
  } catch (const Error& error) {
    add(found, "template_render", LintLevel::error,
        fmt::format("a conversation of user, assistant, user is refused: {}", error.what()));
  }
  return found;
}

}  // namespace assay::measure
