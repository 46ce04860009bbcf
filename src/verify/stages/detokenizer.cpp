// Ids to text: as a whole and as a terminal shows it, token by token.
#include <fmt/format.h>

#include <algorithm>

#include "base/shown.h"
#include "base/utf8.h"
#include "verify/probes.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

using base::shown;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The whole characters of a text, without U+FFFD and without bytes that are no character.
std::string characters_of(std::string_view text) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const base::Char c = base::char_at(text, at);
    const auto length = static_cast<size_t>(c.length);
    if (c.state == base::CharState::whole && text.substr(at, length) != kReplacement) kept += text.substr(at, length);
    at += length;
  }
  return kept;
}

void check_stream(const Subject& subject, const std::vector<TokenId>& ids, const std::string& name,
                  Findings& findings) {
  const std::string whole = subject.decode(ids, false);
  const std::vector<std::string> shown_parts = subject.decode_stream(ids);
  std::string joined;
  for (size_t i = 0; i < shown_parts.size(); ++i) {
    joined += shown_parts[i];
    if (!base::is_utf8(shown_parts[i])) {
      return findings.fail(fmt::format("{}: after {} of {} ids the terminal is given {}, which breaks a character",
                                       name, i + 1, ids.size(), shown(shown_parts[i])));
    }
  }
  if (base::is_utf8(whole)) {
    if (joined != whole)
      findings.fail(fmt::format("{}: token by token it is {}, as a whole {}", name, shown(joined), shown(whole)));
  } else if (characters_of(joined) != characters_of(whole) || joined.find(kReplacement) == std::string::npos) {
    findings.fail(
        fmt::format("{}: token by token it is {}, of the bytes {}: needs U+FFFD for what is no "
                    "character and nothing else changed",
                    name, shown(joined), shown(whole)));
  }
}

// Control tokens are no text unless they are asked for.
void check_control(const Subject& subject, Findings& findings) {
  const Tokenizer& tokenizer = *subject.model->tokenizer();
  for (const std::string& special : special_texts(tokenizer, 6)) {
    const TokenId id = *tokenizer.find(special);
    const std::string hidden = subject.decode({&id, 1}, false), told = subject.decode({&id, 1}, true);
    if (!hidden.empty())
      findings.fail(fmt::format("token {} {} appears in an answer as {}", id, shown(special), shown(hidden)));
    if (told != special)
      findings.fail(fmt::format("token {} {}, asked for with special tokens, is {}", id, shown(special), shown(told)));
  }
}

}  // namespace

VerifyStage check_detokenizer(const Subject& subject, const StageRun& run) {
  return run_stage(run, "detokenizer", "Detokenizer", [&](Findings& findings) {
    if (!subject.decode_stream || !subject.encode) return findings.skip("the model was loaded without its vocabulary");
    const Tokenizer& tokenizer = *subject.model->tokenizer();
    const std::vector<std::string> texts = probe_texts(tokenizer);
    int64_t n_done = 0;
    for (const std::string& text : texts) {
      end_if_cancelled(run);
      check_stream(subject, subject.encode(text, {.parse_special = false, .add_bos = false, .add_eos = false}),
                   shown(text), findings);
      show_progress(run, ++n_done, static_cast<int64_t>(texts.size()));
    }
    // Ids all over the vocabulary, whose pieces break characters in every way.
    std::vector<TokenId> ids;
    for (uint32_t i = 1; i <= 512; ++i)
      ids.push_back(static_cast<TokenId>(uint64_t{i} * 2654435761u % static_cast<uint64_t>(tokenizer.vocab_size())));
    check_stream(subject, ids, "512 ids from all over the vocabulary", findings);
    check_control(subject, findings);
    findings.summary(
        fmt::format("{} texts and 512 ids at random: token by token as a whole, no character "
                    "broken, control tokens hidden",
                    texts.size()));
  });
}

}  // namespace assay::verify
