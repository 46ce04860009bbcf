// Draws from fixed logits against an independent reference (reference_sampler.h): sets, penalties,
// the order of the steps, seeds, and the distribution itself by a chi-square test at a fixed seed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "assay/error.h"
#include "verify/reference_sampler.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

constexpr int64_t kDraws = 3000;
constexpr size_t kVocabulary = 251;
constexpr TokenId kSecond = 89;  // the second likeliest token; 0 is the likeliest

// Logits with a head of some tens of likely tokens at scattered ids and a long tail, as models have
// them. All differ.
std::vector<float> make_logits() {
  std::vector<float> logits(kVocabulary);
  for (size_t rank = 0; rank < kVocabulary; ++rank) {
    const size_t id = rank * static_cast<size_t>(kSecond) % kVocabulary;
    logits[id] = 9.0f - 2.0f * std::log2(1.0f + static_cast<float>(rank)) - 0.001f * static_cast<float>(rank);
  }
  return logits;
}

SamplerOptions plain() {  // draws from the logits as they are
  SamplerOptions o;
  o.seed = 20240613;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

struct SamplerCase {
  std::string name;
  SamplerOptions options;
  std::vector<TokenId> history;
};

template <class Change>
SamplerCase make_case(std::string name, Change change, std::vector<TokenId> history = {}) {
  SamplerCase made{std::move(name), plain(), std::move(history)};
  change(made.options);
  return made;
}

std::vector<SamplerCase> distribution_cases() {
  const std::vector<TokenId> likely = {0, kSecond, 2 * kSecond, 0, 0};  // the three likeliest
  return {
      make_case("temperature 1", [](SamplerOptions&) {}),
      make_case("temperature 0.5", [](SamplerOptions& o) { o.temperature = 0.5; }),
      make_case("temperature 2", [](SamplerOptions& o) { o.temperature = 2; }),
      make_case("top-k 7", [](SamplerOptions& o) { o.top_k = 7; }),
      make_case("top-p 0.6", [](SamplerOptions& o) { o.top_p = 0.6; }),
      make_case("min-p 0.1", [](SamplerOptions& o) { o.min_p = 0.1; }),
      make_case("top-p 0.6, then temperature 3", [](SamplerOptions& o) { o.top_p = 0.6, o.temperature = 3; }),
      make_case("min-p 0.1, then temperature 0.4", [](SamplerOptions& o) { o.min_p = 0.1, o.temperature = 0.4; }),
      make_case("top-k 40, top-p 0.95, min-p 0.05, temperature 0.8",
                [](SamplerOptions& o) { o.top_k = 40, o.top_p = 0.95, o.min_p = 0.05, o.temperature = 0.8; }),
      make_case(
          "repeat penalty 1.5", [](SamplerOptions& o) { o.repeat_penalty = 1.5; }, likely),
      make_case(
          "frequency penalty 0.7", [](SamplerOptions& o) { o.frequency_penalty = 0.7; }, likely),
      make_case(
          "presence penalty 2", [](SamplerOptions& o) { o.presence_penalty = 2; }, likely),
      make_case("logit bias",
                [](SamplerOptions& o) {
                  o.logit_bias = {{5, 6.0f}, {0, -std::numeric_limits<float>::infinity()}};
                }),
  };
}

void check_distribution(const Subject& subject, const SamplerCase& c, const std::vector<float>& logits,
                        Findings& findings) {
  const std::vector<double> expected = reference_distribution(c.options, logits, c.history);
  const std::vector<TokenId> draws = subject.sample(c.options, logits, c.history, kDraws);
  if (static_cast<int64_t>(draws.size()) != kDraws)
    return findings.fail(fmt::format("{}: {} draws of {}", c.name, draws.size(), kDraws));
  const ChiSquare test = chi_square(draws, expected);
  if (test.n_impossible > 0) {
    const auto bad = std::find_if(draws.begin(), draws.end(), [&](TokenId id) {
      return id < 0 || static_cast<size_t>(id) >= expected.size() || expected[static_cast<size_t>(id)] == 0;
    });
    findings.fail(fmt::format("{}: token {} is drawn, which these settings leave out ({} of {} draws)", c.name, *bad,
                              test.n_impossible, kDraws));
  } else if (test.statistic > test.limit()) {
    findings.fail(
        fmt::format("{}: {} draws do not follow the distribution: chi-square {:.0f} over {} "
                    "classes, needs {:.0f} at most",
                    c.name, kDraws, test.statistic, test.n_classes, test.limit()));
  }
}

void check_greedy(const Subject& subject, const std::vector<float>& logits, Findings& findings) {
  SamplerOptions greedy;  // with every other step as users have it
  greedy.temperature = 0;
  std::vector<float> ties = logits;
  ties[17] = ties[101] = ties[202] = 20.0f;
  for (const TokenId id : subject.sample(greedy, ties, {}, 8)) {
    if (id == 17) continue;
    findings.fail(fmt::format("temperature 0: token {} of the equals 17, 101, 202; needs the lowest id", id));
    break;
  }
  const std::vector<TokenId> best = subject.sample(greedy, logits, {}, 8);
  if (std::any_of(best.begin(), best.end(), [](TokenId id) { return id != 0; })) {
    findings.fail(fmt::format("temperature 0: {} are drawn, needs the largest logit, 0, each time", shown_ids(best)));
  }
  SamplerOptions repeat = greedy;
  repeat.repeat_penalty = 100;
  const std::vector<TokenId> history = {0};
  const std::vector<TokenId> penalised = subject.sample(repeat, logits, history, 1);
  if (penalised != std::vector<TokenId>{kSecond}) {
    findings.fail(fmt::format("a repeat penalty of 100 on token 0: {} is drawn, needs the next best, {}",
                              shown_ids(penalised), kSecond));
  }
  SamplerOptions one = plain();
  one.top_k = 1;
  if (subject.sample(one, logits, {}, 4) != std::vector<TokenId>(4, 0))
    findings.fail("top-k 1 draws others than the best token");
}

void check_seeds(const Subject& subject, const std::vector<float>& logits, Findings& findings) {
  SamplerOptions options = plain();
  options.temperature = 3;
  const std::vector<TokenId> first = subject.sample(options, logits, {}, 64),
                             again = subject.sample(options, logits, {}, 64);
  if (first != again) findings.fail("the same seed gives other draws the second time");
  if (std::set<TokenId>(first.begin(), first.end()).size() <= 2) {
    findings.fail(fmt::format("64 draws at consecutive positions give {} different tokens: the generator stands still",
                              std::set<TokenId>(first.begin(), first.end()).size()));
  }
  options.seed += 1;
  if (subject.sample(options, logits, {}, 64) == first)
    findings.fail("another seed gives the same draws: it is not used");
  // The draw belongs to the position: a history one longer begins one later.
  options.seed -= 1;
  const std::vector<TokenId> history = {1};
  const std::vector<TokenId> shifted = subject.sample(options, logits, history, 63);
  if (!std::equal(shifted.begin(), shifted.end(), first.begin() + 1))
    findings.fail("the draw at a position depends on where the run began");
}

// Logits that are no numbers must stop a sampler, not be masked.
void check_poison(const Subject& subject, const std::vector<float>& logits, Findings& findings) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      std::vector<float> poisoned = logits;
      poisoned[50] = bad;
      SamplerOptions options = plain();
      options.temperature = temperature;
      try {
        const std::vector<TokenId> drawn = subject.sample(options, poisoned, {}, 1);
        findings.fail(fmt::format("a logit that is {} at temperature {} is passed over in silence: {} is drawn",
                                  shown_value(static_cast<double>(bad)), temperature, shown_ids(drawn)));
      } catch (const Error&) {
        continue;  // as it should be
      }
    }
  }
}

}  // namespace

VerifyStage check_sampler(const Subject& subject, const StageRun& run) {
  return run_stage(run, "sampler", "Sampler", [&](Findings& findings) {
    if (!subject.sample) return findings.skip("there is no sampler");
    const std::vector<float> logits = make_logits();
    check_greedy(subject, logits, findings);
    check_seeds(subject, logits, findings);
    check_poison(subject, logits, findings);
    const std::vector<SamplerCase> cases = distribution_cases();
    int64_t n_done = 0;
    for (const SamplerCase& c : cases) {
      end_if_cancelled(run);
      check_distribution(subject, c, logits, findings);
      show_progress(run, ++n_done, static_cast<int64_t>(cases.size()));
    }
    findings.summary(
        fmt::format("greedy, ties, seeds, poisoned logits; {} settings of {} draws each against a "
                    "reference's distribution",
                    cases.size(), kDraws));
  });
}

}  // namespace assay::verify
