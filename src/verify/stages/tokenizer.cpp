// Text to ids: against an independent naive encoder (naive_tokenizer.h), there and back, and the
// vocabulary against itself.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/shown.h"
#include "engine/model_state.h"
#include "measure/lint.h"
#include "verify/naive_tokenizer.h"
#include "verify/probes.h"
#include "verify/stages/stage_support.h"
#include "verify/tokenizer_causes.h"

namespace assay::verify {
namespace {

constexpr int64_t kSpecialsMax = 512;

using base::shown;

std::string shown_piece(const Tokenizer& tokenizer, std::span<const TokenId> ids, size_t i) {
  if (i >= ids.size()) return "nothing";
  if (ids[i] < 0 || ids[i] >= tokenizer.vocab_size()) return fmt::format("{} (not an id)", ids[i]);
  return fmt::format("{} {}", ids[i], shown(tokenizer.text(ids[i])));
}

void check_ids(const Subject& subject, const NaiveTokenizer& naive, const std::string& text, bool parse_special,
               Findings& findings) {
  const Tokenizer& tokenizer = *subject.model->tokenizer();
  const std::vector<TokenId> found =
      subject.encode(text, {.parse_special = parse_special, .add_bos = false, .add_eos = false});
  const std::vector<TokenId> expected = naive.encode(text, parse_special, false);
  if (found == expected) return;
  const auto differ = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
  const auto i = static_cast<size_t>(differ.first - found.begin());
  findings.fail(fmt::format("{}{}: id {} is {}, needs {} ({} against {} ids, {} against {})", shown(text),
                            parse_special ? ", special tokens parsed" : "", i, shown_piece(tokenizer, found, i),
                            shown_piece(tokenizer, expected, i), found.size(), expected.size(), shown_ids(found),
                            shown_ids(expected)));
}

void check_round_trip(const Subject& subject, const NaiveTokenizer& naive, const std::string& text,
                      Findings& findings) {
  const std::optional<std::string> expected = naive.round_trip(text);
  if (!expected) return;
  const std::vector<TokenId> ids = subject.encode(text, {.parse_special = false, .add_bos = false, .add_eos = false});
  for (const TokenId id : ids) {
    if (id < 0 || id >= subject.model->tokenizer()->vocab_size()) {
      return findings.fail(
          fmt::format("{}: encoded to id {}, the vocabulary has {}", shown(text), id, subject.model->vocab_size()));
    }
  }
  const std::string back = subject.decode(ids, true);
  if (back != *expected)
    findings.fail(fmt::format("{}: comes back as {}, needs {}", shown(text), shown(back), shown(*expected)));
}

// A control token's text is that token where special tokens are parsed, and never where they are
// not.
void check_specials(const Subject& subject, Findings& findings) {
  const Tokenizer& tokenizer = *subject.model->tokenizer();
  // Word pieces give one control token to every word that they cannot spell: that one any text may get.
  const std::vector<TokenId> of_unknown =
      subject.encode("\u16a0", {.parse_special = false, .add_bos = false, .add_eos = false});
  int64_t n_checked = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size() && n_checked < kSpecialsMax; ++id) {
    if (tokenizer.kind(id) != TokenKind::control || tokenizer.text(id).empty()) continue;
    ++n_checked;
    const std::vector<TokenId> parsed =
        subject.encode(tokenizer.text(id), {.parse_special = true, .add_bos = false, .add_eos = false});
    if (parsed != std::vector<TokenId>{id}) {
      findings.fail(fmt::format("special token {} {}: its text is parsed as {}", id, shown(tokenizer.text(id)),
                                shown_ids(parsed)));
    }
    const std::vector<TokenId> plain =
        subject.encode(tokenizer.text(id), {.parse_special = false, .add_bos = false, .add_eos = false});
    const bool is_unknown = of_unknown == std::vector<TokenId>{id};
    if (!is_unknown && std::find(plain.begin(), plain.end(), id) != plain.end()) {
      findings.fail(fmt::format("special token {} {}: a user's text can write it", id, shown(tokenizer.text(id))));
    }
  }
}

void check_bos_and_ends(const Subject& subject, const NaiveTokenizer& naive, Findings& findings) {
  const Tokenizer& tokenizer = *subject.model->tokenizer();
  const std::vector<TokenId> plain = subject.encode("a", {.add_bos = false, .add_eos = false});
  std::vector<TokenId> expected = plain;
  if (naive.adds_bos() && tokenizer.bos()) expected.insert(expected.begin(), *tokenizer.bos());
  if (naive.adds_eos() && tokenizer.eos()) expected.push_back(*tokenizer.eos());
  const std::vector<TokenId> found = subject.encode("a", {});
  if (found != expected) {
    findings.fail(fmt::format("BOS and EOS: the file asks for {} before and {} after a text; 'a' becomes {}, needs {}",
                              naive.adds_bos() ? "BOS" : "nothing", naive.adds_eos() ? "EOS" : "nothing",
                              shown_ids(found), shown_ids(expected)));
  }
  const gguf::Metadata& metadata = subject.model->state().file.metadata();
  for (const char* key : {"eos", "eot", "eom"}) {
    const auto id = metadata.find_integer(fmt::format("tokenizer.ggml.{}_token_id", key));
    if (id && *id >= 0 && *id < tokenizer.vocab_size() && !subject.is_end_of_generation(static_cast<TokenId>(*id))) {
      findings.fail(fmt::format("token {} {}, which the file names as {}, does not end a generation", *id,
                                shown(tokenizer.text(static_cast<TokenId>(*id))), key));
    }
  }
  for (const TokenId id : plain) {
    if (subject.is_end_of_generation(id)) findings.fail(fmt::format("token {}, the letter a, ends a generation", id));
  }
}

// Every id decodes to the bytes that its text stands for.
void check_pieces(const Subject& subject, const StageRun& run, Findings& findings) {
  const Tokenizer& tokenizer = *subject.model->tokenizer();
  const int32_t stride = run.quick ? std::max(1, tokenizer.vocab_size() / 4096) : 1;
  for (TokenId id = 0; id < tokenizer.vocab_size(); id += stride) {
    const std::string piece = subject.decode({&id, 1}, true);
    if (piece.empty() && tokenizer.kind(id) == TokenKind::normal && tokenizer.text(id).size() > 3) {
      findings.fail(fmt::format("token {} {} decodes to nothing", id, shown(tokenizer.text(id))));
    }
  }
}

}  // namespace

VerifyStage check_tokenizer(const Subject& subject, const StageRun& run) {
  return run_stage(run, "tokenizer", "Tokenizer", [&](Findings& findings) {
    if (!subject.encode) return findings.skip("the model was loaded without its vocabulary");
    const Model::State& state = subject.model->state();
    const Tokenizer& tokenizer = *subject.model->tokenizer();
    if (tokenizer.model() == "bert") {
      check_specials(subject, findings);
      check_pieces(subject, run, findings);
      return findings.summary(
          fmt::format("word pieces, {} tokens: special tokens and every token's text; there is no second encoder to "
                      "hold ids against",
                      tokenizer.vocab_size()));
    }
    const NaiveTokenizer naive(state.file.metadata(), tokenizer);
    const std::vector<std::string> texts = probe_texts(tokenizer);
    if (!naive.writes_blanks())
      findings.warn(
          "no token is the mark of a blank, U+2581: where no longer piece has it, a blank comes back as the mark");
    int64_t n_done = 0;
    for (const std::string& text : texts) {
      end_if_cancelled(run);
      check_ids(subject, naive, text, false, findings);
      check_round_trip(subject, naive, text, findings);
      show_progress(run, ++n_done, static_cast<int64_t>(texts.size()) + 1);
    }
    if (findings.failed()) {
      for (const std::string& cause : tokenizer_causes(subject, texts))
        findings.note(fmt::format("Cause: {}, which gives these ids", cause));
    }
    for (const std::string& special : special_texts(tokenizer, 4))
      check_ids(subject, naive, "a" + special + "b\n", true, findings);
    check_specials(subject, findings);
    check_bos_and_ends(subject, naive, findings);
    check_pieces(subject, run, findings);
    for (const LintFinding& finding : measure::lint_tokenizer({state.file, nullptr, &tokenizer, nullptr})) {
      finding.level == LintLevel::error ? findings.fail(finding.message) : findings.warn(finding.message);
    }
    findings.summary(
        fmt::format("{} \"{}\", {} tokens: {} texts there and back and against a naive encoder, special "
                    "tokens, BOS and ends",
                    tokenizer.model() == "gpt2"     ? "byte pairs"
                    : tokenizer.model() == "gemma4" ? "character pairs"
                    : tokenizer.model() == "t5"     ? "unigram"
                                                    : "sentence pieces",
                    tokenizer.pre_tokenizer().empty() ? tokenizer.model() : tokenizer.pre_tokenizer(),
                    tokenizer.vocab_size(), texts.size()));
  });
}

}  // namespace assay::verify
