// Does the model know English? A file can be wrong in itself while every op computes what the file
// says; then a plain text is unlikely. The dictionary's whole-model mutations are asked which of
// them makes it likely.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/model_state.h"
#include "faults/dictionary.h"
#include "verify/probes.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

constexpr int64_t kVocabularyMin = 1000;  // below, a vocabulary is a toy's
constexpr int64_t kTextTokens = 160, kQuickTextTokens = 48, kChunk = 32;
constexpr int64_t kSuspectTokens = 48;
constexpr int64_t kQuickParameters = 300'000'000;  // beyond, tens of oracle runs are not quick
constexpr double kNatsMax = 6.5;                   // a mean that no working model has on plain English
constexpr double kShareMax = 0.75;  // of the logarithm of the vocabulary's size, which is what a guess has
constexpr double kWorseThanGuessing = 1.15;

double mean_nll(const Subject& subject, const std::vector<TokenId>& ids, const StageRun& run) {
  const auto n = static_cast<int64_t>(ids.size());
  const auto executor = subject.make_executor(n, kChunk, 1);
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    end_if_cancelled(run);
    const int64_t size = std::min(kChunk, n - begin);
    std::vector<int32_t> positions(static_cast<size_t>(size));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
    const std::vector<int32_t> sequences(static_cast<size_t>(size), 0);
    const std::vector<uint8_t> outputs(static_cast<size_t>(size), 1);
    executor->run(
        {std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(size)), positions, sequences, outputs});
    for (int64_t i = 0; i < size && begin + i + 1 < n; ++i) {
      const std::span<const float> logits = executor->logits(i);
      const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
      double total = 0;
      for (const float logit : logits) total += std::exp(static_cast<double>(logit) - largest);
      sum += largest + std::log(total) -
             static_cast<double>(logits[static_cast<size_t>(ids[static_cast<size_t>(begin + i + 1)])]);
    }
    show_progress(run, begin + size, n);
  }
  return sum / static_cast<double>(n - 1);
}

}  // namespace

TextFindings check_text(const Subject& subject, const StageRun& run) {
  TextFindings out;
  out.stage = run_stage(run, "text", "Text", [&](Findings& findings) {
    if (!subject.encode) return findings.skip("the model was loaded without its vocabulary");
    if (subject.model->state().built.plan.logits == ops::kNone) return findings.skip("an encoder predicts no text");
    const int64_t n_vocab = subject.model->vocab_size();
    if (n_vocab < kVocabularyMin)
      return findings.skip(fmt::format("a vocabulary of {} tokens is no language's", n_vocab));
    std::vector<TokenId> ids =
        subject.encode(english_paragraph(), {.parse_special = false, .add_bos = {}, .add_eos = false});
    const int64_t n = std::min({run.quick ? kQuickTextTokens : kTextTokens, static_cast<int64_t>(ids.size()),
                                subject.model->state().n_ctx_usable()});
    if (n < 8)
      return findings.skip(
          fmt::format("the model's context of {} is too short for a text", subject.model->state().n_ctx_usable()));
    ids.resize(static_cast<size_t>(n));
    const double nll = mean_nll(subject, ids, run);
    const double limit = std::min(kNatsMax, kShareMax * std::log(static_cast<double>(n_vocab)));
    findings.summary(fmt::format("{} of plain English: {:.2f} nats each, perplexity {:.4g}", plural(n, "token"), nll,
                                 std::exp(nll)));
    if (nll <= limit) return;
    const std::string needed = fmt::format(
        "working models need less than {:.1f} nats a token of plain English: the file may be wrong "
        "in itself, or the "
        "model was never trained on English",
        limit);
    const double of_a_guess = std::log(static_cast<double>(n_vocab));
    if (nll > kWorseThanGuessing * of_a_guess) {
      findings.fail(fmt::format("{}; a guess among all {} tokens has {:.1f}", needed, n_vocab, of_a_guess));
    } else {
      findings.warn(needed);
    }
    if (!run.suspect_file) return;
    if (run.quick && subject.model->n_parameters() > kQuickParameters) {
      return findings.note("a check that is not quick looks for faults of the file that would explain it");
    }
    ids.resize(static_cast<size_t>(std::min(n, kSuspectTokens)));
    for (Cause& cause : faults::suspect_file(subject.model->state().built.plan, ids, run.pool)) {
      if (cause.residual * nll > limit) continue;  // residual: of the nats, what is left with the fault undone
      findings.fail(cause.text);
      out.causes.push_back(std::move(cause));
    }
  });
  return out;
}

}  // namespace assay::verify
