// Source of the rules: behaviour of llama.cpp 0.5.0.
#include "text/special_tokens.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

namespace assay::text {
namespace {

using Texts = std::span<const std::string_view>;

constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};
constexpr std::string_view kFimPrefixTexts[] = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",    "<｜fim▁begin｜>",
                                                "<PRE>",          "▁<PRE>",       "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSuffixTexts[] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
                                                "<SUF>",          "▁<SUF>",       "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMiddleTexts[] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
                                                "<MID>",          "▁<MID>",       "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPadTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepoTexts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFimSeparatorTexts[] = {"<|file_sep|>"};
constexpr std::string_view kChannelTexts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// The id the file names, or else the first of the texts that the vocabulary has, which then is a
// control token.
std::optional<TokenId> named_or_found(Vocabulary& vocabulary, std::optional<TokenId> named, Texts texts) {
  if (named) return named;
  for (const std::string_view text : texts) {
    if (const auto id = vocabulary.find(text)) {
      vocabulary.set_kind(*id, TokenKind::control);
      return id;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<TokenId> find_end_of_generation(Vocabulary& vocabulary, const SpecialIds& special) {
  std::set<TokenId> ends;
  const auto add = [&](std::optional<TokenId> id) {
    if (id) ends.insert(*id);
  };
  named_or_found(vocabulary, special.fim_prefix, kFimPrefixTexts);
  named_or_found(vocabulary, special.fim_suffix, kFimSuffixTexts);
  named_or_found(vocabulary, special.fim_middle, kFimMiddleTexts);
  add(named_or_found(vocabulary, special.fim_pad, kFimPadTexts));
  add(named_or_found(vocabulary, special.fim_repo, kFimRepoTexts));
  add(named_or_found(vocabulary, special.fim_separator, kFimSeparatorTexts));
  for (const std::string_view text : kEndTexts) {
    if (const auto id = vocabulary.find(text)) {
      vocabulary.set_kind(*id, TokenKind::control);
      ends.insert(*id);
    }
  }
  for (const std::string_view text : kChannelTexts) {
    if (const auto id = vocabulary.find(text)) vocabulary.set_kind(*id, TokenKind::user_defined);
  }
  add(special.eos);
  add(special.eot);
  add(special.eom);

  // Where a vocabulary has marks for the end of a call, "<|end|>" only ends a part of the answer.
  const auto has = [&](std::string_view text) {
    const auto id = vocabulary.find(text);
    return id && ends.count(*id) != 0;
  };
  const bool has_call = has("<|call|>") || has("<|calls|>");
  if (has("<|end|>") && has_call && (has("<|return|>") || has("<|flush|>"))) {
    const TokenId end = *vocabulary.find("<|end|>");
    ends.erase(end);
    vocabulary.set_kind(end, TokenKind::user_defined);
  }
  // Gemma 4 and PLaMo have an ordinary token "</s>".
  if (has("</s>") && (has("<|tool_response>") || has("<|plamo:eos|>"))) {
    const TokenId slash_s = *vocabulary.find("</s>");
    ends.erase(slash_s);
    vocabulary.set_kind(slash_s, TokenKind::normal);
  }
  return {ends.begin(), ends.end()};
}

}  // namespace assay::text
